"""Request handlers, one file per family of APIs, named as in `wire/schemas`.

A handler is `handle(broker, call, request) -> response | None`, plain or async; None sends no response. It raises
Refuse for an error of the whole request, ProtocolViolation to close the connection. `refuse_<handler>(request, version,
code)` builds the response with one error in all its error fields; `server/dispatch.py` calls it for Refuse and for
unexpected exceptions.
"""
