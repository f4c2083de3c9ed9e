"""Authorities, certificates and stores for tests, made when they are needed.

`jks` writes Java's format, which no library here writes; `test_stores_of_tools.py` holds it beside keytool's.
"""

import hashlib
import os
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, pkcs12

from barnabas.security.tls.ciphers import choose
from barnabas.security.tls.pem import read_blocks
from tests.security.der_writing import oid, tlv

BOTH_VERSIONS = choose("TLSv1.3", ("TLSv1.2", "TLSv1.3"), ())


@cache
def authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name, key_type=trustme.KeyType.ECDSA)


def leaf(name="castle") -> trustme.LeafCert:
    """A certificate of that authority for this machine, always the same."""
    return _leaf(name)


@cache
def _leaf(name: str) -> trustme.LeafCert:
    return authority(name).issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)


def authority_pem(name="castle") -> str:
    return authority(name).cert_pem.bytes().decode()


def der_of(pem: str) -> list[bytes]:
    return [block.der for block in read_blocks(pem) if block.label == "CERTIFICATE"]


def key_der(leaf_: trustme.LeafCert) -> bytes:
    key = serialization.load_pem_private_key(leaf_.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, serialization.NoEncryption())


def key_pem(leaf_: trustme.LeafCert, password: str | None = None) -> str:
    key = serialization.load_pem_private_key(leaf_.private_key_pem.bytes(), None)
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def chain_pem(leaf_: trustme.LeafCert) -> str:
    return "".join(each.bytes().decode() for each in leaf_.cert_chain_pems)


def pkcs12_of(leaf_: trustme.LeafCert, password: str, name="castle") -> bytes:
    key = serialization.load_pem_private_key(leaf_.private_key_pem.bytes(), None)
    certificates = [x509.load_pem_x509_certificate(each.bytes()) for each in leaf_.cert_chain_pems]
    root = x509.load_pem_x509_certificate(authority(name).cert_pem.bytes())
    # The issuers in the wrong order: readers follow the names.
    others = [root, *certificates[1:]]
    encryption = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(b"castle", key, certificates[0], others, encryption)


def pkcs12_of_certificates(password: str, *pems: str) -> bytes:
    certificates = [pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(each.encode()), b"ca") for each in pems]
    encryption = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(None, None, None, certificates, encryption)


def jks(password: str, *entries: bytes, version=2) -> bytes:
    """A store of Java's older format."""
    body = b"\xfe\xed\xfe\xed" + struct.pack(">II", version, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _jks_certificate(der: bytes, version: int) -> bytes:
    return (struct.pack(">H", 5) + b"X.509" if version == 2 else b"") + struct.pack(">I", len(der)) + der


def jks_trusted(alias: str, der: bytes, version=2) -> bytes:
    head = struct.pack(">IH", 2, len(alias)) + alias.encode() + struct.pack(">Q", 0)
    return head + _jks_certificate(der, version)


def jks_key(alias: str, password: str, plain: bytes, chain: list[bytes], version=2) -> bytes:
    salt, encoded = os.urandom(20), password.encode("utf-16-be")
    stream, last = b"", salt
    while len(stream) < len(plain):
        last = hashlib.sha1(encoded + last).digest()
        stream += last
    cipher = bytes(each ^ mask for each, mask in zip(plain, stream, strict=False))
    octets = salt + cipher + hashlib.sha1(encoded + plain).digest()
    protected = tlv(0x30, tlv(0x30, oid("1.3.6.1.4.1.42.2.17.1.1") + b"\x05\0") + tlv(0x04, octets))
    head = struct.pack(">IH", 1, len(alias)) + alias.encode() + struct.pack(">Q", 0)
    certificates = b"".join(_jks_certificate(each, version) for each in chain)
    return head + struct.pack(">I", len(protected)) + protected + struct.pack(">I", len(chain)) + certificates


def self_signed(key, names: list[x509.NameAttribute], *hosts: str, ended=False) -> str:
    """A certificate that signs itself, as PEM."""
    name, now = x509.Name(names), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=20))
        .not_valid_after(now + timedelta(days=-10 if ended else 10))
    )
    if hosts:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(each) for each in hosts])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


def chain_of_three(key) -> list[x509.Certificate]:
    """A certificate for the key, that of its authority, and that of the authority's authority."""
    keys = [key, new_key("EC P-256"), new_key("EC P-256")]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in ("leaf", "middle", "root")]
    now, chain = datetime.now(UTC), []
    for number, own in enumerate(keys):
        above = min(number + 1, 2)
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[number])
            .issuer_name(names[above])
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=number > 0, path_length=None), critical=True)
        )
        chain.append(builder.sign(keys[above], SHA256()))
    return chain


def new_key(kind: str):
    if kind.startswith("RSA"):
        return rsa.generate_private_key(65537, int(kind.removeprefix("RSA ")))
    return ec.generate_private_key({"EC P-256": ec.SECP256R1(), "EC P-384": ec.SECP384R1()}[kind])


def pem_of_key(key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def written(folder: Path, name: str, content: bytes | str) -> str:
    """The path of a new file."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)
