"""Key stores and trust stores (pure): their bytes in, keys and certificates out. KIP-651; reference security.md, S.3.

Three formats: PEM, in files or in the configuration itself; PKCS12; and Java's older JKS. The first bytes tell the
last two apart, for Java opens either under the name of the other. PKCS12 needs the package `cryptography`, which is
imported only then.

Errors name the property; `prefix` of the settings is what its name begins with: "ssl.", "listener.name.outside.ssl." or
"zookeeper.ssl.". Keys and passwords are in no error and no `repr`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.security.der import DerError, alternative_names_of, issuer_of, subject_of, valid_until
from barnabas.security.principals import distinguished_name
from barnabas.security.tls import pem
from barnabas.security.tls.jks import MAGIC, JksError, read_jks, recover_key

PEM = "PEM"
JAVA_TYPES = ("JKS", "PKCS12")
PEM_ALIAS = "kafka"  # as Kafka names the one entry
DNS_NAME = 0x82


class StoreError(ValueError):
    """A store cannot be used. The message names the property."""


class Pkcs12Error(ValueError):
    """A PKCS12 store cannot be read."""


FAILURES = (JksError, DerError, pem.PemError, Pkcs12Error, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class KeyStoreSettings:
    """The properties of a key store, `<prefix>keystore.…` and `<prefix>key.password`."""

    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificate_chain: str | None = field(default=None, repr=False)
    prefix: str = "ssl."


@dataclass(frozen=True, slots=True)
class TrustStoreSettings:
    """The properties of a trust store, `<prefix>truststore.…`."""

    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    prefix: str = "ssl."


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key in PKCS#8, and the certificates in DER that belong to it, its own first."""

    alias: str
    key: pem.Block = field(repr=False)
    password: str | None = field(repr=False)  # of an encrypted key
    chain: tuple[bytes, ...]


class TlsStores(NamedTuple):
    """What a listener's stores hold; None for a store that is not configured."""

    keys: tuple[KeyEntry, ...] | None
    anchors: tuple[bytes, ...] | None  # the trusted certificates, in DER


# -- which properties go together


def key_store_problem(settings: KeyStoreSettings) -> str | None:
    """Why these properties contradict each other, in Kafka's words."""
    is_pem = settings.type == PEM
    prefix = settings.prefix
    is_given = settings.location is not None
    has_password = settings.password is not None
    if settings.key is not None:
        rules = (
            (not is_pem, f"SSL private key can be specified only for PEM, but key store type is {settings.type}."),
            (
                settings.certificate_chain is None,
                "SSL private key is specified, but certificate chain is not specified.",
            ),
            (is_given, "Both SSL key store location and separate private key are specified."),
            (
                has_password,
                "SSL key store password cannot be specified with PEM format, only key password may be specified.",
            ),
        )
        name = "keystore.key"
    else:
        rules = (
            (
                settings.certificate_chain is not None,
                "SSL certificate chain is specified, but private key is not specified",
            ),
            (
                is_pem and is_given and has_password,
                "SSL key store password cannot be specified with PEM format, only key password may be specified",
            ),
            (not is_given and has_password, "SSL key store is not specified, but key store password is specified."),
            (
                not is_pem and is_given and not has_password,
                "SSL key store is specified, but key store password is not specified.",
            ),
        )
        name = "keystore.certificate.chain" if settings.certificate_chain is not None else "keystore.location"

    return next((f"{prefix}{name}: {why}" for broken, why in rules if broken), _type_problem(settings, "key"))


def trust_store_problem(settings: TrustStoreSettings) -> str | None:
    """Why these properties contradict each other, in Kafka's words."""
    is_pem = settings.type == PEM
    prefix = settings.prefix
    is_given = settings.location is not None
    has_password = settings.password is not None
    no_password = "SSL trust store password cannot be specified for PEM format."
    if settings.certificates is not None:
        name = "truststore.certificates"
        pem_only = f"SSL trust store certs can be specified only for PEM, but trust store type is {settings.type}."
        rules = [
            (not is_pem, pem_only),
            (is_given, "Both SSL trust store location and separate trust certificates are specified."),
            (has_password, no_password),
        ]
    else:
        name = "truststore.location"
        missing = "SSL trust store is not specified, but trust store password is specified."
        rules = [(has_password and is_pem and is_given, no_password), (not is_given and has_password, missing)]

    return next((f"{prefix}{name}: {why}" for broken, why in rules if broken), _type_problem(settings, "trust"))


def _type_problem(settings: KeyStoreSettings | TrustStoreSettings, kind: str) -> str | None:
    # Java ignores the case of its types' names; Kafka compares that of its own type, PEM, exactly.
    if settings.location is None or settings.type == PEM or settings.type.upper() in JAVA_TYPES:
        return None
    served = ", ".join((PEM, *JAVA_TYPES))
    return f"{settings.prefix}{kind}store.type: stores of type {settings.type} are not served: {served} are"


# -- reading


def read_key_store(settings: KeyStoreSettings, data: bytes) -> tuple[KeyEntry, ...]:
    """The keys of the store whose file holds `data`; without a location the properties are the store."""
    where = _where("key", settings) if settings.location is not None else f"{settings.prefix}keystore.key"
    try:
        entries = tuple(entry for entry in _key_entries(settings, data) if entry.chain)
        for entry in entries:  # a reload compares these
            distinguished_name(entry.chain[0])
            alternative_names_of(entry.chain[0])
    except FAILURES as error:
        raise StoreError(f"{where}: {error}") from error
    if not entries:
        raise StoreError(f"{where}: it holds no private key with a certificate")
    return entries


def _key_entries(settings: KeyStoreSettings, data: bytes) -> tuple[KeyEntry, ...]:
    if settings.key is not None and settings.certificate_chain is not None:
        key_blocks = pem.read_blocks(settings.key)
        chain_blocks = pem.read_blocks(settings.certificate_chain)
        return (_pem_entry(settings, key_blocks, chain_blocks),)

    if settings.type == PEM:
        blocks = pem.read_blocks(data.decode())
        return (_pem_entry(settings, blocks, blocks),)
    password = settings.password or ""
    if not data.startswith(MAGIC):
        return _pkcs12_keys(_read_pkcs12(data, password))
    key_password = password if settings.key_password is None else settings.key_password
    return tuple(
        KeyEntry(each.alias, pem.Block(pem.PRIVATE_KEY, recover_key(each.protected, key_password)), None, each.chain)
        for each in read_jks(data, password).keys
    )


def read_trust_store(settings: TrustStoreSettings, data: bytes) -> tuple[bytes, ...]:
    """The trusted certificates of the store whose file holds `data`, or of the property."""
    is_inline = settings.certificates is not None
    where = f"{settings.prefix}truststore.certificates" if is_inline else _where("trust", settings)
    try:
        anchors = _anchors(settings, data)
    except FAILURES as error:
        raise StoreError(f"{where}: {error}") from error
    if not anchors:
        raise StoreError(f"{where}: it holds no trusted certificate")
    return tuple(dict.fromkeys(anchors))


def _anchors(settings: TrustStoreSettings, data: bytes) -> tuple[bytes, ...]:
    if settings.certificates is not None:
        return pem.read_certificates(pem.read_blocks(settings.certificates))
    if settings.type == PEM:
        return pem.read_certificates(pem.read_blocks(data.decode()))
    if not data.startswith(MAGIC):
        return _pkcs12_anchors(_read_pkcs12(data, settings.password))
    store = read_jks(data, settings.password)
    # The certificate of a key is trusted, not those of its issuers, as in Java.
    return (*store.certificates, *(key.chain[0] for key in store.keys if key.chain))


def _where(kind: str, settings: KeyStoreSettings | TrustStoreSettings) -> str:
    loaded = (
        f"PEM SSL keystore {settings.location}"
        if settings.type == PEM
        else (f"SSL keystore {settings.location} of type {settings.type}")
    )
    return f"{settings.prefix}{kind}store.location: Failed to load {loaded}"


def _pem_entry(
    settings: KeyStoreSettings, key_blocks: Sequence[pem.Block], chain_blocks: Sequence[pem.Block]
) -> KeyEntry:
    key = pem.read_private_key(key_blocks)
    password = settings.key_password
    is_encrypted = key.label == pem.ENCRYPTED_PRIVATE_KEY
    if is_encrypted and password is None:
        raise pem.PemError(f"the key is encrypted, and {settings.prefix}key.password is not set")
    if not is_encrypted and password is not None:
        raise pem.PemError(f"{settings.prefix}key.password is set, and the key is not encrypted")
    return KeyEntry(PEM_ALIAS, key, password, pem.read_certificates(chain_blocks))


class _Pkcs12(NamedTuple):
    """A PKCS12 store: one key, if it has any, and certificates."""

    alias: str
    key: bytes | None
    certificate: bytes | None
    others: tuple[bytes, ...]

    def __repr__(self) -> str:
        return "_Pkcs12(…)"  # a traceback shows no key


def _read_pkcs12(data: bytes, password: str | None) -> _Pkcs12:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError as error:
        raise Pkcs12Error("PKCS12 needs the package cryptography: pip install cryptography") from error

    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        # Neither the library nor the format tells a wrong password from a damaged store.
        raise Pkcs12Error(f"the password is wrong, or it is no usable PKCS12 or JKS store: {error}") from error

    own = store.cert
    key = store.key
    return _Pkcs12(
        (own.friendly_name or b"").decode("utf-8", "replace") if own is not None else "",
        key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) if key is not None else None,
        own.certificate.public_bytes(Encoding.DER) if own is not None else None,
        tuple(each.certificate.public_bytes(Encoding.DER) for each in store.additional_certs),
    )


def _pkcs12_keys(store: _Pkcs12) -> tuple[KeyEntry, ...]:
    if store.key is None or store.certificate is None:
        return ()
    chain = chain_of(store.certificate, store.others)
    return (KeyEntry(store.alias, pem.Block(pem.PRIVATE_KEY, store.key), None, chain),)


def _pkcs12_anchors(store: _Pkcs12) -> tuple[bytes, ...]:
    if store.certificate is None:
        return store.others
    # The certificate of a key is trusted, not those of its issuers, as in Java.
    chain = chain_of(store.certificate, store.others)
    return (store.certificate, *(each for each in store.others if each not in chain))


def chain_of(certificate: bytes, others: Iterable[bytes]) -> tuple[bytes, ...]:
    """The certificate and those of its issuers, as far as they are among the others."""
    by_subject = {subject_of(each): each for each in others}
    chain = [certificate]
    while (issuer := by_subject.pop(issuer_of(chain[-1]), None)) is not None and issuer != chain[-1]:
        chain.append(issuer)
    return tuple(chain)


def expired(certificates: Iterable[bytes], now_ms: int) -> list[str]:
    """For each certificate that is not valid any more, a text with its name and the time of its end."""
    ends = ((valid_until(each), each) for each in certificates)
    return [
        f"the certificate of {distinguished_name(each)!r} expired at {text}"
        for (seconds, text), each in ends
        if seconds * 1000 < now_ms
    ]


# -- a store that replaces another


def reload_problem(old: TlsStores, new: TlsStores, *, allow_dn_changes: bool, allow_san_changes: bool) -> str | None:
    """Why these stores may not replace the old ones of a listener, in Kafka's words; reference security.md, S.6."""
    if (old.keys is None) != (new.keys is None):
        if old.keys is None:
            return "Cannot add SSL keystore to an existing listener for which no keystore was configured."
        return "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."

    if old.anchors is None and new.anchors is not None:
        return "Cannot add SSL truststore to an existing listener for which no truststore was configured."
    was = old.keys or ()
    will = new.keys or ()
    if len(was) != len(will):
        return (
            f"Keystore entries do not match, existing store contains {len(was)} entries, new store contains"
            f" {len(will)} entries"
        )

    for before, after in zip(was, will, strict=True):
        names = distinguished_name(before.chain[0]), distinguished_name(after.chain[0])
        if not allow_dn_changes and _canonical(names[0]) != _canonical(names[1]):
            return (
                f"Keystore DistinguishedName does not match:  existing={{alias={before.alias}, DN={names[0]}}},"
                f" new={{alias={after.alias}, DN={names[1]}}}"
            )
        alternatives = alternative_names_of(before.chain[0]), alternative_names_of(after.chain[0])
        if not allow_san_changes and not alternatives[0] <= alternatives[1]:
            shown = [_shown(each) for each in alternatives]
            return (
                f"Keystore SubjectAltNames do not match:  existing={{alias={before.alias}, SAN={shown[0]}}},"
                f" new={{alias={after.alias}, SAN={shown[1]}}}"
            )

    return None


def _canonical(name: str) -> str:
    """Names are equal, as in X500Principal, whatever their case and the number of their blanks."""
    return " ".join(name.lower().split())


def _shown(names: Iterable[tuple[int, bytes]]) -> str:
    return str(sorted(name.decode("ascii", "replace") if tag == DNS_NAME else name.hex() for tag, name in names))
