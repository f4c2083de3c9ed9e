"""A broker says in its registration since when it has lost nothing, and a controller believes that and no more."""

import json

import pytest
import trio

from barnabas.broker.cluster.boot_mark import BOOT_MARK
from barnabas.controller.admin.registration import CannotRegister
from barnabas.controller.store import paths
from barnabas.controller.store.store import Create, Delete, SetData
from barnabas.replication.logs.directory import FAILURE_MARK
from barnabas.storage.memdisk import MemDisk
from tests.broker.clock import now_ms
from tests.broker.clusters import cluster, create_topic, leader_of
from tests.broker.harness import Machine


async def registered(machine):
    """The broker epoch, and since which one it says that nothing was lost."""
    store = machine.session()
    data, stat = await store.get(paths.broker(1))
    await store.close()
    return stat.czxid, paths.BrokerRegistration.decode(data, "").kept_since


async def stopped(machine):
    await machine.stop()


async def killed(machine):
    await machine.crash()


async def machine_crashed(machine):
    await machine.cut_power(seed=1)


async def killed_before_the_machine_crashed(machine):
    await machine.crash()
    await machine.cut_power(seed=1)


async def stopped_before_the_machine_crashed(machine):
    await machine.stop()
    await machine.cut_power(seed=1)


async def wiped(machine):
    await machine.crash()
    machine.disk.remove_tree("/a")


async def replaced(machine):
    await machine.stop()
    machine.disk = MemDisk(now_ms=now_ms)


async def failed(machine):
    await machine.crash()
    machine.disk.open(f"/b/{FAILURE_MARK}", create=True).release()


async def marked_with_garbage(machine):
    await machine.crash()
    machine.disk.replace_file(f"/b/{BOOT_MARK}", b"garbage")


async def moved_to_a_machine_without_boot_ids(machine):
    await machine.crash()
    machine.boot_id = None


async def stopped_and_moved_to_a_machine_without_boot_ids(machine):
    await machine.stop()
    machine.boot_id = None


async def given_another_directory(machine):
    await machine.stop()
    machine.properties["log.dirs"] = "/a,/b,/c"


async def deprived_of_a_directory(machine):
    await machine.stop()
    machine.properties["log.dirs"] = "/b"


async def given_its_directories_in_another_order(machine):
    await machine.stop()
    machine.properties["log.dirs"] = "/b,/a"


async def given_the_directory_at_another_path(machine):
    await machine.stop()
    if machine.disk.exists("/a"):
        machine.disk.rename("/a", "/elsewhere")
    machine.properties["log.dirs"] = "/elsewhere,/b"


async def last_started_by_an_older_version(machine):
    await machine.stop()
    remark(machine)


async def given_another_directory_after_an_older_version(machine):
    await last_started_by_an_older_version(machine)
    machine.properties["log.dirs"] = "/a,/b,/c"


def remark(machine) -> None:
    """Leave marks as of a version that named no directories in them."""
    for path in ("/a", "/b"):
        mark = json.loads(machine.disk.read_file(f"{path}/{BOOT_MARK}"))
        old = {name: mark[name] for name in ("version", "boot_id", "kept_since")}
        machine.disk.replace_file(f"{path}/{BOOT_MARK}", json.dumps(old).encode())


async def started_without_a_directory_that_fails(machine):
    await machine.stop()
    machine.disk.fail_next("list", path_part="/a")


KEPT = [
    stopped,
    killed,
    stopped_before_the_machine_crashed,
    stopped_and_moved_to_a_machine_without_boot_ids,
    given_another_directory,
    given_its_directories_in_another_order,
    given_the_directory_at_another_path,
    last_started_by_an_older_version,
]
LOST = [
    machine_crashed,
    killed_before_the_machine_crashed,
    wiped,
    replaced,
    failed,
    marked_with_garbage,
    moved_to_a_machine_without_boot_ids,
    deprived_of_a_directory,
    given_another_directory_after_an_older_version,
]


def name_of(happened):
    return happened.__name__.replace("_", " ")


@pytest.mark.parametrize("happened", KEPT, ids=name_of)
async def test_what_was_written_is_kept_since_the_first_registration(nursery, autojump_clock, happened):
    machine = await Machine(nursery, broker_id="1", log_dirs="/a,/b").start()
    first, said = await registered(machine)
    assert said is None
    for _ in range(2):
        await happened(machine)
        await machine.start()
        assert (await registered(machine))[1] == first


@pytest.mark.parametrize("happened", LOST, ids=name_of)
async def test_what_may_be_lost_is_not_vouched_for(nursery, autojump_clock, happened):
    machine = await Machine(nursery, broker_id="1", log_dirs="/a,/b").start()
    await happened(machine)
    await machine.start()
    second, said = await registered(machine)
    assert said is None
    if machine.boot_id is not None:
        await killed(machine)
        await machine.start()
        assert (await registered(machine))[1] == second


async def test_a_directory_that_was_offline_and_is_then_taken_away_is_missed(nursery, autojump_clock):
    machine = await Machine(nursery, broker_id="1", log_dirs="/a,/b").start()
    await started_without_a_directory_that_fails(machine)
    await machine.start()
    assert (await registered(machine))[1] is not None
    await deprived_of_a_directory(machine)
    await machine.start()
    assert (await registered(machine))[1] is None


async def test_marks_that_do_not_hold_are_gone_before_anything_else_is_done(nursery, autojump_clock):
    machine = await Machine(nursery, broker_id="1").start()
    await machine_crashed(machine)
    other = await machine.join(1)  # another session has registered this id, so the start fails
    with pytest.raises(CannotRegister):
        await machine.start()
    assert not machine.disk.exists(f"/data/{BOOT_MARK}")
    await other.close()


async def test_a_session_that_expires_costs_no_trust(nursery, autojump_clock):
    machine = await Machine(nursery, broker_id="1").start()
    first, _ = await registered(machine)
    await machine.broker.store.expire()
    await trio.sleep(5)
    second, said = await registered(machine)
    assert second > first == said


async def test_one_whose_process_died_leads_instead_of_one_whose_machine_forgot(nursery, autojump_clock):
    """Both happen while no controller is elected. The next one must see that the two brokers differ."""
    async with cluster(nursery, 3, log_flush_interval_messages="1000000") as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2, 3], min_insync_replicas="2")
        client = await (await leader_of(machines, "t")).connect()
        assert [(await client.produce("t", each)).error_code for each in (b"a", b"b", b"c")] == [0, 0, 0]
        stranger = one.session()
        epoch = paths.ControllerEpoch(await one.controller_epoch() + 1).encode()
        election = Create(paths.CONTROLLER, paths.ControllerNode(9, now_ms()).encode(), ephemeral=True)
        await stranger.multi([Delete(paths.CONTROLLER), election, SetData(paths.CONTROLLER_EPOCH, epoch)])
        await two.cut_power(seed=1)
        await three.crash()
        for machine in (two, three):
            await machine.start()
        await stranger.close()
        leader = await leader_of(machines, "t")
        assert leader is three
        assert await (await leader.connect()).read_values("t") == [b"a", b"b", b"c"]
