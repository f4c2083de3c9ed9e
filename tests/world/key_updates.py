"""A writer of TLS 1.3 records that Python's ssl cannot send: key updates (RFC 8446, 4.6.3 and 7)."""

import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SUITE = "TLS_AES_256_GCM_SHA384"
HANDSHAKE, APPLICATION_DATA = b"\x16", b"\x17"
KEY_UPDATE = b"\x18\0\0\x01\0"  # the peer need not answer with its own


class RecordWriter:
    """Encrypts records as the client whose `context` wrote its secrets to `key_log`, from its first record on."""

    def __init__(self, tls: ssl.SSLObject, key_log: Path) -> None:
        assert tls.cipher()[0] == SUITE
        lines = (line.split() for line in key_log.read_text().splitlines())
        self._become(next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"))

    def data(self, data: bytes) -> bytes:
        return self._record(data + APPLICATION_DATA)

    def key_update(self) -> bytes:
        record = self._record(KEY_UPDATE + HANDSHAKE)
        self._become(_expanded(self._secret, "traffic upd", 48))
        return record

    def _become(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self._key, self._iv = AESGCM(_expanded(secret, "key", 32)), _expanded(secret, "iv", 12)

    def _record(self, inner: bytes) -> bytes:
        head = b"\x17\x03\x03" + (len(inner) + 16).to_bytes(2)
        nonce = int.from_bytes(self._iv) ^ self._number
        self._number += 1
        return head + self._key.encrypt(nonce.to_bytes(12), inner, head)


def _expanded(secret: bytes, label: str, length: int) -> bytes:
    name = b"tls13 " + label.encode()
    info = length.to_bytes(2) + bytes([len(name)]) + name + b"\0"
    return HKDFExpand(SHA384(), length, info).derive(secret)
