"""PEM as Kafka reads and OpenSSL takes it (pure): base64 between BEGIN and END lines (RFC 7468, KIP-651).

As in Kafka, what stands around the blocks and headers in them are ignored, and no line ends are needed: a value in a
properties file or an environment variable may be one line.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import NamedTuple

CERTIFICATE, PRIVATE_KEY, ENCRYPTED_PRIVATE_KEY = "CERTIFICATE", "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"
LINE_CHARACTERS = 64
_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_HEADER = re.compile(r"\s*[^\r\n:]{1,100}:[^\r\n]*[\r\n]+")


class PemError(ValueError):
    """The text holds no usable block."""


class Block(NamedTuple):
    """One block: its label and its DER."""

    label: str
    der: bytes


def read_blocks(text: str) -> list[Block]:
    """All blocks of a text, in order; PemError when one has no end or is no base64."""
    blocks = []
    position = 0
    while begin := _BEGIN.search(text, position):
        label = begin[1]
        end = text.find(f"-----END {label}-----", begin.end())
        if end < 0:
            raise PemError(f"a block BEGIN {label} without an END {label}")
        start = begin.end()
        while header := _HEADER.match(text, start, end):
            start = header.end()
        try:
            der = base64.b64decode("".join(text[start:end].split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise PemError(f"a block {label} is no base64") from error
        blocks.append(Block(label, der))
        position = end

    return blocks


def write_block(block: Block) -> bytes:
    """One block as text."""
    encoded = base64.b64encode(block.der).decode()
    lines = [encoded[start : start + LINE_CHARACTERS] for start in range(0, len(encoded), LINE_CHARACTERS)]
    return "\n".join([f"-----BEGIN {block.label}-----", *lines, f"-----END {block.label}-----", ""]).encode()


def certificates_as_pem(certificates: Iterable[bytes]) -> bytes:
    """Certificates in DER as one text."""
    return b"".join(write_block(Block(CERTIFICATE, each)) for each in certificates)


def read_certificates(blocks: Iterable[Block]) -> tuple[bytes, ...]:
    """The certificates among these blocks; PemError when there is none."""
    # OpenSSL's "TRUSTED CERTIFICATE" is left out: it has more bytes behind the certificate, so
    # loading it would fail.
    found = tuple(block.der for block in blocks if block.label in (CERTIFICATE, "X509 CERTIFICATE"))
    if not found:
        raise PemError("At least one certificate expected, but none found")
    return found


def read_private_key(blocks: Iterable[Block]) -> Block:
    """The one private key among these blocks, in PKCS#8."""
    found = [block for block in blocks if block.label.endswith(PRIVATE_KEY)]
    if not found:
        raise PemError("Private key not provided")
    if len(found) != 1:
        raise PemError(f"Expected one private key, but found {len(found)}")
    if found[0].label not in (PRIVATE_KEY, ENCRYPTED_PRIVATE_KEY):
        raise PemError(
            f"a block {found[0].label} is not in PKCS#8, which Kafka needs: convert it with openssl pkcs8 -topk8"
        )
    return found[0]
