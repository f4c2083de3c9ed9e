"""Request handlers, one file per family of APIs, named as in `wire/schemas`."""
