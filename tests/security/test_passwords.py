"""The passwords of a broker in the store: which are encoded, which are decoded, and how often."""

import os
import random
import sys
from types import SimpleNamespace

import pytest

from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError
from barnabas.security.encoder import decode, encode
from barnabas.security.passwords import PasswordRefused, StoredPasswords
from barnabas.world.world import run_inline

NAME = "listener.name.inside.plain.sasl.jaas.config"
QUICK = {"password.encoder.iterations": "1024"}


class Counted:
    """Work in threads, counted."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def run(self, function, *args):
        self.calls.append(function.__name__)
        return await run_inline(function, *args)


def passwords(secret="burgel", counted=None, **properties) -> StoredPasswords:
    texts = QUICK | {name.replace("_", "."): text for name, text in properties.items()}
    if secret is not None:
        texts["password.encoder.secret"] = secret
    return StoredPasswords(BrokerConfig(texts), world(counted or Counted()))


def world(counted: Counted):
    return SimpleNamespace(in_thread=counted.run, in_request_thread=counted.run, rng=random.SystemRandom())


async def test_passwords_alone_are_encoded():
    texts = {NAME: "sortini", "log.cleaner.threads": "2", "my.password": "frieda"}
    stored = await passwords().encoded(texts, {})
    assert decode(stored[NAME], "burgel") == "sortini"
    assert stored | {NAME: ""} == texts | {NAME: ""}
    assert await passwords().decoded(stored) == (texts, {})


async def test_the_encoding_is_that_of_the_properties():
    properties = {
        "password_encoder_cipher_algorithm": "AES/GCM/NoPadding",
        "password_encoder_keyfactory_algorithm": "PBKDF2WithHmacSHA256",
        "password_encoder_key_length": "256",
        "password_encoder_iterations": "2048",
    }
    stored = await passwords(**properties).encoded({NAME: "sortini"}, {})
    pairs = dict(pair.split(":", 1) for pair in stored[NAME].split(","))
    assert (pairs["cipherAlgorithm"], pairs["keyFactoryAlgorithm"]) == ("AES/GCM/NoPadding", "PBKDF2WithHmacSHA256")
    assert (pairs["keyLength"], pairs["iterations"]) == ("256", "2048")


async def test_what_has_not_changed_stays_as_it_is_and_takes_no_time():
    counted = Counted()
    ours = passwords(counted=counted)
    first = await ours.encoded({NAME: "sortini"}, {})
    assert counted.calls == ["encode"]
    assert await ours.decoded(first) == ({NAME: "sortini"}, {})
    assert await ours.encoded({NAME: "sortini", "a": "b"}, first) == first | {"a": "b"}
    assert counted.calls == ["encode"]
    second = await ours.encoded({NAME: "klamm"}, first)
    assert decode(second[NAME], "burgel") == "klamm"
    # Passwords that are used no more are forgotten.
    assert await ours.decoded(first) == ({NAME: "sortini"}, {})
    assert counted.calls == ["encode", "encode", "decode"]


async def test_without_a_secret_nothing_is_encoded_or_decoded():
    stored = await passwords().encoded({NAME: "sortini", "a": "b"}, {})
    problems = {NAME: "Password encoder secret not configured"}
    assert await passwords(secret=None).decoded(stored) == ({"a": "b"}, problems)
    with pytest.raises(PasswordRefused, match=r"^Password encoder secret not configured$"):
        await passwords(secret=None).encoded({NAME: "sortini"}, {})
    assert await passwords(secret=None).encoded({"a": "b"}, {}) == {"a": "b"}


async def test_what_cannot_be_decoded_is_left_out():
    read = await passwords(secret="other").decoded(await passwords().encoded({NAME: "sortini"}, {}))
    assert read.texts == {}
    assert "another secret" in read.problems[NAME]
    assert (await passwords().decoded({NAME: "sortini"})).texts == {}  # which older versions stored as it is


async def test_passwords_of_the_old_secret_are_encoded_again():
    old = await passwords(secret="old").encoded({NAME: "sortini", "a": "b"}, {})
    ours = passwords(password_encoder_old_secret="old")
    new = await ours.encoded_again(old)
    assert decode(new[NAME], "burgel") == "sortini"
    assert new["a"] == "b"
    assert await ours.encoded_again(new) == new  # at the next start
    damaged = {NAME: "keyLength:128"}
    assert await ours.encoded_again(damaged) == damaged


async def test_an_old_secret_without_a_new_one_is_refused_when_it_decodes_a_password():
    old = await passwords(secret="old").encoded({NAME: "sortini"}, {})
    with pytest.raises(ConfigError, match=r"^given: password.encoder.old.secret decodes") as refused:
        await passwords(secret=None, password_encoder_old_secret="old").encoded_again(old)
    assert "sortini" not in str(refused.value)
    assert await passwords(secret=None, password_encoder_old_secret="else").encoded_again(old) == old


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("password.encoder.cipher.algorithm", "DES/CBC/PKCS5Padding"),
        ("password.encoder.keyfactory.algorithm", "PBKDF2WithHmacMD5"),
        ("password.encoder.key.length", "129"),
        ("password.encoder.iterations", "2147483647"),
    ],
)
def test_an_encoder_that_is_not_served_is_refused_at_the_start(name, text):
    texts = QUICK | {"password.encoder.secret": "burgel", name: text}
    with pytest.raises(ConfigError, match=rf"^given: {name}: {text} is not served"):
        StoredPasswords(BrokerConfig(texts), world(Counted())).check()
    passwords().check()
    passwords(secret=None, **{name.replace(".", "_"): text}).check()


async def test_without_cryptography_the_error_says_what_to_install(monkeypatch):
    stored = {NAME: encode("sortini", "burgel", passwords()._encoding(), os.urandom)}
    for module in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(PasswordRefused, match=r"pip install cryptography"):
        await passwords().encoded({NAME: "sortini"}, {})
    assert "pip install cryptography" in (await passwords().decoded(stored)).problems[NAME]
