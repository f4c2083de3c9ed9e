"""Transactions for administrators, on a broker that knows none: as a running Kafka 3.9.1 that has seen none."""

import pytest

from barnabas.wire import messages as m
from tests.broker.harness import Machine


async def test_a_transactional_id_has_no_coordinator_before_its_topic_exists(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    asked = m.DescribeTransactionsRequest(transactional_ids=["b", "", "b"])
    rows = (await client.ask(asked)).transaction_states
    assert [(row.transactional_id, row.error_code) for row in rows] == [("b", 16), ("", 42), ("b", 16)]
    await client.create_topic("__transaction_state", 3)
    rows = (await client.ask(asked)).transaction_states
    assert [row.error_code for row in rows] == [105, 42, 105]


@pytest.mark.parametrize("version", range(2))
async def test_the_list_of_transactions_is_empty_and_names_unknown_states(nursery, autojump_clock, version):
    client = await (await Machine(nursery).start()).connect()
    wanted = ["Ongoing", "nonsense", "ongoing", "PrepareEpochFence", "Dead", "nonsense"]
    answer = await client.ask(m.ListTransactionsRequest(state_filters=wanted, producer_id_filters=[1]), version)
    assert (answer.error_code, answer.transaction_states) == (0, [])
    assert answer.unknown_state_filters == ["nonsense", "ongoing"]
