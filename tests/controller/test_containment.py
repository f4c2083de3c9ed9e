"""A mistake of the controller's own costs an answer or a term, never the broker that it runs in."""

import pytest
import trio

from barnabas.controller import events
from barnabas.controller.controller import HANDLERS
from barnabas.controller.store import paths
from barnabas.controller.store.store import Create
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)


async def fail(context, event):
    """What a handler does that has a mistake in it."""
    raise IndexError("a planted mistake")


async def write_and_fail(context, event):
    await context.write([[Create("/written")]])
    await fail(context, event)


def question():
    return events.ElectionAsked([ORDERS], unclean=False)


async def leader_of_new_topic(cluster, topic):
    """A controller works if it gives a topic its leader."""
    await cluster.create(topic, [[1]])
    return (await cluster.state(topic)).leader


async def test_a_question_that_cannot_be_handled_is_answered_so_and_the_term_goes_on(cluster, monkeypatch, mistakes):
    broker = await cluster.start(1)
    monkeypatch.setitem(HANDLERS, events.ElectionAsked, fail)
    assert await cluster.ask(question()) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a planted mistake" in mistakes.take()[0]
    assert await leader_of_new_topic(cluster, "orders") == 1
    assert broker.candidate.epoch == 1


async def test_a_mistake_after_a_write_costs_the_term_and_not_the_broker(
    cluster, monkeypatch, mistakes, autojump_clock
):
    broker = await cluster.start(1)
    monkeypatch.setitem(HANDLERS, events.ElectionAsked, write_and_fail)
    assert await broker.candidate.ask(question()) == ErrorCode.UNKNOWN_SERVER_ERROR
    await trio.sleep(2)
    assert "resigns" in mistakes.take()[0]
    assert await leader_of_new_topic(cluster, "orders") == 1
    assert broker.candidate.epoch == 2


async def test_a_mistake_about_a_broker_costs_the_term(cluster, monkeypatch, mistakes, autojump_clock):
    await cluster.start(1)
    monkeypatch.setitem(HANDLERS, events.BrokerIdsTouched, fail)
    await cluster.start(2)
    monkeypatch.undo()
    await trio.sleep(2)
    assert len(mistakes.take()) == 1
    assert cluster.controller.candidate.epoch == 2
    assert await leader_of_new_topic(cluster, "orders") == 1


async def test_a_mistake_in_the_way_to_a_broker_costs_the_term(cluster, monkeypatch, mistakes, autojump_clock):
    broker = await cluster.start(1)

    def answer(request):
        raise IndexError("a planted mistake")

    monkeypatch.setattr(broker, "_update_metadata", answer)
    await cluster.create("orders", [[1]])
    monkeypatch.undo()
    await trio.sleep(2)
    assert len(mistakes.take()) == 1
    assert (await cluster.state("orders")).leader == 1
    assert cluster.controller.candidate.epoch == 2


@pytest.mark.parametrize("handler", [fail, write_and_fail])
@pytest.mark.parametrize("event", [events.PreferredElectionsTouched, events.ReassignmentsTouched])
async def test_a_node_that_cannot_be_handled_is_removed_and_ends_no_second_term(
    cluster, monkeypatch, mistakes, autojump_clock, event, handler
):
    await cluster.start(1)
    monkeypatch.setitem(HANDLERS, event, handler)
    await cluster.store.create(event.node, b"{}")
    await cluster.settle()
    monkeypatch.undo()
    await trio.sleep(2)
    assert len(mistakes.take()) == 1
    assert not await cluster.exists(event.node)
    assert cluster.controller.candidate.epoch == (1 if handler is fail else 2)
    assert await leader_of_new_topic(cluster, "orders") == 1


@pytest.mark.parametrize("event", [events.WorkLeftBehind, events.DeletionMarksTouched])
async def test_deletions_that_cannot_be_handled_leave_the_rest_of_the_term_intact(
    cluster, monkeypatch, mistakes, event
):
    monkeypatch.setitem(HANDLERS, event, fail)
    await cluster.start(1)
    await cluster.create("old", [[1]])
    await cluster.delete("old")
    assert await leader_of_new_topic(cluster, "orders") == 1
    assert len(mistakes.take()) == 1
    assert cluster.controller.candidate.epoch == 1


async def test_no_leader_is_elected_while_the_epoch_is_no_number(cluster, autojump_clock):
    broker = await cluster.start(1)
    await cluster.store.set(paths.CONTROLLER_EPOCH, b"abc")
    await cluster.store.delete(paths.CONTROLLER)
    await trio.sleep(10)
    assert not await cluster.exists(paths.CONTROLLER)
    await cluster.store.set(paths.CONTROLLER_EPOCH, b"41")
    await trio.sleep(2)
    assert broker.candidate.epoch == 42


async def test_a_partition_without_replicas_has_no_preferred_leader(cluster):
    await cluster.start(1)
    await cluster.store.create(paths.topic("orders"), b'{"version":2,"partitions":{"0":[]}}')
    await cluster.settle()
    answer = await cluster.ask(question())
    assert answer[ORDERS].code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
