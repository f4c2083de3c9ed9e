"""With an authorizer, requests are answered in the step that has read them while their client may send them."""

import logging

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.call import audit
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from tests.broker.handlers.authorized import EVERYTHING, grant
from tests.broker.now.both_ways import see
from tests.broker.requests import fetch_request, produce_request

AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
BATCH = bytearray(build_batch([(None, b"v")], timestamp_ms=1_700_000_000_000).data)
PRODUCE = (0, 11, produce_request("t", BATCH, acks=1))
FETCH = (1, 12, fetch_request([("t", 0, 0)], session=(0, -1), max_wait_ms=100))


class Lines(logging.Handler):
    """The lines of the audit log."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def framed(number, api_key, version, request):
    """The bytes of a request of the client `test`."""
    head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + number.to_bytes(4, "big") + b"\0\4test"
    return head + (b"\0" if version >= (9 if api_key == 0 else 12) else b"") + m.encode(request, version)


def history_of(steps, lines, level):
    async def history(machine, client):
        rights = machine.broker.authorization
        await rights.create([grant("Create Topic t")])
        await (await machine.connect()).create_topic("t")
        before = audit.level
        audit.addHandler(lines)
        audit.setLevel(level)
        try:
            answers = []
            for number, step in enumerate(steps):
                if isinstance(step, tuple):
                    answers += await client.ask(framed(number, *step))
                elif step == "nothing is allowed":
                    await rights.delete([EVERYTHING])
                else:
                    await rights.create([grant(step)])
                await trio.sleep(1)
            return answers
        finally:
            audit.setLevel(before)
            audit.removeHandler(lines)

    return history


def seen(steps, *, is_now, level=logging.INFO):
    lines = Lines()
    found, answered = see(history_of(steps, lines, level), is_now=is_now, **AUTHORIZER)
    return (found.answers, found.logs, found.counts, lines.lines), answered


changes = st.sampled_from(["Write Topic t", "Read Topic t", "nothing is allowed"])


@settings(max_examples=8)
@given(st.lists(st.one_of(st.sampled_from([PRODUCE, FETCH]), changes), max_size=12))
def test_both_ways_give_the_same_answers_and_audit_log_however_rights_change(steps):
    begin = ["Write Topic t", "Read Topic t", PRODUCE, FETCH, PRODUCE, FETCH]
    now, answered = seen([*begin, *steps], is_now=True)
    general, _ = seen([*begin, *steps], is_now=False)
    assert now == general
    assert answered >= 2


@pytest.mark.parametrize("request_", [PRODUCE, FETCH], ids=["Produce", "Fetch"])
def test_a_right_that_is_taken_away_is_missed_at_once_and_each_refusal_is_logged(request_):
    steps = ["Write Topic t", "Read Topic t", *[request_] * 3, "nothing is allowed", *[request_] * 3]
    (answers, _, _, lines), answered = seen(steps, is_now=True)
    assert answered >= 2
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big")
    assert [refused in answer for answer in answers] == [False] * 3 + [True] * 3
    assert len(lines) == 3
    assert all("is Denied" in line for line in lines)


def test_permissions_are_logged_for_each_request_where_that_is_asked_for():
    (_, _, _, lines), answered = seen(["Write Topic t", *[PRODUCE] * 3], is_now=True, level=logging.DEBUG)
    assert answered == 0
    assert [line.count("is Allowed Operation = Write") for line in lines] == [1, 1, 1]
