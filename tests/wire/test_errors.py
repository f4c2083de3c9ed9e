"""The table of error codes, and the exceptions."""

import struct

import pytest

from barnabas.wire.errors import ErrorCode, Refuse


def test_codes_run_from_minus_one_to_127_without_a_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 128))


@pytest.mark.parametrize(
    ("code", "name", "retriable"),
    [
        (-1, "UNKNOWN_SERVER_ERROR", False),
        (0, "NONE", False),
        (6, "NOT_LEADER_OR_FOLLOWER", True),
        (8, "BROKER_NOT_AVAILABLE", False),
        (27, "REBALANCE_IN_PROGRESS", False),
        (56, "KAFKA_STORAGE_ERROR", True),
        (87, "INVALID_RECORD", False),
        (120, "TRANSACTION_ABORTABLE", False),
        (123, "INVALID_SHARE_SESSION_EPOCH", True),
    ],
)
def test_a_code_has_kafkas_name_and_says_whether_clients_retry(code: int, name: str, retriable: bool) -> None:
    found = ErrorCode(code)
    assert (found.name, found.retriable) == (name, retriable)


def test_exactly_the_codes_that_java_calls_retriable_are_retriable() -> None:
    retriable = [int(code) for code in ErrorCode if code.retriable]
    assert retriable == [
        *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78),
        *(80, 83, 84, 88, 89, 100, 103, 106, 122, 123),
    ]


def test_every_code_explains_itself_in_one_sentence() -> None:
    assert all(code.message.endswith(".") and len(code.message) < 200 for code in ErrorCode)
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)


def test_a_code_goes_on_the_wire_as_an_int16() -> None:
    assert struct.pack(">h", ErrorCode.UNKNOWN_SERVER_ERROR) == b"\xff\xff"


def test_refuse_names_its_code_and_keeps_the_message_for_the_client() -> None:
    refusal = Refuse(ErrorCode.INVALID_REQUEST, "duplicate partition")
    assert (refusal.code, refusal.message) == (ErrorCode.INVALID_REQUEST, "duplicate partition")
    assert str(refusal) == "INVALID_REQUEST: duplicate partition"


def test_refuse_without_a_message_sends_none_but_logs_the_codes_own() -> None:
    refusal = Refuse(ErrorCode.NOT_CONTROLLER)
    assert refusal.message is None
    assert str(refusal) == "NOT_CONTROLLER: This is not the correct controller for this cluster."
