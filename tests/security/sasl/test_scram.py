"""SCRAM credentials: checks and their order, and the text that is stored, as a running Kafka 3.9.1 gave them."""

import pytest

from barnabas.security.sasl.scram import (
    Alterations,
    Deletion,
    Upsertion,
    credential_iterations,
    encode_credential,
    refuse_alterations,
)

KAFKA_WROTE_256 = (
    "salt=c2FsdA==,stored_key=oSus/cuT8HTnsKJOZ4o6ccYsnwcmxm858BVw9c+Uny0=,"
    "server_key=mLa8oeqt+2M0zCqxGKVJ5NVzHZHIlabaGLHIve9TRZQ=,iterations=4096"
)
KAFKA_WROTE_512 = (
    "salt=c2FsdA==,stored_key=3bNq6kehT4HIgfpzCKQVI+C0gVOUwUcbDBAm8utoPRZvy2sHkbwhrtJOLWQvKQqEPZ4ejMtIIit4dYOKoTBSqQ==,"
    "server_key=I7r3mUYylmIleFrpt0XM+G8EH00Dw6wu7hJtGUaoiedmHqU8zN0NmzoEDnI7VVNJlY9N+taYFlUol4iTPLiYSQ==,iterations=4096"
)
EMPTY, MECHANISM = "Username must not be empty", "Unknown SCRAM mechanism"
FEW, MANY = "Too few iterations", "Too many iterations"
TWICE = "A user credential cannot be altered twice in the same request"


def to_set(user="a", mechanism=1, iterations=4096, salted_password=b"\x01" * 32):
    return Upsertion(user, mechanism, iterations, b"salt", salted_password)


def asked(*deletions, upsertions=()):
    return Alterations(tuple(Deletion(*deletion) for deletion in deletions), tuple(upsertions))


@pytest.mark.parametrize(("mechanism", "text"), [(1, KAFKA_WROTE_256), (2, KAFKA_WROTE_512)])
def test_a_credential_is_stored_as_kafka_stores_it(mechanism, text):
    assert encode_credential(to_set(mechanism=mechanism)) == text
    assert credential_iterations(text) == 4096


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "sequence element"),
        ("salt=,stored_key=,server_key=", "not the parts"),
        ("salt=,stored_key=,server_key=,iterations=many", "invalid literal"),
    ],
)
def test_what_is_no_credential_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        credential_iterations(text)


@pytest.mark.parametrize(
    ("alterations", "code", "message"),
    [
        (asked(("", 1)), 93, EMPTY),
        (asked(("a", 0)), 33, MECHANISM),
        (asked(upsertions=[to_set(mechanism=3, iterations=1)]), 33, MECHANISM),
        (asked(upsertions=[to_set(iterations=4095)]), 93, FEW),
        (asked(upsertions=[to_set(iterations=16385)]), 93, MANY),
        (asked(upsertions=[to_set(iterations=1), to_set(mechanism=2, iterations=99999)]), 93, MANY),
        (asked(("a", 7), upsertions=[to_set(iterations=1)]), 93, FEW),
        (asked(("a", 1), ("a", 1)), 92, TWICE),
        (asked(("a", 1), upsertions=[to_set()]), 92, TWICE),
        (asked(upsertions=[to_set(iterations=7), to_set(iterations=7)]), 93, FEW),
    ],
)
def test_what_contradicts_the_rules_or_itself_is_refused_in_kafkas_words(alterations, code, message):
    assert [tuple(refusal) for refusal in refuse_alterations(alterations).values()] == [(code, message)]


def test_the_bounds_and_different_mechanisms_of_one_user_are_accepted():
    bounds = [to_set(iterations=4096), to_set(mechanism=2, iterations=16384)]
    assert refuse_alterations(asked(("b", 1), upsertions=bounds)) == {}


def test_an_alteration_keeps_what_it_does_not_name():
    config = {"SCRAM-SHA-512": "old", "producer_byte_rate": "10"}
    changed = asked(("a", 2), upsertions=[to_set()]).applied_to(config)
    assert changed == {"producer_byte_rate": "10", "SCRAM-SHA-256": KAFKA_WROTE_256}


def test_a_credential_that_is_not_there_cannot_be_deleted():
    deletions = asked(("a", 1), ("b", 1), ("b", 2), ("unknown", 1))
    configs = {"a": {"SCRAM-SHA-256": "x"}, "b": {"SCRAM-SHA-256": "x"}}
    assert deletions.missing(configs) == ["b", "unknown"]


def test_an_empty_password_is_no_key():
    assert not asked(upsertions=[to_set(salted_password=b"")]).can_be_prepared
    assert asked(upsertions=[to_set(salted_password=b"x")]).can_be_prepared
