"""Messages that name what a client sent: however long that is, the response reaches the client."""

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.altering import BROKER, TOPIC, changing
from tests.broker.handlers.authorized import make
from tests.broker.harness import Machine
from tests.broker.requests import new_topics

LONGEST = "x" * 32_700
THROTTLED = "leader.replication.throttled.replicas"
OF_USER = [{"entity_type": "user", "entity_name": "a"}]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (changing((TOPIC, "t", {THROTTLED: "x," * 16_000})), ErrorCode.INVALID_CONFIG),
        (changing((TOPIC, "t", {"retention.ms": LONGEST})), ErrorCode.INVALID_CONFIG),
        (changing((TOPIC, "t", {LONGEST: "1"})), ErrorCode.INVALID_CONFIG),
        (changing((TOPIC, "t", {f"{number}{LONGEST}"[:32_700]: (0, None) for number in range(9)})), 42),
        (changing((TOPIC, LONGEST, {})), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (changing((BROKER, "1", {"log.cleaner.backoff.ms": LONGEST})), ErrorCode.INVALID_REQUEST),
        (changing((BROKER, LONGEST, {})), ErrorCode.INVALID_REQUEST),
        (make("DescribeConfigs", resources=[{"resource_type": 2, "resource_name": LONGEST}]), 17),
        (new_topics(LONGEST), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (make("CreatePartitions", topics=[{"name": LONGEST, "count": 2, "assignments": None}]), 3),
        (make("AlterClientQuotas", entries=[{"entity": OF_USER, "ops": [{"key": LONGEST, "value": 1.0}]}]), 42),
        (make("DescribeUserScramCredentials", users=[{"name": LONGEST}]), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
async def test_a_message_is_cut_to_what_a_response_can_have(nursery, autojump_clock, request_, code):
    client = await (await Machine(nursery, broker_id="1").start()).connect()
    await client.create_topic("t")
    answer = await client.ask(request_)
    lists = (getattr(answer, name, ()) for name in ("responses", "results", "topics", "entries"))
    (row,) = next(filter(None, lists))
    assert row.error_code == code
    assert len(row.error_message) <= 8001
    assert isinstance(await client.ask(m.ListGroupsRequest()), m.ListGroupsResponse)
