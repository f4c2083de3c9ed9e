"""SASL PLAIN: Kafka's checks, in its order and its words."""

import pytest

from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.exchange import Complete, LoginFailed, Rejected
from barnabas.security.sasl.plain import PlainClient, PlainServer

USERS = {"alice": "alice-secret", "b@b,=": "pä", "empty": "", "odd": "\ud800"}
PARTS = "Invalid SASL/PLAIN response: expected 3 tokens, got {}"
USERNAME = "Authentication failed: username not specified"
PASSWORD = "Authentication failed: password not specified"
WRONG = "Authentication failed: Invalid username or password"
OTHER = "Authentication failed: Client requested an authorization id that is different from username"


def said(token: bytes):
    return PlainServer(USERS).evaluate(token, 0)


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0alice-secret", "alice"),
        (b"alice\0alice\0alice-secret", "alice"),
        ("\0b@b,=\0pä".encode(), "b@b,="),
    ],
)
def test_the_right_password_logs_in(token, user):
    assert said(token) == Complete(b"", KafkaPrincipal("User", user))


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", PARTS.format(1)),
        (b"alice", PARTS.format(1)),
        (b"alice\0alice-secret", PARTS.format(2)),
        (b"\0alice\0alice-secret\0", PARTS.format(4)),
        (b"\0" * 500_000, PARTS.format(4)),
        (b"\0\0alice-secret", USERNAME),
        (b"\0\0", USERNAME),
        (b"\0alice\0", PASSWORD),
        (b"\0empty\0", PASSWORD),
        (b"\0alice\0wrong", WRONG),
        (b"\0alice\0alice-secre", WRONG),
        (b"\0alice\0alice-secrets", WRONG),
        (b"\0ALICE\0alice-secret", WRONG),
        (b"\0no-such-user\0alice-secret", WRONG),
        (b"\0unknown\0unknown", WRONG),
        (b"bob\0alice\0wrong", WRONG),
        (b"bob\0alice\0alice-secret", OTHER),
        (b"ALICE\0alice\0alice-secret", OTHER),
        (b"\0alice\xff\0alice-secret", WRONG),
        (b"\0alice\0alice-secret\xff", WRONG),
        (b"\0odd\0\xed\xa0\x80", WRONG),
        (b"\0odd\0?", WRONG),
        (b"\0alice\0" + b"x" * 500_000, WRONG),
    ],
)
def test_every_other_token_fails_in_kafkas_words(token, message):
    assert said(token) == Rejected(message, message)


def test_no_failure_repeats_what_the_client_sent():
    said_of = [said(b"\0alice\0guess-1"), said(b"guess-1\0alice\0alice-secret"), said(b"guess-1\0\0\0\0")]
    assert "guess-1" not in repr(said_of)


def test_the_clients_side_logs_in_and_expects_an_empty_answer():
    client = PlainClient("b@b,=", "pä")
    assert isinstance(said(client.begin()), Complete)
    assert client.evaluate(b"") is None
    with pytest.raises(LoginFailed):
        client.evaluate(b"more")
