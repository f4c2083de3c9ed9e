"""Key stores and trust stores: the three formats, what contradicts itself, and what a reload may replace."""

import time

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.tls.stores import (
    KeyStoreSettings,
    StoreError,
    TlsStores,
    TrustStoreSettings,
    expired,
    key_store_problem,
    read_key_store,
    read_trust_store,
    reload_problem,
    trust_store_problem,
)
from tests.security.key_material import (
    authority_pem,
    chain_pem,
    der_of,
    jks,
    jks_key,
    jks_trusted,
    key_der,
    key_pem,
    leaf,
    new_key,
    pem_of_key,
    pkcs12_of,
    pkcs12_of_certificates,
    self_signed,
)

PASSWORD = "sortini"
ROOT = der_of(authority_pem())[0]
LEAF = der_of(chain_pem(leaf()))[0]
OUTSIDE = "listener.name.outside.ssl."


def key_store(**values) -> KeyStoreSettings:
    return KeyStoreSettings(**{"location": "castle.jks", "password": PASSWORD, "prefix": OUTSIDE} | values)


def trust_store(**values) -> TrustStoreSettings:
    return TrustStoreSettings(**{"location": "castle.jks", "password": PASSWORD, "prefix": OUTSIDE} | values)


def pem_store(**values) -> KeyStoreSettings:
    return key_store(**{"type": "PEM", "location": "castle.pem", "password": None} | values)


def refusal_of(settings, data: bytes | str) -> str:
    read = read_key_store if isinstance(settings, KeyStoreSettings) else read_trust_store
    with pytest.raises(StoreError) as refused:
        read(settings, data.encode() if isinstance(data, str) else data)
    return str(refused.value)


# -- what is read


def test_a_pem_file_has_key_and_chain_in_any_order_and_text_around():
    text = f"A certificate:\n{chain_pem(leaf())}{authority_pem()}and its key\n{key_pem(leaf())}."
    (entry,) = read_key_store(pem_store(), text.encode())
    assert (entry.key.der, entry.chain, entry.password) == (key_der(leaf()), (LEAF, ROOT), None)


def test_pem_in_properties_needs_no_lines_and_may_have_headers():
    key = key_pem(leaf()).replace("\n", " ").replace("KEY----- ", "KEY----- \nProc: a\nType: b\n", 1)
    settings = KeyStoreSettings(type="PEM", key=key, certificate_chain=chain_pem(leaf()).replace("\n", " "))
    (entry,) = read_key_store(settings, b"")
    assert (entry.key.der, entry.chain) == (key_der(leaf()), (LEAF,))
    trusted = TrustStoreSettings(type="PEM", certificates=authority_pem() * 2 + chain_pem(leaf()))
    assert read_trust_store(trusted, b"") == (ROOT, LEAF)


def test_an_encrypted_key_goes_to_openssl_with_its_password():
    text = key_pem(leaf(), PASSWORD) + chain_pem(leaf())
    (entry,) = read_key_store(pem_store(key_password=PASSWORD), text.encode())
    assert (entry.key.label, entry.password) == ("ENCRYPTED PRIVATE KEY", PASSWORD)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "pkcs12"])
def test_the_first_bytes_say_what_a_store_of_java_is(kind):
    """keytool writes PKCS12 also into files that are called JKS."""
    java = jks(PASSWORD, jks_key("castle", PASSWORD, key_der(leaf()), [LEAF, ROOT]))
    for data in (java, pkcs12_of(leaf(), PASSWORD)):
        (entry,) = read_key_store(key_store(type=kind), data)
        assert (entry.alias, entry.key.der, entry.chain) == ("castle", key_der(leaf()), (LEAF, ROOT))


@pytest.mark.parametrize("version", [1, 2])
def test_a_jks_key_may_have_a_password_of_its_own(version):
    entries = (
        jks_trusted("other", ROOT, version),
        jks_key("castle", "bürgel😀", key_der(leaf()), [LEAF], version),
        jks_key("second", "bürgel😀", key_der(leaf()), [LEAF], version),
    )
    data = jks(PASSWORD, *entries, version=version)
    found = read_key_store(key_store(key_password="bürgel😀"), data)
    assert [(entry.alias, entry.key.der) for entry in found] == [
        ("castle", key_der(leaf())),
        ("second", key_der(leaf())),
    ]
    assert "the password of the key is wrong" in refusal_of(key_store(), data)


def test_of_a_key_in_a_trust_store_only_its_own_certificate_is_trusted():
    """As in Java. A broker that trusts its key store must not trust everyone whom its authority knows."""
    other = der_of(authority_pem("village"))[0]
    java = jks(PASSWORD, jks_key("castle", PASSWORD, key_der(leaf()), [LEAF, ROOT]), jks_trusted("village", other))
    assert read_trust_store(trust_store(), java) == (other, LEAF)
    assert read_trust_store(trust_store(), pkcs12_of(leaf(), PASSWORD)) == (LEAF,)


def test_stores_of_certificates_alone_are_trusted():
    data = pkcs12_of_certificates(PASSWORD, authority_pem(), authority_pem("village"))
    assert read_trust_store(trust_store(), data) == (ROOT, der_of(authority_pem("village"))[0])
    assert read_trust_store(trust_store(password=None), jks("unknown", jks_trusted("ca", ROOT))) == (ROOT,)


# -- what is refused


@pytest.mark.parametrize(
    ("settings", "data", "why"),
    [
        (pem_store(), "", "Private key not provided"),
        (pem_store(), b"\xff\xfe", "can't decode byte 0xff"),
        (pem_store(), key_pem(leaf()), "At least one certificate expected, but none found"),
        (pem_store(), key_pem(leaf()) * 2 + chain_pem(leaf()), "Expected one private key, but found 2"),
        (pem_store(), leaf().private_key_pem.bytes() + chain_pem(leaf()).encode(), "is not in PKCS#8"),
        (pem_store(), "-----BEGIN PRIVATE KEY-----\nAAAA", "BEGIN PRIVATE KEY without an END"),
        (pem_store(), "-----BEGIN PRIVATE KEY-----\nA*A-----END PRIVATE KEY-----", "is no base64"),
        (pem_store(), key_pem(leaf(), PASSWORD) + chain_pem(leaf()), f"and {OUTSIDE}key.password is not set"),
        (pem_store(key_password="x"), key_pem(leaf()) + chain_pem(leaf()), "and the key is not encrypted"),
        (key_store(), jks("other"), "the password of the store is wrong, or the store was damaged"),
        (key_store(), jks(PASSWORD), "it holds no private key with a certificate"),
        (key_store(), jks(PASSWORD, jks_trusted("ca", ROOT)), "it holds no private key with a certificate"),
        (key_store(), jks(PASSWORD, version=3), "version 3 of JKS is unknown"),
        (key_store(), jks(PASSWORD, jks_key("a", PASSWORD, b"x", [b"x"])), "an element ends in its head"),
        (key_store(), pkcs12_of(leaf(), "other"), "the password is wrong, or it is no usable PKCS12 or JKS store"),
        (key_store(), pkcs12_of_certificates(PASSWORD, authority_pem()), "no private key with a certificate"),
        (key_store(), b"\x30\x03\x02\x01\x03", "it is no usable PKCS12"),
        (trust_store(), jks(PASSWORD), "it holds no trusted certificate"),
        (trust_store(type="PEM"), key_pem(leaf()), "At least one certificate expected"),
        (trust_store(password=None), pkcs12_of_certificates(PASSWORD, authority_pem()), "the password is wrong"),
    ],
)
def test_a_store_that_cannot_be_used_is_named_with_its_property(settings, data, why):
    message = refusal_of(settings, data)
    kind = "key" if isinstance(settings, KeyStoreSettings) else "trust"
    assert message.startswith(f"{OUTSIDE}{kind}store.location: Failed to load ")
    assert settings.location in message
    assert why in message
    assert PASSWORD not in message


def test_a_store_in_properties_is_refused_with_their_names():
    pem = KeyStoreSettings(type="PEM", key="x", certificate_chain=chain_pem(leaf()), prefix=OUTSIDE)
    assert refusal_of(pem, b"") == f"{OUTSIDE}keystore.key: Private key not provided"
    trusted = TrustStoreSettings(type="PEM", certificates="x", prefix=OUTSIDE)
    assert refusal_of(trusted, b"").startswith(f"{OUTSIDE}truststore.certificates: At least one certificate")


def test_a_jks_store_with_a_wrong_byte_or_cut_anywhere_is_refused():
    """Without a password, so that the digest does not find it first."""
    entries = jks_key("castle", PASSWORD, key_der(leaf()), [LEAF]), jks_trusted("ca", ROOT)
    data = jks(PASSWORD, *entries)
    for length in range(4, len(data) - 20, 7):
        with pytest.raises(StoreError):
            read_trust_store(trust_store(password=None), data[:length] + bytes(20))
        with pytest.raises(StoreError):
            read_key_store(key_store(), data[:length])


@given(st.integers(0, 2000), st.integers(0, 255))
def test_no_damage_of_a_store_raises_anything_but_store_errors(position, octet):
    data = bytearray(jks(PASSWORD, jks_key("castle", PASSWORD, key_der(leaf()), [LEAF]), jks_trusted("ca", ROOT)))
    data[position % len(data)] = octet
    for damaged in (bytes(data), bytes(data[position % len(data) :])):
        try:
            read_trust_store(trust_store(password=None), damaged)
        except StoreError:
            continue


def test_neither_keys_nor_passwords_are_in_the_text_of_settings_and_entries():
    settings = key_store(key_password="klamm", key="frieda", certificate_chain="pepi")
    (entry,) = read_key_store(
        pem_store(key_password=PASSWORD), (key_pem(leaf(), PASSWORD) + chain_pem(leaf())).encode()
    )
    shown = f"{settings!r} {trust_store(certificates='pepi')!r} {entry!r}"
    assert not any(secret in shown for secret in (PASSWORD, "klamm", "frieda", "pepi", "Block"))


# -- properties that contradict each other


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"key": "k"}, "keystore.key: SSL private key can be specified only for PEM, but key store type is JKS."),
        (
            {"key": "k", "type": "PEM"},
            "keystore.key: SSL private key is specified, but certificate chain is not specified.",
        ),
        (
            {"key": "k", "type": "PEM", "certificate_chain": "c", "location": "l"},
            "keystore.key: Both SSL key store location and separate private key are specified.",
        ),
        (
            {"key": "k", "type": "PEM", "certificate_chain": "c", "password": "p"},
            "keystore.key: SSL key store password cannot be specified with PEM format, only key password may be"
            " specified.",
        ),
        (
            {"certificate_chain": "c", "type": "PEM"},
            "keystore.certificate.chain: SSL certificate chain is specified, but private key is not specified",
        ),
        (
            {"type": "PEM", "location": "l", "password": "p"},
            "keystore.location: SSL key store password cannot be specified with PEM format, only key password may be"
            " specified",
        ),
        ({"password": "p"}, "keystore.location: SSL key store is not specified, but key store password is specified."),
        ({"location": "l"}, "keystore.location: SSL key store is specified, but key store password is not specified."),
        (
            {"location": "l", "password": "p", "type": "BCFKS"},
            "keystore.type: stores of type BCFKS are not served: PEM, JKS, PKCS12 are",
        ),
        ({"location": "l", "password": "p", "type": "pem"}, "keystore.type: stores of type pem are not served"),
    ],
)
def test_properties_of_a_key_store_that_contradict_each_other(values, message):
    assert (key_store_problem(KeyStoreSettings(prefix="ssl.", **values)) or "").startswith(f"ssl.{message}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"certificates": "c"},
            "truststore.certificates: SSL trust store certs can be specified only for PEM, but trust store type is"
            " JKS.",
        ),
        (
            {"certificates": "c", "type": "PEM", "location": "l"},
            "truststore.certificates: Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            {"certificates": "c", "type": "PEM", "password": "p"},
            "truststore.certificates: SSL trust store password cannot be specified for PEM format.",
        ),
        (
            {"type": "PEM", "location": "l", "password": "p"},
            "truststore.location: SSL trust store password cannot be specified for PEM format.",
        ),
        (
            {"password": "p"},
            "truststore.location: SSL trust store is not specified, but trust store password is specified.",
        ),
        ({"location": "l", "type": "X"}, "truststore.type: stores of type X are not served: PEM, JKS, PKCS12 are"),
    ],
)
def test_properties_of_a_trust_store_that_contradict_each_other(values, message):
    assert trust_store_problem(TrustStoreSettings(prefix="ssl.", **values)) == f"ssl.{message}"


@pytest.mark.parametrize(
    "settings",
    [
        KeyStoreSettings(),
        key_store(),
        pem_store(),
        pem_store(key_password="p"),
        KeyStoreSettings(type="PEM", key="k", certificate_chain="c", key_password="p"),
    ],
)
def test_properties_that_go_together(settings):
    assert key_store_problem(settings) is None
    assert trust_store_problem(trust_store()) is None


# -- another store in place of one


def entry_of(name: str, *hosts: str, ended=False):
    key = new_key("EC P-256")
    chain = self_signed(key, [x509.NameAttribute(NameOID.COMMON_NAME, name)], *hosts, ended=ended)
    return read_key_store(pem_store(), (pem_of_key(key) + chain).encode())[0]


def problem_of(old, new, **allowed) -> str | None:
    return reload_problem(old, new, **{"allow_dn_changes": False, "allow_san_changes": False} | allowed)


def test_a_new_certificate_of_the_same_name_may_replace_the_old():
    old, new = entry_of("Castle  west", "a"), entry_of("castle West", "b", "a")
    assert problem_of(TlsStores((old,), (ROOT,)), TlsStores((new,), (LEAF, ROOT))) is None
    assert problem_of(TlsStores((old,), (ROOT,)), TlsStores((new,), None)) is None


def test_another_name_is_refused_unless_it_is_allowed():
    old, new = TlsStores((entry_of("castle"),), None), TlsStores((entry_of("village"),), None)
    assert problem_of(old, new) == (
        "Keystore DistinguishedName does not match:  existing={alias=kafka, DN=CN=castle}, new={alias=kafka,"
        " DN=CN=village}"
    )
    assert problem_of(old, new, allow_dn_changes=True) is None


def test_fewer_alternative_names_are_refused_unless_it_is_allowed():
    old, new = TlsStores((entry_of("castle", "a", "b"),), None), TlsStores((entry_of("castle", "b"),), None)
    assert problem_of(old, new) == (
        "Keystore SubjectAltNames do not match:  existing={alias=kafka, SAN=['a', 'b']}, new={alias=kafka, SAN=['b']}"
    )
    assert problem_of(old, new, allow_san_changes=True) is None
    assert problem_of(new, old) is None


def test_stores_are_neither_added_nor_removed():
    keys, both = TlsStores((entry_of("castle"),), None), TlsStores((entry_of("castle"),) * 2, None)
    nothing, trusting = TlsStores(None, None), TlsStores(None, (ROOT,))
    assert "Cannot add SSL keystore" in problem_of(nothing, keys)
    assert "Cannot remove the SSL keystore" in problem_of(keys, nothing)
    assert "Cannot add SSL truststore" in problem_of(nothing, trusting)
    assert "existing store contains 1 entries, new store contains 2 entries" in problem_of(keys, both)


def test_an_expired_certificate_is_named():
    entry, now_ms = entry_of("castle", ended=True), int(time.time() * 1000)
    (text,) = expired([LEAF, *entry.chain], now_ms)
    assert text.startswith("the certificate of 'CN=castle' expired at 20")
    assert expired(entry.chain, now_ms - 11 * 86_400_000) == []
