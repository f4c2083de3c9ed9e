"""Searches in logs: which operations exclude them, and that they delay no other operation."""

import threading
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from barnabas.replication.logs.gate import FRUITLESS_REMEMBERED, Gate
from barnabas.storage.disk import StorageError
from barnabas.storage.segments import SearchDisturbed
from barnabas.wire.errors import ErrorCode
from barnabas.world.world import request_threads, run_inline
from tests.broker.clock import START_MS
from tests.broker.replica_group import Group
from tests.broker.requests import list_offsets_request
from tests.replication.moving import TEN, has_moved, move, with_directories

REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def gate_of(in_request_thread) -> Gate:
    """Of logs that are neither flushed nor compacted."""
    return Gate(None, None, in_request_thread)  # type: ignore[arg-type]


def counting(done: list[int], count: int = 3):
    """Steps that note when they run."""
    for number in range(count):
        done.append(number)
        yield
    return "found"


def failing(error: Exception):
    yield
    raise error


def partition_of(log: object, failed: list[StorageError]):
    return SimpleNamespace(log=log, fail_storage=lambda error: failed.append(error) or ErrorCode.KAFKA_STORAGE_ERROR)


# -- one search


async def test_a_search_answers_what_its_steps_find():
    log, done = object(), []
    assert await gate_of(run_inline).search(partition_of(log, []), log, counting(done)) == "found"
    assert done == [0, 1, 2]


async def test_no_step_runs_on_the_event_loop():
    log, threads = object(), []

    def steps():
        threads.append(threading.current_thread())
        yield
        threads.append(threading.current_thread())

    await gate_of(request_threads()).search(partition_of(log, []), log, steps())
    assert len(threads) == 2
    assert threading.current_thread() not in threads


async def test_an_error_of_the_disk_counts_only_while_the_partition_has_that_log():
    log, failed, error = object(), [], StorageError("/a/t-0/x", "open", "ENOENT")
    gate = gate_of(run_inline)
    assert await gate.search(partition_of(object(), failed), log, failing(error)) == REFUSED
    assert failed == []
    assert await gate.search(partition_of(log, failed), log, failing(error)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert failed == [error]


async def test_a_search_that_its_log_disturbs_too_often_is_refused():
    log = object()
    assert await gate_of(run_inline).search(partition_of(log, []), log, failing(SearchDisturbed())) == REFUSED


def test_only_so_many_fruitless_questions_are_remembered():
    gate = gate_of(run_inline)
    for number in range(FRUITLESS_REMEMBERED + 1):
        gate.note_fruitless(number)
    assert [gate.was_fruitless(number) for number in (0, 1, FRUITLESS_REMEMBERED)] == [False, True, True]


# -- who keeps them out


async def test_a_search_that_is_kept_out_does_not_begin():
    gate, log, done = gate_of(run_inline), object(), []
    async with gate.without_searches(log), gate.without_searches(log):
        assert await gate.search(partition_of(log, []), log, counting(done)) == REFUSED
    assert done == []
    assert await gate.search(partition_of(log, []), log, counting(done)) == "found"


async def test_searches_that_wait_for_a_thread_are_not_waited_for_and_touch_nothing(autojump_clock):
    async def in_busy_thread(function, /, *args):
        await trio.sleep(60)
        return function(*args)

    gate, log, done, answers = gate_of(in_busy_thread), object(), [], []

    async def search() -> None:
        answers.append(await gate.search(partition_of(log, []), log, counting(done)))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(search)
        await trio.sleep(1)
        async with gate.without_searches(log):
            assert trio.current_time() == 1
            await trio.sleep(100)
    assert (answers, done) == ([REFUSED] * 5, [])


async def test_the_step_that_runs_is_waited_for_and_is_the_last():
    gate, log, done = gate_of(request_threads()), object(), []
    begun, may_end, answers = trio.Event(), threading.Event(), []

    def steps():
        trio.from_thread.run_sync(begun.set)
        may_end.wait(10)
        done.append("one step")
        yield
        done.append("another")

    async def search() -> None:
        answers.append(await gate.search(partition_of(log, []), log, steps()))

    async def cut() -> None:
        async with gate.without_searches(log):
            done.append("the cut")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(search)
        await begun.wait()
        nursery.start_soon(cut)
        await trio.testing.wait_all_tasks_blocked()
        assert done == []
        may_end.set()
    assert (done, answers) == (["one step", "the cut"], [REFUSED])


# -- in a broker


async def keep_asking(machine, replica_id: int, answers: list[int]) -> None:
    """A client that searches by time, again as soon as it is answered."""
    client = await machine.connect()
    while True:
        answer = await client.ask(list_offsets_request([("t", 0, START_MS)], replica_id=replica_id))
        answers.append(answer.topics[0].partitions[0].error_code)
        await trio.sleep(0.001)  # a refusal takes no time, and virtual time stands while there is something to do


async def test_searches_of_clients_hold_up_neither_a_truncation_nor_other_roles(nursery, autojump_clock):
    group = await Group.start(nursery, count=2)
    topic, answers = group.topic("t", replicas=(1, 2)), []
    await topic.led_by(2, isr=[2], to=[2])
    await topic.produce(*[b"v%d" % number for number in range(20)])
    log = group.machines[2].broker.replicas.logs.get(topic.key)
    group.machines[2].thread_seconds = 0.3
    for _ in range(3):
        nursery.start_soon(keep_asking, group.machines[2], -2, answers)
        await trio.sleep(0.1)
    await trio.sleep(2)
    with trio.fail_after(20):
        await topic.led_by(1)
        await group.topic("u", replicas=(1, 2)).led_by(2)
        while log.is_being_cut or log.log_end_offset:
            await trio.sleep(0.1)
    assert {ErrorCode.NONE, REFUSED} >= set(answers)
    assert group.machines[2].broker.replicas.logs.offline_directories == {}


@pytest.mark.parametrize("timestamp", [-1, -2, -3, START_MS])
async def test_a_log_that_is_being_cut_answers_no_question_about_offsets(nursery, autojump_clock, timestamp):
    group = await Group.start(nursery, count=1)
    topic = group.topic("t", replicas=(1,))
    await topic.led_by(1)
    group.machines[1].broker.replicas.logs.get(topic.key).is_being_cut = True
    answer = await group.clients[1].ask(list_offsets_request([("t", 0, timestamp)], replica_id=-2))
    assert answer.topics[0].partitions[0].error_code == REFUSED


async def test_a_partition_moves_to_another_directory_while_clients_search_in_it(nursery, autojump_clock):
    machine, client = await with_directories(nursery)
    await client.create_topic("t")
    for value in TEN:
        await client.produce("t", value)
    machine.thread_seconds, answers = 0.05, []
    for _ in range(3):
        nursery.start_soon(keep_asking, machine, -1, answers)
        await trio.sleep(0.02)
    assert await move(client, "/b") == 0
    await has_moved(machine, "/b")
    await trio.sleep(1)
    assert set(answers) <= {ErrorCode.NONE, REFUSED}
    assert answers[-1] == ErrorCode.NONE
    assert machine.broker.replicas.logs.offline_directories == {}
