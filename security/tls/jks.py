"""Java's own key store format, JKS (pure): reference security.md, S.4.

    magic FEEDFEED, version, number of entries, entries, SHA-1 of (password, "Mighty Aphrodite", all before)
    entry 1, a key:           alias, time, protected key, certificate chain
    entry 2, a certificate:   alias, time, certificate

The protection of keys is Sun's: the key XOR a chain of SHA-1 hashes that begins with the password and a salt. It is
weak; only the file's mode protects a key. keytool writes PKCS12 since Java 9, also into files named `.jks`, so the
first bytes of a store show its format.
"""

import hashlib
import hmac
from typing import NamedTuple

from barnabas.security.der import OCTET_STRING, OID, SEQUENCE, DerError, elements, expected, oid_text, only

MAGIC = b"\xfe\xed\xfe\xed"
KEY, CERTIFICATE = 1, 2
SIGNATURE_SALT = b"Mighty Aphrodite"
PROTECTION_OID = "1.3.6.1.4.1.42.2.17.1.1"
DIGEST_BYTES = 20


class JksError(ValueError):
    """The store is damaged, or the password is not its own."""


class JksKey(NamedTuple):
    """A key under its alias: the protected form, and the certificates of its chain in DER."""

    alias: str
    protected: bytes
    chain: tuple[bytes, ...]


class JksStore(NamedTuple):
    """The entries of a store, each kind in the order of the file."""

    keys: tuple[JksKey, ...]
    certificates: tuple[bytes, ...]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """The entries of a store. Without a password its integrity is not checked, as in Java."""
    if password is not None:
        _check_digest(data, password)
    reader = _Reader(data[: -DIGEST_BYTES or None])
    if reader.take(4) != MAGIC:
        raise JksError("this is no JKS store")
    version = reader.number()
    if version not in (1, 2):
        raise JksError(f"version {version} of JKS is unknown")
    keys = []
    certificates = []
    for _ in range(reader.number()):
        kind = reader.number()
        alias = reader.text()
        reader.take(8)  # when it was made
        if kind == KEY:
            protected = reader.counted()
            chain = tuple(reader.certificate(version) for _ in range(reader.number()))
            keys.append(JksKey(alias, protected, chain))
        elif kind == CERTIFICATE:
            certificates.append(reader.certificate(version))
        else:
            raise JksError(f"an entry of the unknown kind {kind}")

    reader.end()
    return JksStore(tuple(keys), tuple(certificates))


def recover_key(protected: bytes, password: str) -> bytes:
    """The key, as PKCS#8; JksError when the password is wrong."""
    try:
        parts = elements(only(protected, SEQUENCE))
        algorithm = expected(elements(expected(parts, SEQUENCE).content), OID)
        octets = expected(parts, OCTET_STRING).content
        protection = oid_text(algorithm.content)
    except DerError as error:
        raise JksError(f"a key is damaged: {error}") from error

    if protection != PROTECTION_OID or len(octets) < 2 * DIGEST_BYTES:
        raise JksError("a key is protected in an unknown way")
    encoded = password.encode("utf-16-be")
    salt = octets[:DIGEST_BYTES]
    cipher = octets[DIGEST_BYTES:-DIGEST_BYTES]
    check = octets[-DIGEST_BYTES:]
    stream = bytearray()
    last = salt
    while len(stream) < len(cipher):
        last = hashlib.sha1(encoded + last).digest()
        stream += last
    plain = bytes(each ^ mask for each, mask in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(encoded + plain).digest(), check):
        raise JksError("the password of the key is wrong")
    return plain


def _check_digest(data: bytes, password: str) -> None:
    digest = hashlib.sha1(password.encode("utf-16-be") + SIGNATURE_SALT + data[:-DIGEST_BYTES]).digest()
    if not hmac.compare_digest(digest, data[-DIGEST_BYTES:]):
        raise JksError("the password of the store is wrong, or the store was damaged")


class _Reader:
    """Reads what java.io.DataOutputStream wrote; every length is checked against what is there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        start = self._position
        if start + size > len(self._data):
            raise JksError("the store ends in the middle of an entry")
        self._position += size
        return self._data[start : start + size]

    def number(self) -> int:
        return int.from_bytes(self.take(4))

    def counted(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        # Java's own UTF-8 differs for U+0000 and beyond U+FFFF, which does no harm: an alias is
        # only shown.
        return self.take(int.from_bytes(self.take(2))).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        kind = "X.509" if version == 1 else self.text()
        if kind not in ("X.509", "X509"):
            raise JksError(f"a certificate of the unknown type {kind!r}")
        return self.counted()

    def end(self) -> None:
        if self._position != len(self._data):
            raise JksError("more bytes than entries")
