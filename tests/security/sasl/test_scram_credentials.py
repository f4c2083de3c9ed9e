"""The SCRAM credentials of all users: loaded, changed, deleted, and malformed ones."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.store.paths import sanitize
from barnabas.security.sasl.scram import MECHANISMS, Upsertion, encode_credential, parse_credential
from barnabas.security.sasl.scram_credentials import ScramCredentials

SHA_256, SHA_512 = MECHANISMS[1], MECHANISMS[2]


def text_of(number, password=b"password"):
    return encode_credential(Upsertion("user", number, 4096, b"salt", password))


def test_credentials_are_found_by_user_and_mechanism():
    known = ScramCredentials()
    known.replace(
        {"alice": {"SCRAM-SHA-256": text_of(1), "producer_byte_rate": "1"}, "b%40b": {"SCRAM-SHA-512": text_of(2)}}
    )
    assert known.find(SHA_256, "alice") == parse_credential(text_of(1), SHA_256)
    assert known.find(SHA_512, "alice") is None
    assert known.find(SHA_512, "b@b") == parse_credential(text_of(2), SHA_512)
    assert known.find(SHA_512, "b%40b") is None


def test_a_change_replaces_all_of_a_user_and_nothing_of_others():
    known = ScramCredentials()
    known.replace(
        {"alice": {"SCRAM-SHA-256": text_of(1), "SCRAM-SHA-512": text_of(2)}, "bob": {"SCRAM-SHA-256": text_of(1)}}
    )
    known.changed("alice", {"SCRAM-SHA-256": text_of(1, b"new")})
    assert known.find(SHA_256, "alice") == parse_credential(text_of(1, b"new"), SHA_256)
    assert known.find(SHA_512, "alice") is None
    known.changed("alice", {"producer_byte_rate": "1"})
    assert known.find(SHA_256, "alice") is None
    known.changed("alice", {})
    assert known.find(SHA_256, "bob") is not None
    known.replace({})
    assert known.find(SHA_256, "bob") is None


def test_the_default_and_client_ids_of_users_have_no_credentials():
    known = ScramCredentials()
    for name in ("<default>", "alice/clients/c", "alice/clients/<default>"):
        known.changed(name, {"SCRAM-SHA-256": text_of(1)})
    assert all(known.find(SHA_256, name) is None for name in ("<default>", "alice", "alice/clients/c", "c"))
    # A user who is called so is escaped in the path.
    known.changed(sanitize("<default>"), {"SCRAM-SHA-256": text_of(1)})
    assert known.find(SHA_256, "<default>") is not None


def test_a_malformed_credential_costs_its_user_one_mechanism_and_is_not_logged(caplog):
    known = ScramCredentials()
    with caplog.at_level(logging.DEBUG):
        known.changed("alice", {"SCRAM-SHA-256": "hunter2=x", "SCRAM-SHA-512": text_of(2)})
    assert known.find(SHA_256, "alice") is None
    assert known.find(SHA_512, "alice") is not None
    assert "the SCRAM-SHA-256 credential of user 'alice' in the store is ignored" in caplog.text
    assert "hunter2" not in caplog.text


names = st.sampled_from(["alice", "bob", "c=d,e"])
changes = st.lists(st.tuples(names, st.sampled_from([1, 2]), st.booleans()), max_size=30)


@given(changes)
def test_changes_one_by_one_are_the_same_as_everything_at_once(changes):
    store, known = {}, ScramCredentials()
    for user, number, is_set in changes:
        texts = store.setdefault(sanitize(user), {})
        if is_set:
            texts[MECHANISMS[number].name] = text_of(number)
        else:
            texts.pop(MECHANISMS[number].name, None)
        known.changed(sanitize(user), texts)
    loaded = ScramCredentials()
    loaded.replace(store)
    for user in ("alice", "bob", "c=d,e"):
        for mechanism in MECHANISMS.values():
            assert known.find(mechanism, user) == loaded.find(mechanism, user)
