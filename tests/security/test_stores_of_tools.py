"""Stores that keytool and openssl wrote are read: of every kind of key, with and without a password of its own."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, pkcs12

from barnabas.security.tls.contexts import client_context, load_stores, prove, server_context
from barnabas.security.tls.stores import KeyStoreSettings, StoreError, TrustStoreSettings
from compat_tests.tools import give_up, require_tool
from tests.security.key_material import BOTH_VERSIONS, chain_of_three, new_key, written

PASSWORD, KEY_PASSWORD = "sortini", "burgel"
KINDS = ["RSA 2048", "RSA 4096", "EC P-256", "EC P-384"]
JVMS = Path("/usr/lib/jvm")
SECONDS_MAX = 120


@cache
def keytools() -> list[str]:
    """The keytool of every Java that is installed, each once."""
    on_path = shutil.which("keytool")
    found = [str(each) for each in sorted(JVMS.glob("*/bin/keytool"))] + ([on_path] if on_path else [])
    return list({os.path.realpath(each): each for each in reversed(found)}.values())


@pytest.fixture(params=range(2))
def keytool(request, tmp_path):
    """Runs keytool, of two versions of Java where they are."""
    if not keytools():
        give_up("keytool not found")
    if request.param >= len(keytools()):
        pytest.skip("a second version of Java is not there")

    def run(*arguments: str) -> None:
        ran = subprocess.run(
            [keytools()[request.param], *arguments, "-noprompt"],
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            cwd=tmp_path,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return run


def openssl(*arguments: str) -> None:
    require_tool("openssl")
    ran = subprocess.run(
        ["openssl", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stderr


@cache
def material(kind: str):
    key = new_key(kind)
    return key, chain_of_three(key)


def pem_files(folder: Path, kind: str) -> tuple[str, str, str]:
    """The paths of the key, of its chain, and of the authority."""
    key, chain = material(kind)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption())
    pems = [each.public_bytes(Encoding.PEM) for each in chain]
    return (
        written(folder, "key.pem", plain),
        written(folder, "chain.pem", b"".join(pems[:2])),
        written(folder, "root.pem", pems[2]),
    )


def pkcs12_file(folder: Path, kind: str) -> str:
    key, chain = material(kind)
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    return written(
        folder, "source.p12", pkcs12.serialize_key_and_certificates(b"castle", key, chain[0], chain[1:], encryption)
    )


def is_used(keys: KeyStoreSettings, trusted: TrustStoreSettings, kind: str) -> None:
    """Both stores are read, and a client and a server with them accept each other."""
    key, chain = material(kind)
    stores = load_stores(keys, trusted)
    own = [each.public_bytes(Encoding.DER) for each in chain]
    (entry,) = stores.keys
    assert list(entry.chain) == own[: len(entry.chain)]
    assert len(entry.chain) >= 2
    if entry.password is None:
        plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, serialization.NoEncryption())
        assert serialization.load_der_private_key(entry.key.der, None).private_numbers() == (
            serialization.load_der_private_key(plain, None).private_numbers()
        )
    assert stores.anchors == (own[2],)
    prove(
        server_context(stores, BOTH_VERSIONS, "required"), client_context(stores, BOTH_VERSIONS, checks_host_name=False)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_key_password", [False, True])
def test_a_jks_store_of_keytool(keytool, tmp_path, kind, has_key_password):
    source, (*_, root) = pkcs12_file(tmp_path, kind), pem_files(tmp_path, kind)
    own = ("-destkeypass", KEY_PASSWORD) if has_key_password else ()
    store = ("-deststoretype", "JKS", "-destkeystore", "key.jks", "-deststorepass", PASSWORD, *own)
    alias = ("-srcalias", "castle", "-srckeypass", PASSWORD)
    keytool("-importkeystore", "-srckeystore", source, "-srcstorepass", PASSWORD, *alias, *store)
    keytool("-importcert", "-storetype", "JKS", "-keystore", "ca.jks", "-storepass", PASSWORD, "-file", root)
    assert (tmp_path / "key.jks").read_bytes().startswith(b"\xfe\xed\xfe\xed")
    keys = KeyStoreSettings("JKS", str(tmp_path / "key.jks"), PASSWORD, KEY_PASSWORD if has_key_password else None)
    for password in (PASSWORD, None):
        is_used(keys, TrustStoreSettings("JKS", str(tmp_path / "ca.jks"), password), kind)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["JKS", "PKCS12"])
def test_a_pkcs12_store_of_keytool_whatever_its_type_is_said_to_be(keytool, tmp_path, kind, name):
    source, (*_, root) = pkcs12_file(tmp_path, kind), pem_files(tmp_path, kind)
    store = ("-deststoretype", "PKCS12", "-destkeystore", "key.jks", "-deststorepass", PASSWORD)
    keytool("-importkeystore", "-srckeystore", source, "-srcstorepass", PASSWORD, *store)
    keytool("-importcert", "-keystore", "ca.jks", "-storepass", PASSWORD, "-file", root)
    keys = KeyStoreSettings(name, str(tmp_path / "key.jks"), PASSWORD)
    is_used(keys, TrustStoreSettings(name, str(tmp_path / "ca.jks"), PASSWORD), kind)


@pytest.mark.thorough
def test_a_store_that_keytool_made_by_itself(keytool, tmp_path):
    for kind in ("JKS", "PKCS12"):
        made = (
            "-alias",
            "castle",
            "-keyalg",
            "EC",
            "-groupname",
            "secp256r1",
            "-dname",
            "CN=castle",
            "-storetype",
            kind,
        )
        keytool("-genkeypair", *made, "-keystore", f"{kind}.store", "-storepass", PASSWORD, "-keypass", PASSWORD)
        path = str(tmp_path / f"{kind}.store")
        # The store trusts its own certificate, as in Java.
        stores = load_stores(KeyStoreSettings(kind, path, PASSWORD), TrustStoreSettings(kind, path, PASSWORD))
        assert stores.anchors == stores.keys[0].chain
        prove(
            server_context(stores, BOTH_VERSIONS, "required"),
            client_context(stores, BOTH_VERSIONS, checks_host_name=False),
        )
        with pytest.raises(
            StoreError, match=f"ssl.keystore.location: Failed to load SSL keystore {path} of type {kind}"
        ):
            load_stores(KeyStoreSettings(kind, path, "wrong"), TrustStoreSettings())


@pytest.mark.parametrize("kind", KINDS)
def test_stores_of_openssl(tmp_path, kind):
    key, chain, root = pem_files(tmp_path, kind)
    encrypted, together = str(tmp_path / "encrypted.pem"), str(tmp_path / "castle.p12")
    openssl("pkcs8", "-topk8", "-in", key, "-out", encrypted, "-passout", f"pass:{KEY_PASSWORD}")
    inputs = ("-inkey", key, "-in", chain, "-certfile", root, "-name", "castle")
    openssl("pkcs12", "-export", *inputs, "-out", together, "-passout", f"pass:{PASSWORD}")
    trusted = TrustStoreSettings("PEM", root)
    is_used(KeyStoreSettings("PKCS12", together, PASSWORD), trusted, kind)
    for path, password in ((key, None), (encrypted, KEY_PASSWORD)):
        pem = written(tmp_path, "store.pem", Path(path).read_bytes() + Path(chain).read_bytes())
        is_used(KeyStoreSettings("PEM", pem, key_password=password), trusted, kind)
