"""TLS contexts: what they were made from is what a handshake in memory shows, and no key stays on the disk."""

import os
import ssl
import sys
import tempfile

import pytest
from cryptography import x509

from barnabas.security.tls.ciphers import choose
from barnabas.security.tls.contexts import client_context, load_stores, modification_times, prove, server_context
from barnabas.security.tls.stores import KeyStoreSettings, StoreError, TlsStores, TrustStoreSettings
from tests.security.key_material import (
    BOTH_VERSIONS,
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
    written,
)
from tests.security.tls.handshakes import shake_hands

PASSWORD = "sortini"


def inline(key: str, chain: str, *trusted: str, key_password=None) -> TlsStores:
    keys = KeyStoreSettings(type="PEM", key=key, certificate_chain=chain, key_password=key_password)
    return load_stores(keys, TrustStoreSettings(type="PEM", certificates="".join(trusted) or None))


def of_castle(name="castle", trusted="castle") -> TlsStores:
    return inline(key_pem(leaf(name)), chain_pem(leaf(name)), authority_pem(trusted))


def proves(stores: TlsStores, *, auth="none", client: TlsStores | None = None) -> None:
    prove(
        server_context(stores, BOTH_VERSIONS, auth),
        client_context(client or stores, BOTH_VERSIONS, checks_host_name=False),
    )


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_brokers_with_the_same_stores_accept_each_other(auth):
    proves(of_castle(), auth=auth)


def test_stores_that_do_not_trust_each_other_are_found_at_the_start():
    begin = "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with "
    with pytest.raises(StoreError, match=f"{begin}those settings: CERTIFICATE_VERIFY_FAILED"):
        proves(of_castle(trusted="village"))
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        proves(of_castle(), auth="required", client=of_castle("village", trusted="castle"))
    with pytest.raises(StoreError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        proves(of_castle(), auth="required", client=TlsStores(None, of_castle().anchors))


def test_requested_is_not_downgraded_for_a_certificate_that_is_not_trusted():
    proves(of_castle(), auth="requested", client=TlsStores(None, of_castle().anchors))
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        proves(of_castle(), auth="requested", client=of_castle("village", trusted="castle"))


def test_the_server_sees_the_certificate_of_a_client():
    stores = of_castle()
    client = client_context(stores, BOTH_VERSIONS)
    for auth, expected in (("none", None), ("required", der_of(chain_pem(leaf()))[0])):
        ours, _ = shake_hands(server_context(stores, BOTH_VERSIONS, auth), client, "localhost")
        assert ours.getpeercert(binary_form=True) == expected


def test_a_client_checks_the_name_of_the_host():
    stores = of_castle()
    server = server_context(stores, BOTH_VERSIONS, "none")
    for host in ("localhost", "127.0.0.1"):
        shake_hands(server, client_context(stores, BOTH_VERSIONS), host)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client_context(stores, BOTH_VERSIONS), "village.example")
    shake_hands(server, client_context(stores, BOTH_VERSIONS, checks_host_name=False), "village.example")


def test_a_certificate_in_a_trust_store_is_trusted_without_its_issuer():
    proves(inline(key_pem(leaf()), chain_pem(leaf()), chain_pem(leaf())), auth="required")


@pytest.mark.parametrize("highest", ["TLSv1.2", "TLSv1.3"])
def test_versions_and_suites_are_those_of_the_properties(highest):
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    choice = choose(highest, ("TLSv1.2", "TLSv1.3"), (suite,) if highest == "TLSv1.2" else ())
    ours, _ = shake_hands(
        server_context(of_castle(), choice, "none"), client_context(of_castle(), BOTH_VERSIONS), "localhost"
    )
    assert ours.version() == highest
    if highest == "TLSv1.2":
        assert ours.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_a_client_of_another_version_is_refused():
    old, new = choose("TLSv1.2", ("TLSv1.2",), ()), choose("TLSv1.3", ("TLSv1.3",), ())
    with pytest.raises(ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION"):
        shake_hands(server_context(of_castle(), new, "none"), client_context(of_castle(), old), "localhost")


@pytest.mark.parametrize("kind", ["RSA 2048", "RSA 4096", "EC P-256", "EC P-384"])
def test_keys_of_every_kind_are_used(kind):
    key = new_key(kind)
    chain = self_signed(key, [x509.NameAttribute(x509.NameOID.COMMON_NAME, "castle")], "localhost")
    proves(inline(pem_of_key(key), chain, chain), auth="required")


def test_an_encrypted_key_needs_its_password():
    proves(inline(key_pem(leaf(), PASSWORD), chain_pem(leaf()), authority_pem(), key_password=PASSWORD))
    stores = inline(key_pem(leaf(), PASSWORD), chain_pem(leaf()), authority_pem(), key_password="wrong")
    with pytest.raises(StoreError, match=r"ssl.keystore: the key of 'kafka' .*, or ssl.key.password is wrong"):
        proves(stores)


def test_a_key_that_is_not_that_of_its_certificate_is_refused():
    with pytest.raises(StoreError, match=r"ssl.keystore: the key of 'kafka' cannot be used: KEY_VALUES_MISMATCH"):
        proves(inline(pem_of_key(new_key("EC P-256")), chain_pem(leaf()), authority_pem()))


def test_a_listener_without_a_key_is_refused():
    with pytest.raises(StoreError, match=r"listener.name.a.ssl.keystore.location is not set"):
        server_context(TlsStores(None, None), BOTH_VERSIONS, "none", "listener.name.a.ssl.")


def test_of_several_keys_the_first_of_each_kind_is_used():
    entries, chains = [], []
    for number, kind in enumerate(("EC P-256", "RSA 2048", "EC P-256")):
        key = new_key(kind)
        chains.append(self_signed(key, [x509.NameAttribute(x509.NameOID.COMMON_NAME, f"castle {number}")], "localhost"))
        (entry,) = inline(pem_of_key(key), chains[-1]).keys
        entries.append(entry)
    stores = TlsStores(tuple(entries), tuple(der_of("".join(chains))))
    server = server_context(stores, BOTH_VERSIONS, "none")
    for suite, first in (("ECDSA", 0), ("RSA", 1)):
        choice = choose("TLSv1.2", ("TLSv1.2",), (f"TLS_ECDHE_{suite}_WITH_AES_256_GCM_SHA384",))
        _, theirs = shake_hands(server, client_context(TlsStores(None, stores.anchors), choice), "localhost")
        assert theirs.getpeercert(binary_form=True) == entries[first].chain[0]


def test_files_of_all_formats_are_loaded(tmp_path):
    root, own = der_of(authority_pem())[0], der_of(chain_pem(leaf()))
    keys = {
        "PEM": written(tmp_path, "key.pem", key_pem(leaf()) + chain_pem(leaf())),
        "JKS": written(tmp_path, "key.jks", jks(PASSWORD, jks_key("a", PASSWORD, key_der(leaf()), own))),
        "PKCS12": written(tmp_path, "key.p12", pkcs12_of(leaf(), PASSWORD)),
    }
    trusted = {
        "PEM": written(tmp_path, "ca.pem", authority_pem()),
        "JKS": written(tmp_path, "ca.jks", jks(PASSWORD, jks_trusted("ca", root))),
        "PKCS12": written(tmp_path, "ca.p12", pkcs12_of_certificates(PASSWORD, authority_pem())),
    }
    for kind, path in keys.items():
        password = None if kind == "PEM" else PASSWORD
        settings = KeyStoreSettings(kind, path, password), TrustStoreSettings(kind, trusted[kind], password)
        proves(load_stores(*settings), auth="required")


def test_without_cryptography_pem_and_jks_work_and_pkcs12_says_what_it_needs(tmp_path, monkeypatch):
    own = der_of(chain_pem(leaf()))
    pkcs12 = KeyStoreSettings("PKCS12", written(tmp_path, "a.p12", pkcs12_of(leaf(), PASSWORD)), PASSWORD)
    java = written(tmp_path, "a.jks", jks(PASSWORD, jks_key("a", PASSWORD, key_der(leaf()), own)))
    encrypted, root = key_pem(leaf(), PASSWORD), authority_pem()
    for module in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, module, None)
    proves(inline(encrypted, chain_pem(leaf()), root, key_password=PASSWORD))
    proves(load_stores(KeyStoreSettings("JKS", java, PASSWORD), TrustStoreSettings(type="PEM", certificates=root)))
    with pytest.raises(StoreError, match=r"PKCS12 needs the package cryptography: pip install cryptography"):
        load_stores(pkcs12, TrustStoreSettings())


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory"), (b"", "is empty"), ("a folder", "Is a directory")]
)
def test_a_file_that_cannot_be_read_is_named_with_its_property(tmp_path, content, why):
    path = str(tmp_path) if content == "a folder" else str(tmp_path / "castle.pem")
    if content == b"":
        written(tmp_path, "castle.pem", content)
    with pytest.raises(StoreError) as refused:
        load_stores(KeyStoreSettings("PEM", path), TrustStoreSettings())
    assert str(refused.value).startswith(f"ssl.keystore.location: {path}")
    assert why in str(refused.value)


def test_contradicting_properties_are_refused_before_a_file_is_read():
    with pytest.raises(StoreError, match=r"ssl.truststore.location: SSL trust store is not specified"):
        load_stores(KeyStoreSettings("PEM", "missing.pem"), TrustStoreSettings(password="p"))


def test_a_file_that_was_written_again_has_another_time(tmp_path):
    path = written(tmp_path, "castle.pem", "x")
    settings = KeyStoreSettings("PEM", path), TrustStoreSettings("PEM", str(tmp_path / "missing"))
    before = modification_times(*settings)
    os.utime(path, ns=(0, 1))
    assert (before[1], modification_times(*settings)) == (None, (1, None))


@pytest.mark.parametrize("has_memfd", [True, False])
def test_no_key_stays_on_the_disk(tmp_path, monkeypatch, has_memfd):
    opened = []
    named = tempfile.NamedTemporaryFile

    def noting(*args, **values):
        file = named(*args, **values)
        opened.append((file.name, os.stat(file.name).st_mode & 0o777))
        return file

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", noting)
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("files in memory are Linux's")
    proves(of_castle())
    assert [mode for _, mode in opened] == ([] if has_memfd else [0o600, 0o600])
    assert os.listdir(tmp_path) == []
