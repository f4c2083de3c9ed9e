"""A replica whose log directory failed is lost until the directory is back: no role makes an empty log of it.

An empty log that leads, or that counts as in sync, would have the others cut to it: records would be gone that all of
them had acknowledged.
"""

import pytest
import trio

from barnabas.broker.serve import SHORTAGE_REPORT_SECONDS
from barnabas.controller.store.store import StoreUnavailable
from barnabas.storage.disk import StorageError
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine
from tests.broker.replica_group import Group
from tests.replication.controlled import codes_of, roles


def lose_directory(machine, key):
    """The directory of this partition's log fails."""
    log = machine.broker.replicas.logs.get(key)
    machine.broker.replicas.logs.fail_directory_of(log, StorageError(log.directory, "write", "EIO"))


async def test_a_first_role_repeated_after_the_directory_failed_makes_no_empty_leader(nursery, autojump_clock):
    group = await Group.start(nursery, log_dirs="/a,/b")
    topic = group.topic("t")
    await topic.led_by(1)
    first_role = await topic.leader_and_isr_request()  # the sender repeats it when the answer was lost
    await topic.produce(*[b"v%d" % number for number in range(10)], acks=-1)
    lose_directory(group.machines[1], topic.key)
    answer = await group.clients[1].ask(first_role)
    assert codes_of(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    await trio.sleep(5)
    ends = {each: group.machines[each].broker.replicas.logs.get(topic.key) for each in (1, 2, 3)}
    assert {each: log and log.log_end_offset for each, log in ends.items()} == {1: None, 2: 10, 3: 10}


@pytest.mark.parametrize("leader_epoch", [3, 7, 8])
@pytest.mark.parametrize("is_new", [True, False])
async def test_no_role_of_any_epoch_replaces_a_log_whose_directory_failed(
    nursery, autojump_clock, leader_epoch, is_new
):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    await client.ask(roles(machine, "t", [0], leader_epoch=7))
    lose_directory(machine, ("t", 0))
    answer = await client.ask(roles(machine, "t", [0], leader_epoch=leader_epoch, is_new=is_new))
    assert codes_of(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not any(machine.disk.exists(f"{path}/t-0") for path in machine.broker.replicas.logs.online_directories)


async def test_a_log_that_lacked_a_descriptor_is_made_when_the_role_is_repeated(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    for _ in range(2):  # each of the directories refuses
        machine.disk.fail_next("open", "EMFILE", path_part="t-0")
    assert codes_of(await client.ask(roles(machine, "t", [0]))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes_of(await client.ask(roles(machine, "t", [0]))) == [ErrorCode.NONE]
    assert (await client.produce("t", b"v")).error_code == 0


async def test_a_topic_whose_log_lacked_a_descriptor_gets_its_leader_without_a_restart(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    machine.disk.fail_next("open", "EMFILE", path_part="t-0")
    await client.create_topic("t")
    assert (await client.produce("t", b"v")).error_code != 0
    await trio.sleep(2 * SHORTAGE_REPORT_SECONDS)
    assert (await client.produce("t", b"v")).error_code == 0


async def test_a_topic_whose_settings_could_not_be_read_gets_its_leader_without_a_restart(
    nursery, autojump_clock, monkeypatch
):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    load = machine.broker.topic_configs.load

    async def unavailable(topics):
        monkeypatch.setattr(machine.broker.topic_configs, "load", load)
        raise StoreUnavailable("store.db", "for a moment")

    monkeypatch.setattr(machine.broker.topic_configs, "load", unavailable)
    await client.create_topic("t")
    assert (await client.produce("t", b"v")).error_code != 0
    await trio.sleep(2 * SHORTAGE_REPORT_SECONDS)
    assert (await client.produce("t", b"v")).error_code == 0


async def test_a_topic_whose_log_lacked_a_descriptor_can_be_deleted(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    for _ in range(10):  # no attempt makes the log
        machine.disk.fail_next("open", "EMFILE", path_part="t-0")
    await client.create_topic("t")
    await client.delete_topic("t")
    await trio.sleep(2 * SHORTAGE_REPORT_SECONDS)
    machine.disk.forget_faults()
    await client.create_topic("t")
    assert (await client.produce("t", b"v")).error_code == 0
