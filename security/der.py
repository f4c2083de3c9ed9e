"""DER, as far as names and keys need it (pure): X.690, RFC 5280.

What a certificate says comes from the other side of a connection, so every length is checked against the bytes that are
there. Anything that is not DER is a `DerError`: the caller refuses the certificate.
"""

import calendar
import re
from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE, SET, OID, OCTET_STRING, UTC_TIME, EXPLICIT_0, EXPLICIT_3 = 0x30, 0x31, 0x06, 0x04, 0x17, 0xA0, 0xA3
SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
LENGTH_OCTETS_MAX = 4
OID_OCTETS_MAX = 128  # a number of many octets takes time with the square of their count


class DerError(ValueError):
    """The bytes are not DER, or not of the expected structure."""


class Element(NamedTuple):
    """One element: its tag, what it holds, and all of its bytes."""

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements that `data` consists of, one behind the other."""
    position = 0
    while position < len(data):
        element = _element_at(data, position)
        yield element
        position += len(element.encoded)


def only(data: bytes, tag: int) -> bytes:
    """The content of the one element that `data` consists of, which has this tag."""
    found = list(elements(data))
    if len(found) != 1 or found[0].tag != tag:
        raise DerError(f"not exactly one element with the tag {tag:#04x}")
    return found[0].content


def expected(found: Iterator[Element], tag: int) -> Element:
    """The next element, which has this tag."""
    element = next(found, None)
    if element is None or element.tag != tag:
        raise DerError(f"no element with the tag {tag:#04x} where one belongs")
    return element


def oid_text(content: bytes) -> str:
    """An object identifier with dots."""
    # An octet with the high bit is not the last of its number, so this number would go on behind
    # the end.
    if not content or content[-1] & 0x80 or len(content) > OID_OCTETS_MAX:
        raise DerError("an object identifier is too long, or ends in the middle of a number")
    numbers = []
    value = 0
    for octet in content:
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(value)
            value = 0
    # The first number holds two components: 40 times the first one, which is at most 2, plus the
    # second.
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


class _Fields(NamedTuple):
    """The fields of a certificate that are read here."""

    issuer: bytes
    validity: bytes
    subject: bytes
    others: tuple[Element, ...]


def subject_of(certificate: bytes) -> bytes:
    """The subject of a certificate: the content of its Name."""
    return _fields(certificate).subject


def issuer_of(certificate: bytes) -> bytes:
    """The issuer of a certificate: the content of its Name."""
    return _fields(certificate).issuer


def alternative_names_of(certificate: bytes) -> frozenset[tuple[int, bytes]]:
    """The subject alternative names of a certificate: tag (0x82 is a DNS name, 0x87 an IP address) and content."""
    wrapped = next((each for each in _fields(certificate).others if each.tag == EXPLICIT_3), None)
    for extension in elements(only(wrapped.content, SEQUENCE)) if wrapped is not None else ():
        parts = list(elements(extension.content))  # the identifier, perhaps whether it is critical, and the value
        if len(parts) < 2 or parts[0].tag != OID or parts[-1].tag != OCTET_STRING:
            raise DerError("an extension is no identifier with a value")
        if oid_text(parts[0].content) == SUBJECT_ALTERNATIVE_NAME:
            return frozenset((name.tag, name.content) for name in elements(only(parts[-1].content, SEQUENCE)))
    return frozenset()


def valid_until(certificate: bytes) -> tuple[int, str]:
    """The last second at which a certificate is valid: since the epoch, and as text."""
    times = list(elements(_fields(certificate).validity))
    digits = times[1].content if len(times) == 2 else b""
    if len(times) == 2 and times[1].tag == UTC_TIME:
        # UTCTime has two digits of the year. RFC 5280 puts those from 50 on into the twentieth
        # century.
        digits = (b"20" if digits < b"50" else b"19") + digits
    if not re.fullmatch(rb"[0-9]{14}Z", digits):
        raise DerError("a certificate without a time of its end")
    parts = [digits[:4], *(digits[start : start + 2] for start in range(4, 14, 2))]
    year, month, day, hour, minute, second = map(int, parts)
    try:
        seconds = calendar.timegm((year, month, day, hour, minute, second))
    except ValueError as error:
        raise DerError("a certificate ends at no date") from error
    return seconds, f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"


def _fields(certificate: bytes) -> _Fields:
    signed = expected(elements(only(certificate, SEQUENCE)), SEQUENCE)
    fields = list(elements(signed.content))
    if fields and fields[0].tag == EXPLICIT_0:  # the version
        del fields[0]
    if len(fields) < 5 or {each.tag for each in fields[2:5]} != {SEQUENCE}:
        raise DerError("a certificate without a subject")
    _, _, issuer, validity, subject, *others = fields  # after serial number and algorithm
    return _Fields(issuer.content, validity.content, subject.content, tuple(others))


def _element_at(data: bytes, position: int) -> Element:
    if position + 2 > len(data):
        raise DerError("an element ends in its head")
    tag = data[position]
    length = data[position + 1]
    start = position + 2
    # No certificate has such a tag in the fields that are read here.
    if tag & 0x1F == 0x1F:
        raise DerError("a tag of several octets")
    if length >= 0x80:
        octets = length - 0x80
        if not 1 <= octets <= LENGTH_OCTETS_MAX or start + octets > len(data):
            raise DerError("an element has no usable length")
        length = int.from_bytes(data[start : start + octets])
        start += octets
        # DER has one encoding of each length. A second one could make two parsers see different
        # certificates.
        if length < 0x80 or length >> 8 * (octets - 1) == 0:
            raise DerError("a length with more octets than it needs")

    end = start + length
    if end > len(data):
        raise DerError(f"an element claims {length} bytes; there are {len(data) - start}")
    return Element(tag, data[start:end], data[position:end])
