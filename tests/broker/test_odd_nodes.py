"""What a person, a tool or another version may have left in the metadata store: no broker ends because of it."""

import json

import pytest
import trio

from barnabas.controller.store import paths
from barnabas.controller.store.store import NodeExists, with_ancestors
from tests.broker.clusters import cluster, controller_of, create_topic, leader_of, machines_of_cluster, until

INT32_MAX = (1 << 31) - 1
TOPIC = "/brokers/topics/t"
STATE = f"{TOPIC}/partitions/0/state"
REASSIGN, PREFERRED = paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION
GARBAGE = (
    None,
    b"",
    b"x",
    b"\xff\xfe",
    b"[]",
    b"null",
    b"1",
    b"{}",
    b'{"version":"9"}',
    b'{"version":99}',
    b"[" * 5000,
)


def text(value):
    return json.dumps(value).encode()


def topic(partitions, **changes):
    return TOPIC, text(
        {"version": 3, "partitions": partitions, "adding_replicas": {}, "removing_replicas": {}} | changes
    )


def state(**changes):
    return STATE, text({"controller_epoch": 0, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2]} | changes)


def broker(**changes):
    registration = {
        "version": 5,
        "endpoints": ["PLAINTEXT://h:9"],
        "host": "h",
        "port": 9,
        "timestamp": "1",
        "jmx_port": -1,
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    }
    return "/brokers/ids/7", text(registration | changes)


def listed(**entry):
    return text({"version": 1, "partitions": [entry]})


def notice(entity):
    return "/config/changes/config_change_0000000001", text({"version": 2, "entity_path": entity})


GOOD = topic({"0": [1, 2]})
NODES_OF_JSON = (
    STATE,
    "/brokers/ids/7",
    REASSIGN,
    PREFERRED,
    "/config/topics/t",
    "/config/topics/sane",
    "/config/brokers/1",
    "/config/brokers/<default>",
    "/config/users/u",
    "/config/changes/config_change_0000000001",
    "/isr_change_notification/isr_change_0000000001",
    "/log_dir_event_notification/log_dir_event_0000000001",
    "/feature",
    "/latest_producer_id_block",
    "/admin/delete_topics/t",
    "/brokers/seqid",
)

# What is in the store, by what is odd about it: paths and data.
ODD = {
    "garbage in place of a topic": [[(TOPIC, data), state()] for data in GARBAGE],
    "garbage in all other nodes": [[GOOD, *((path, data) for path in NODES_OF_JSON)] for data in GARBAGE],
    "replicas": [
        [topic({}), state()],
        [topic({"0": []}), state()],
        [topic({"0": []}), state(), (PREFERRED, listed(topic="t", partition=0))],
        [topic({"0": []}), state(), (REASSIGN, listed(topic="t", partition=0, replicas=[1, 2]))],
        [topic({"0": [1, 1]}), state()],
        [topic({"0": [-1, 1]}), state()],
        [topic({"0": [2**40, 1]}), state()],
        [topic({"0": [5, 6]}), state()],
        [topic({"0": [1, True]})],
        [topic({"5": [1, 2]})],
        [topic({str(2**40): [1, 2]})],
        [topic({"9" * 5000: [1, 2]})],
        [topic({"-1": [1, 2]})],
        [topic({"0": [1, 2]}, topic_id="x")],
        [topic({"0": [1, 2]}, topic_id="AAAAAAAAAAAAAAAAAAAAAA")],
    ],
    "moves": [
        [topic({"0": [1, 2]}, **{which: {index: replicas}}), state()]
        for which in ("adding_replicas", "removing_replicas")
        for index in ("0", "3")
        for replicas in ([7], [1, 2], [2**40], [])
    ]
    + [[topic({"0": [1]}, adding_replicas={"0": [1]}, removing_replicas={"0": [1]}), state(isr=[1])]],
    "states": [
        [GOOD, state(**changes)]
        for changes in (
            {"leader": 5, "isr": [5]},
            {"leader": -1},
            {"leader": -2},
            {"leader": 2**40},
            {"isr": []},
            {"isr": [1, 9]},
            {"isr": [1, 1]},
            {"isr": [2**40]},
            {"leader_epoch": -5},
            {"leader_epoch": INT32_MAX},
            {"leader_epoch": INT32_MAX, "leader": -1},
            {"leader_epoch": 2**31},
            {"controller_epoch": 99},
            {"controller_epoch": 99, "leader": -1},
            {"controller_epoch": 2**40},
            {"leader_recovery_state": 7},
        )
    ],
    "names of topics": [
        [(f"/brokers/topics/{name}", GOOD[1])]
        for name in ("a b", "x" * 400, "a%2Fb", "té", "t-0", "a\u00a0b", "...", "__cluster_metadata")
    ],
    "children of topics": [[GOOD, (f"{TOPIC}/partitions/{name}", None)] for name in ("abc", "99999999999", "-1")],
    "a coordinator's topic": [[("/brokers/topics/__consumer_offsets", topic({"3": [1]})[1])]],
    "one id twice": [
        [
            topic({"0": [1]}, topic_id="AAAAAAAAAAAAAAAAAAAAAQ"),
            ("/brokers/topics/u", topic({"0": [1]}, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")[1]),
        ]
    ],
    "brokers": [
        [broker(**changes)]
        for changes in (
            {"endpoints": []},
            {"endpoints": ["PLAINTEXT://h:99999999999"]},
            {"endpoints": ["PLAINTEXT://h:-5"]},
            {"endpoints": ["nonsense"]},
            {"listener_security_protocol_map": {"PLAINTEXT": "WEIRD"}},
            {"rack": "\ud800"},
            {"features": {"x": {"min": 2**40}}},
            {"timestamp": "x"},
            {"epoch": "unknown keys", "previous": [1]},
        )
    ]
    + [[(f"/brokers/ids/{name}", broker()[1])] for name in ("abc", "99999999999", "9" * 5000, "-1", "٣")],
    "requests by node": [
        [GOOD, state(), (path, data)]
        for path, data in (
            (REASSIGN, listed(topic="q", partition=0, replicas=[1])),
            (REASSIGN, listed(topic="t", partition=0, replicas=[])),
            (REASSIGN, listed(topic="t", partition=0, replicas=[55])),
            (REASSIGN, listed(topic="t", partition=-1, replicas=[1])),
            (REASSIGN, listed(topic="t", partition=0, replicas=[2**40, 1])),
            (REASSIGN, listed(topic="\ud800", partition=0, replicas=[1])),
            (PREFERRED, listed(topic="q", partition=0)),
            (PREFERRED, listed(topic="t", partition=2**40)),
            ("/admin/delete_topics/nope", None),
            ("/admin/delete_topics/a b", b"x"),
        )
    ],
    "notices": [
        [(f"/{folder}/{name}", data)]
        for folder, prefix in (
            ("config/changes", "config_change_"),
            ("isr_change_notification", "isr_change_"),
            ("log_dir_event_notification", "log_dir_event_"),
        )
        for name in (f"{prefix}x", f"{prefix}1", f"{prefix}-000000001", "other", f"{prefix}{'9' * 5000}")
        for data in (None, b"x")
    ]
    + [
        [notice(entity)]
        for entity in ("", "weird", "topics", "topics/", "topics//../x", "topics/a\x00b", "brokers/", "/")
    ]
    + [[("/isr_change_notification/isr_change_0000000001", listed(topic="q", partition=-7))]],
    "configurations": [
        [GOOD, (f"/config/{entity}", text({"version": 1, "config": config}))]
        for entity in ("topics/t", "brokers/1", "brokers/<default>", "brokers/x")
        for config in (
            {"retention.ms": "x", "segment.bytes": "-9", "cleanup.policy": "weird", "min.insync.replicas": "0"},
            {"log.retention.ms": "x", "num.replica.fetchers": "-5", "listeners": "", "no such": ""},
            {"advertised.listeners": "x", "log.cleaner.threads": "999999999999999999"},
        )
    ],
    "other nodes": [
        [("/latest_producer_id_block", text({"version": 1, "broker": 1, "block_start": "0", "block_end": str(2**63)}))],
        [("/migration", text({"version": 0, "kraft_controller_id": 3000, "kraft_controller_epoch": 9}))],
        [("/controller_epoch", str(INT32_MAX - 9).encode())],
    ],
}


async def put(machine, nodes):
    store = machine.session()
    for path, data in nodes:
        for each, value in (*((parent, None) for parent in with_ancestors([path])[:-1]), (path, data)):
            try:
                await store.create(each, value)
            except NodeExists:
                if each == path:
                    await store.set(path, data)
    await store.close()


async def assert_they_work(machines, topic):
    """The brokers run, and a new topic on both of them takes records."""
    with trio.fail_after(60):
        while not all({1, 2} <= machine.broker.metadata.brokers.keys() for machine in machines):
            await trio.sleep(0.1)
        await until(lambda: any(machine.broker.candidate.is_active for machine in machines))
        client = await controller_of(machines).connect()
        await create_topic(client, topic, [1, 2])
        leader = await leader_of(machines, topic)
        assert (await (await leader.connect()).produce(topic, b"v")).error_code == 0
    assert [machine.failure for machine in machines] == [None, None]


@pytest.mark.thorough
@pytest.mark.parametrize("what", ODD)
async def test_brokers_start_whatever_the_store_holds(nursery, autojump_clock, what):
    for nodes in ODD[what]:
        machines = await machines_of_cluster(nursery, 2)
        await put(machines[0], nodes)
        for machine in machines:
            await machine.start()
        await trio.sleep(5)
        await assert_they_work(machines, "sane")
        for machine in machines:
            await machine.crash()


@pytest.mark.parametrize("what", ODD)
async def test_brokers_go_on_whatever_is_written_to_the_store(nursery, autojump_clock, what):
    async with cluster(nursery, 2) as machines:
        for index, nodes in enumerate(ODD[what]):
            await put(machines[0], nodes)
            await trio.sleep(5)
            await assert_they_work(machines, f"sane-{index}")


@pytest.mark.parametrize("epoch", [None, b"", b"abc", b"-1", str(INT32_MAX + 1).encode(), b"9" * 5000])
async def test_brokers_go_on_without_a_controller_while_its_epoch_is_unknown(nursery, autojump_clock, epoch):
    """As in Kafka no controller is elected until an administrator has restored the epoch."""
    machines = await machines_of_cluster(nursery, 2)
    await put(machines[0], [(paths.CONTROLLER_EPOCH, epoch)])
    for machine in machines:
        await machine.start()
    await trio.sleep(20)
    assert [machine.failure for machine in machines] == [None, None]
    await put(machines[0], [(paths.CONTROLLER_EPOCH, b"41")])
    await assert_they_work(machines, "sane")


async def test_a_controller_whose_epoch_becomes_unknown_is_followed_when_it_is_restored(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        await put(machines[0], [(paths.CONTROLLER_EPOCH, b"abc"), ("/brokers/topics/t", GOOD[1])])
        await trio.sleep(20)
        assert [machine.failure for machine in machines] == [None, None]
        await put(machines[0], [(paths.CONTROLLER_EPOCH, b"41")])
        await assert_they_work(machines, "sane")
