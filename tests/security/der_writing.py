"""Writes DER for tests: names and certificates with contents that no tool makes."""

KEYWORD_OIDS = {"CN": "2.5.4.3", "C": "2.5.4.6", "L": "2.5.4.7", "ST": "2.5.4.8", "O": "2.5.4.10", "OU": "2.5.4.11"}
UTF8, PRINTABLE = 0x0C, 0x13


def tlv(tag: int, content: bytes) -> bytes:
    """One element."""
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes([tag, 0x80 + len(octets)]) + octets + content


def oid(text: str) -> bytes:
    first, second, *others = map(int, text.split("."))
    encoded = b""
    for number in (first * 40 + second, *others):
        octets = [number & 0x7F]
        while number := number >> 7:
            octets.insert(0, number & 0x7F | 0x80)
        encoded += bytes(octets)
    return tlv(0x06, encoded)


def name(*relative: list[tuple[str, int, bytes]]) -> bytes:
    """A Name: for each relative name its attributes (keyword or identifier, tag, value)."""
    return tlv(
        0x30,
        b"".join(
            tlv(
                0x31,
                b"".join(
                    tlv(0x30, oid(KEYWORD_OIDS.get(kind, kind)) + tlv(tag, value)) for kind, tag, value in attributes
                ),
            )
            for attributes in relative
        ),
    )


def certificate(subject: bytes, *, version=True, alternative_names: bytes | None = None) -> bytes:
    """A certificate with this subject; all other fields are empty, for only names are read."""
    extensions = b""
    if alternative_names is not None:
        key_usage = tlv(0x30, oid("2.5.29.15") + tlv(0x01, b"\xff") + tlv(0x04, b"\x03\x02\x05\xa0"))
        alternative = tlv(0x30, oid("2.5.29.17") + tlv(0x04, tlv(0x30, alternative_names)))
        extensions = tlv(0xA3, tlv(0x30, key_usage + alternative))
    head = tlv(0xA0, tlv(0x02, b"\x02")) if version else b""
    serial, algorithm, issuer, validity, key = (
        tlv(0x02, b"\x01"),
        tlv(0x30, b""),
        name(),
        tlv(0x30, b""),
        tlv(0x30, b""),
    )
    signed = tlv(0x30, head + serial + algorithm + issuer + validity + subject + key + extensions)
    return tlv(0x30, signed + tlv(0x30, b"") + tlv(0x03, b"\0"))
