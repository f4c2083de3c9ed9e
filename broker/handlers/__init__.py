"""Request handlers, one file per family of APIs, named as in `wire/schemas`.

A handler is `handle(broker, call, request) -> response | None`, plain or async; None sends no answer. Beside it stands
`refuse_<handler>(request, version, code)`, which says one error about everything that was asked."""
