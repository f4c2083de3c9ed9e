"""Keys and values of internal topics (pure): each begins with an int16, the version of its schema.

The version of a key is also the kind of the record.
"""

import struct

from barnabas.wire import messages as m

_VERSION = struct.Struct(">h")
VERSION_BYTES = _VERSION.size


class MalformedRecord(Exception):
    """A key or value that cannot be decoded, or a log in which no whole batch is left."""


def versioned(message: m.Message, version: int) -> bytes:
    """The message in this version, behind the number of the version."""
    return _VERSION.pack(version) + m.encode(message, version)


def version_of(data: bytes) -> int:
    """The version at the beginning of a key or value. Raises MalformedRecord if it is too short."""
    if len(data) < VERSION_BYTES:
        raise MalformedRecord(f"{data!r} is too short for a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def supported_version(kind: type[m.Message], value: bytes) -> int:
    """The version of a value of this kind. Raises MalformedRecord if it is unknown."""
    version = version_of(value)
    # A version of a later Kafka may mean anything, so the log cannot be loaded.
    if not kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        raise MalformedRecord(f"{kind.__name__} has no version {version}")
    return version
