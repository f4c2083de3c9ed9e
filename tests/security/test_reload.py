"""A listener's stores while the broker runs: when they are read again, and what may replace them."""

import os

import pytest
from cryptography import x509

from barnabas.security.principals import parse_mapping_rules
from barnabas.security.tls.contexts import ListenerTls, client_context
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.tls.stores import KeyStoreSettings, StoreError, TrustStoreSettings
from tests.security.key_material import (
    BOTH_VERSIONS,
    authority_pem,
    chain_pem,
    key_pem,
    leaf,
    new_key,
    pem_of_key,
    self_signed,
    written,
)
from tests.security.tls.handshakes import shake_hands


def identity(*hosts: str, name="castle") -> tuple[str, str]:
    """A key, and a certificate that it signed."""
    key = new_key("EC P-256")
    return pem_of_key(key), self_signed(key, [x509.NameAttribute(x509.NameOID.COMMON_NAME, name)], *hosts)


class Folder:
    """The files of a key store and of a trust store."""

    def __init__(self, path) -> None:
        self.path = path
        self.seconds = 0

    def write(self, key: str, chain: str, *trusted: str) -> None:
        for name, text in (("key.pem", key + chain), ("ca.pem", "".join(trusted) or chain)):
            os.utime(written(self.path, name, text), (self.seconds, self.seconds))
        self.seconds += 1

    @property
    def settings(self) -> TlsSettings:
        keys, trusted = str(self.path / "key.pem"), str(self.path / "ca.pem")
        rules = parse_mapping_rules("DEFAULT")
        stores = KeyStoreSettings("PEM", keys), TrustStoreSettings("PEM", trusted)
        return TlsSettings(*stores, BOTH_VERSIONS, "required", rules, True, False, False)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def certificate_at(listener: ListenerTls) -> bytes:
    """The certificate that a new connection gets."""
    client = client_context(listener.stores, BOTH_VERSIONS, checks_host_name=False)
    _, theirs = shake_hands(listener.server, client, "localhost")
    return theirs.getpeercert(binary_form=True)


def test_files_that_did_not_change_are_not_read_again(folder):
    folder.write(*identity("a"))
    listener = ListenerTls(folder.settings, is_brokers_own=False)
    assert listener.prepared(folder.settings) is None


def test_a_file_that_was_written_again_is_served_to_new_connections(folder):
    old, new = identity("a"), identity("a")
    folder.write(*old)
    listener = ListenerTls(folder.settings, is_brokers_own=False)
    before = certificate_at(listener)
    folder.write(*new)
    assert certificate_at(listener) == before
    listener.replace(listener.prepared(folder.settings))
    assert certificate_at(listener) == listener.stores.keys[0].chain[0] != before
    assert listener.prepared(folder.settings) is None


def test_other_properties_are_served_to_new_connections(folder, tmp_path):
    folder.write(*identity("a"))
    listener = ListenerTls(folder.settings, is_brokers_own=False)
    key, chain = identity("a")
    settings = folder.settings._replace(key_store=KeyStoreSettings("PEM", written(tmp_path, "new.pem", key + chain)))
    settings = settings._replace(trust_store=TrustStoreSettings(type="PEM", certificates=chain))
    listener.replace(listener.prepared(settings))
    assert certificate_at(listener) == listener.stores.anchors[0]


@pytest.mark.parametrize(
    ("name", "hosts", "why"),
    [
        ("village", ("a", "b"), "Keystore DistinguishedName does not match"),
        ("castle", ("b",), "Keystore SubjectAltNames do not match"),
    ],
)
def test_what_may_not_replace_the_old_stores_leaves_them(folder, name, hosts, why):
    folder.write(*identity("a", "b"))
    listener = ListenerTls(folder.settings, is_brokers_own=False)
    before = certificate_at(listener)
    folder.write(*identity(*hosts, name=name))
    with pytest.raises(StoreError, match=why):
        listener.prepared(folder.settings)
    assert certificate_at(listener) == before
    allowing = folder.settings._replace(allow_dn_changes=True, allow_san_changes=True)
    listener.replace(listener.prepared(allowing))
    assert certificate_at(listener) != before


def test_a_broken_file_leaves_the_old_stores(folder):
    folder.write(*identity("a"))
    listener = ListenerTls(folder.settings, is_brokers_own=False)
    folder.write("", "", "-")
    with pytest.raises(StoreError, match=r"ssl.keystore.location: .*key.pem is empty"):
        listener.prepared(folder.settings)
    certificate_at(listener)


def test_brokers_must_accept_themselves_at_the_start(folder):
    key, chain = identity("a")
    folder.write(key, chain, authority_pem())
    ListenerTls(folder.settings, is_brokers_own=False)
    with pytest.raises(StoreError, match="A client SSLEngine created with the provided settings can't connect"):
        ListenerTls(folder.settings, is_brokers_own=True)


def test_brokers_with_old_and_with_new_stores_must_accept_each_other(folder):
    """First both certificates are trusted, then the key is replaced: at no time two brokers refuse each other."""
    old, new = identity("a"), identity("a")
    folder.write(*old)
    listener = ListenerTls(folder.settings, is_brokers_own=True)
    assert listener.client.check_hostname
    folder.write(*new)
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        listener.prepared(folder.settings)
    for key, trusted in ((old, (old[1], new[1])), (new, (old[1], new[1])), (new, (new[1],))):
        folder.write(*key, *trusted)
        listener.replace(listener.prepared(folder.settings))
    assert len(listener.stores.anchors) == 1


def test_a_listener_of_clients_needs_no_trust_store(folder):
    folder.write(key_pem(leaf()), chain_pem(leaf()))
    settings = folder.settings._replace(trust_store=TrustStoreSettings(), client_auth="none")
    listener = ListenerTls(settings, is_brokers_own=False)
    assert listener.stores.anchors is None
    with pytest.raises(StoreError, match="Cannot add SSL truststore to an existing listener"):
        listener.prepared(folder.settings)
