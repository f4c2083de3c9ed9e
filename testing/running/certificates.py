"""An authority, and certificates of brokers and of a client, made for one test run (edge)."""

import datetime
import ipaddress
from typing import NamedTuple

from barnabas.testing.errors import LocalBrokerError

AUTHORITY = "Barnabas test authority"
DAYS = 3650  # a test may advance the clocks of clients, too


class Issued(NamedTuple):
    """A certificate and its key, both in PEM; the key in PKCS#8, the only form that Java reads."""

    chain: str
    key: str


class Certificates(NamedTuple):
    """The certificate of the authority in PEM, and what it has issued; `client` only if there is a client's name."""

    authority: str
    broker: Issued
    client: Issued | None


def make_certificates(*hosts: str, client_name: str | None = None) -> Certificates:
    """A new authority, a certificate for these names and addresses, and one with CN=`client_name`.

    LocalBrokerError without `cryptography`.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise LocalBrokerError("security: certificates need the package cryptography (barnabas[security])") from error

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    encoding = serialization.Encoding.PEM

    def signed(subject: str, public: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType) -> str:
        builder = x509.CertificateBuilder(
            issuer_name=named(AUTHORITY),
            subject_name=named(subject),
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=began,
            not_valid_after=began + datetime.timedelta(days=DAYS),
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        for extension in (*extensions, identifier, issuer):
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(encoding).decode()

    def issued(subject: str, *extensions: x509.ExtensionType) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        chain = signed(subject, key.public_key(), x509.BasicConstraints(ca=False, path_length=None), *extensions)
        private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Issued(chain, private.decode())

    addresses = [host for host in hosts if host[0].isdigit()]
    names = x509.SubjectAlternativeName(
        [
            *(x509.IPAddress(ipaddress.ip_address(host)) for host in addresses),
            *(x509.DNSName(host) for host in hosts if host not in addresses),
        ]
    )
    return Certificates(
        authority=signed(AUTHORITY, authority_key.public_key(), x509.BasicConstraints(ca=True, path_length=0)),
        broker=issued("broker", names),
        client=None if client_name is None else issued(client_name),
    )
