"""An authority and a certificate of a broker, made for one test run (edge)."""

import datetime
import ipaddress
from typing import NamedTuple

from barnabas.testing.errors import LocalBrokerError

DAYS = 3650  # a test may advance the clocks of clients, too


class Certificates(NamedTuple):
    """All in PEM; the key in PKCS#8, the only form that Java reads."""

    authority: str
    chain: str
    key: str


def make_certificates(*hosts: str) -> Certificates:
    """A new authority, and a certificate for these names and addresses. LocalBrokerError without `cryptography`."""
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
    key = ec.generate_private_key(ec.SECP256R1())

    def signed(subject: str, public: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            issuer_name=named("Barnabas test authority"),
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
        return builder.sign(authority_key, hashes.SHA256())

    authority = signed(
        "Barnabas test authority", authority_key.public_key(), x509.BasicConstraints(ca=True, path_length=0)
    )
    addresses = [host for host in hosts if host[0].isdigit()]
    names = x509.SubjectAlternativeName(
        [
            *(x509.IPAddress(ipaddress.ip_address(host)) for host in addresses),
            *(x509.DNSName(host) for host in hosts if host not in addresses),
        ]
    )
    certificate = signed("broker", key.public_key(), x509.BasicConstraints(ca=False, path_length=None), names)
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificates(
        authority.public_bytes(encoding).decode(), certificate.public_bytes(encoding).decode(), private.decode()
    )
