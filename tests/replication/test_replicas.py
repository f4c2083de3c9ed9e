"""What the controller says and what becomes of it: roles, fences, deletion, failing disks, in every version."""

import pytest
import trio

from barnabas.storage.checkpoint import HIGH_WATERMARK_CHECKPOINT, read_checkpoint
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import LEADER_DURING_DELETE
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition
from tests.broker.clusters import until
from tests.broker.harness import Machine
from tests.broker.requests import produce_many, produce_request, values_in
from tests.replication.controlled import codes_of, roles


async def with_topic(nursery, partitions=1, **properties):
    machine = await Machine(nursery, **properties).start()
    client = await machine.connect()
    topic_id = await client.create_topic("t", partitions)
    return machine, client, topic_id


def stopping(version, *, delete, leader_epoch=-1, controller_epoch=1, broker_epoch=-1, partition=0):
    """StopReplica for a partition of t, in the shape of the version."""
    common = {"controller_id": 1001, "controller_epoch": controller_epoch}
    if version >= 1:
        common["broker_epoch"] = broker_epoch
    if version >= 3:
        state = m.StopReplicaRequest.StopReplicaPartitionState(
            partition_index=partition, leader_epoch=leader_epoch, delete_partition=delete
        )
        topic = m.StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=[state])
        return m.StopReplicaRequest(topic_states=[topic], **common)
    if version >= 1:
        topics = [m.StopReplicaRequest.StopReplicaTopicV1(name="t", partition_indexes=[partition])]
        return m.StopReplicaRequest(topics=topics, delete_partitions=delete, **common)
    single = m.StopReplicaRequest.StopReplicaPartitionV0(topic_name="t", partition_index=partition)
    return m.StopReplicaRequest(ungrouped_partitions=[single], delete_partitions=delete, **common)


# -- LeaderAndIsr


@pytest.mark.parametrize("version", range(8))
async def test_every_version_of_leader_and_isr_makes_a_leader(nursery, autojump_clock, version):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    answer = await client.ask(roles(machine, "t", [0, 2], version=version), version)
    assert (answer.error_code, codes_of(answer)) == (0, [0, 0])
    assert (await client.produce("t", b"v", 2)).error_code == 0
    assert machine.disk.exists("/data/t-0")
    assert not machine.disk.exists("/data/t-1")


async def test_a_follower_answers_that_it_does_not_lead(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery)
    await client.produce("t", b"v")
    others = {"leader": 2, "isr": [2, 1001], "replicas": [2, 1001]}
    answer = await client.ask(roles(machine, "t", [0], topic_id=topic_id, leader_epoch=1, **others))
    assert codes_of(answer) == [0]
    assert (await client.produce("t", b"v")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await client.fetch("t", version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert values_in(await client.fetch("t", version=11)) == [b"v"]  # what is committed it serves (KIP-392)
    answer = await client.ask(roles(machine, "t", [0], topic_id=topic_id, leader_epoch=2, replicas=[2, 1001]))
    assert codes_of(answer) == [0]
    assert await client.read_values("t") == [b"v"]


@pytest.mark.parametrize(("leader_epoch", "code"), [(3, 0), (2, ErrorCode.STALE_CONTROLLER_EPOCH), (1, 11)])
async def test_a_leader_epoch_that_is_not_newer_changes_nothing(nursery, autojump_clock, leader_epoch, code):
    machine, client, topic_id = await with_topic(nursery)
    await client.ask(roles(machine, "t", [0], topic_id=topic_id, leader_epoch=2))
    lost = {"leader": 2, "isr": [2], "replicas": [1001, 2]}
    answer = await client.ask(roles(machine, "t", [0], topic_id=topic_id, leader_epoch=leader_epoch, **lost))
    assert codes_of(answer) == [code]
    assert (await client.produce("t", b"v")).error_code == (0 if code else ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_each_partition_has_its_own_error(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery, 2)
    state = {"leader_epoch": 1}
    request = roles(machine, "t", [0, 1], topic_id=topic_id, **state)
    request.topic_states[0].partition_states[1].replicas = [2, 3]
    answer = await client.ask(request)
    assert codes_of(answer) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


OTHER_ID = b"fedcba9876543210"
ELSEWHERE = {"leader": 2, "isr": [2], "replicas": [2]}
FOLLOWING = {"leader": 2, "isr": [2], "replicas": [2, 1001]}

# What a running Kafka 3.9.1 answered, one role after the other; version 4 has no topic ids.
ROLES_OF_A_LEADER = [
    (4, {}, 0),
    (4, {}, ErrorCode.STALE_CONTROLLER_EPOCH),
    (7, {}, 0),  # the same role, and for the first time an id
    (7, {}, ErrorCode.STALE_CONTROLLER_EPOCH),
    (7, {"topic_id": OTHER_ID}, ErrorCode.INCONSISTENT_TOPIC_ID),
    (7, {"topic_id": OTHER_ID, "leader_epoch": 1}, ErrorCode.INCONSISTENT_TOPIC_ID),
    (7, {"topic_id": OTHER_ID, "leader_epoch": -1}, ErrorCode.INCONSISTENT_TOPIC_ID),
    (4, {}, ErrorCode.STALE_CONTROLLER_EPOCH),
    (7, {"topic_id": bytes(16)}, ErrorCode.STALE_CONTROLLER_EPOCH),
    (7, {"leader_epoch": 5, **ELSEWHERE}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (7, {"leader_epoch": 0, **ELSEWHERE}, ErrorCode.STALE_CONTROLLER_EPOCH),
    (7, {"leader_epoch": -5, **ELSEWHERE}, ErrorCode.STALE_CONTROLLER_EPOCH),
    (4, {"leader_epoch": 7}, 0),
    (7, {"leader_epoch": 8, "topic_id": OTHER_ID}, ErrorCode.INCONSISTENT_TOPIC_ID),
    (7, {"leader_epoch": 8}, 0),
]
ROLES_OF_A_FOLLOWER = [
    (7, FOLLOWING, 0),
    (4, FOLLOWING, 0),  # by a controller that has forgotten the id
    (7, {"topic_id": bytes(16), **FOLLOWING}, 0),
    (7, FOLLOWING, ErrorCode.STALE_CONTROLLER_EPOCH),
    (7, {"topic_id": OTHER_ID, "leader_epoch": 1, **FOLLOWING}, ErrorCode.INCONSISTENT_TOPIC_ID),
]


@pytest.mark.parametrize(
    "sent", [ROLES_OF_A_LEADER, ROLES_OF_A_FOLLOWER, [(7, ELSEWHERE, 3)]], ids=["leader", "follower", "none"]
)
async def test_topic_ids_are_compared_before_epochs_and_epochs_before_replicas(nursery, autojump_clock, sent):
    client = await (machine := await Machine(nursery).start()).connect()
    answers = [
        codes_of(await client.ask(roles(machine, "t", [0], version=version, **role), version))
        for version, role, _ in sent
    ]
    assert answers == [[code] for _, _, code in sent]


async def test_logs_are_made_and_deleted_several_at_a_time(nursery, autojump_clock):
    client = await (machine := await Machine(nursery).start()).connect()
    machine.thread_seconds = 1.0
    began = trio.current_time()
    assert codes_of(await client.ask(roles(machine, "t", range(40)))) == [0] * 40
    assert trio.current_time() - began < 10  # one after the other they would take 40
    states = [
        m.StopReplicaRequest.StopReplicaPartitionState(partition_index=i, delete_partition=True) for i in range(40)
    ]
    topic = m.StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=states)
    began = trio.current_time()
    await client.ask(m.StopReplicaRequest(controller_id=1001, controller_epoch=1, topic_states=[topic]))
    assert trio.current_time() - began < 20  # one after the other, each a rename and a sync, they would take 80
    assert not machine.disk.exists("/data/t-39")


async def test_a_partition_that_is_named_twice_is_made_once(nursery, autojump_clock):
    client = await (machine := await Machine(nursery).start()).connect()
    assert codes_of(await client.ask(roles(machine, "t", [0, 0]))) == [0, 0]
    assert (await client.produce("t", b"v")).error_code == 0


async def test_a_log_of_another_topic_of_that_name_is_not_taken(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    answer = await client.ask(roles(machine, "t", [0], topic_id=b"another topic id", leader_epoch=9))
    assert codes_of(answer) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert (await client.produce("t", b"v")).error_code == 0


async def test_a_topic_that_took_the_name_of_a_deleted_one_is_hosted_in_its_place(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery)
    assert codes_of(await client.ask(roles(machine, "t", [1], topic_id=OTHER_ID, leader_epoch=3))) == [0]
    assert (await client.produce("t", b"of a topic whose deletion was not heard of", 1)).error_code == 0
    assert codes_of(await client.ask(roles(machine, "t", [1], topic_id=topic_id))) == [0]
    assert (await client.list_offset("t", -1, 1)).offset == 0
    assert any(name.endswith("-stray") for name in machine.disk.list("/data"))


async def test_a_deletion_ends_an_earlier_topic_of_that_name_with_all_its_partitions(nursery, autojump_clock):
    """The deletion of the earlier topic, and the later one, did not arrive while the broker was cut off."""
    machine, client, topic_id = await with_topic(nursery)
    replicas, metadata = machine.broker.replicas, machine.broker.metadata
    assert codes_of(await client.ask(roles(machine, "t", [5], topic_id=OTHER_ID, leader_epoch=3))) == [0]
    epochs = {"controller_id": 1001, "controller_epoch": 1, "broker_epoch": replicas.broker_epoch}
    update = m.UpdateMetadataRequest

    async def tell(topic_id, partition, leader):
        state = update.UpdateMetadataPartitionState(partition_index=partition, leader=leader, replicas=[1001])
        topic = update.UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
        assert (await client.ask(update(**epochs, topic_states=[topic]))).error_code == 0

    await tell(OTHER_ID, 5, 1001)
    assert metadata.topics["t"].partitions.keys() == {5}
    await tell(topic_id, 0, LEADER_DURING_DELETE)
    assert "t" not in metadata.topics
    assert replicas.get("t", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("topic", [GROUP_TOPIC, TRANSACTION_TOPIC])
async def test_an_internal_topic_that_was_made_again_is_coordinated(nursery, autojump_clock, topic):
    """Its leader epochs begin again: elections must not count as older than those of the deleted topic."""
    machine = await Machine(nursery).start()
    client = await machine.connect()
    asked = m.FindCoordinatorRequest(key="k", key_type=int(topic == TRANSACTION_TOPIC))
    while (await client.ask(asked, 3)).error_code:
        await trio.sleep(0.1)
    topic_id = machine.broker.replicas.get(topic, 0).log.topic_id
    others = roles(machine, topic, [70], topic_id=OTHER_ID, leader_epoch=5)
    assert codes_of(await client.ask(others)) == [0]
    assert codes_of(await client.ask(roles(machine, topic, [70], topic_id=topic_id, leader_epoch=0))) == [0]
    shards = machine.broker.replicas.coordinators[topic]
    await until(lambda: not isinstance(shards.find(70), ErrorCode))


async def test_a_log_without_an_id_takes_the_one_in_its_role(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.ask(roles(machine, "t", [0], version=4), 4)
    assert codes_of(await client.ask(roles(machine, "t", [0], leader_epoch=1))) == [0]
    assert codes_of(await client.ask(roles(machine, "t", [0], leader_epoch=2, topic_id=b"?" * 16))) == [103]


@pytest.mark.parametrize("kind", ["leader and isr", "stop replica", "update metadata"])
async def test_old_controllers_and_old_lives_of_the_broker_are_fenced(nursery, autojump_clock, kind):
    machine, client, topic_id = await with_topic(nursery)

    async def ask(controller_epoch, broker_epoch):
        epochs = {"controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
        requests = {
            "leader and isr": lambda: roles(machine, "t", [], topic_id=topic_id, **epochs),
            "stop replica": lambda: m.StopReplicaRequest(controller_id=1001, **epochs),
            "update metadata": lambda: m.UpdateMetadataRequest(controller_id=1001, **epochs),
        }
        return (await client.ask(requests[kind]())).error_code

    assert await ask(1, -1) == 0
    assert await ask(1, 0) == ErrorCode.STALE_BROKER_EPOCH
    assert await ask(5, -1) == 0
    assert await ask(4, -1) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert await ask(5, 2**40) == 0


# -- StopReplica


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("delete", [False, True])
async def test_every_version_of_stop_replica_stops_and_deletes(nursery, autojump_clock, version, delete):
    machine, client, _ = await with_topic(nursery)
    answer = await client.ask(stopping(version, delete=delete), version)
    assert (answer.error_code, [row.error_code for row in answer.partition_errors]) == (0, [0])
    assert (await client.produce("t", b"v")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert machine.disk.exists("/data/t-0") is not delete


async def test_a_stop_that_is_older_than_the_role_is_fenced(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery)
    await client.ask(roles(machine, "t", [0], topic_id=topic_id, leader_epoch=5))
    for leader_epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (5, 0)):
        answer = await client.ask(stopping(4, delete=False, leader_epoch=leader_epoch))
        assert [row.error_code for row in answer.partition_errors] == [code]


async def test_a_deletion_is_never_too_old(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery)
    await client.ask(roles(machine, "t", [0], topic_id=topic_id, leader_epoch=5))
    answer = await client.ask(stopping(4, delete=True, leader_epoch=-2))
    assert [row.error_code for row in answer.partition_errors] == [0]
    assert not machine.disk.exists("/data/t-0")


async def test_stopping_what_is_not_here_succeeds_and_removes_what_was_left_over(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    for _ in range(2):
        answer = await client.ask(stopping(4, delete=False))
        assert [row.error_code for row in answer.partition_errors] == [0]
    assert machine.disk.exists("/data/t-0")
    answer = await client.ask(stopping(4, delete=True))
    assert [row.error_code for row in answer.partition_errors] == [0]
    assert not machine.disk.exists("/data/t-0")


async def test_a_replica_that_comes_back_has_its_records(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery)
    await client.produce("t", b"v")
    await client.ask(stopping(4, delete=False))
    await client.ask(roles(machine, "t", [0], topic_id=topic_id, leader_epoch=1, is_new=False))
    assert await client.read_values("t") == [b"v"]


async def test_a_follower_that_stopped_still_knows_its_epoch(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery)
    role = roles(machine, "t", [0], topic_id=topic_id, leader_epoch=5, **FOLLOWING)
    assert codes_of(await client.ask(role)) == [0]
    assert [row.error_code for row in (await client.ask(stopping(4, delete=False))).partition_errors] == [0]
    assert codes_of(await client.ask(role)) == [ErrorCode.STALE_CONTROLLER_EPOCH]


# -- failing disks


async def test_a_directory_that_fails_while_logs_are_made_is_not_led_on(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    machine.disk.fail_next("make_directory", path_part="/b/t-", after=1)
    codes = codes_of(await client.ask(roles(machine, "t", range(4))))
    assert sorted(codes) == [0, 0, 0, ErrorCode.KAFKA_STORAGE_ERROR], "one of them, for they are made at the same time"
    rows = (await client.ask(produce_many({("t", each): b"v" for each in range(4)}))).responses[0].partition_responses
    assert [row.error_code for row in rows] == codes
    failed = codes.index(ErrorCode.KAFKA_STORAGE_ERROR)
    assert (await client.fetch("t", 0, failed)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [each for each in range(4) if machine.disk.exists(f"/a/t-{each}")] == [
        each for each in range(4) if each != failed
    ]


async def test_logs_of_a_failed_directory_are_neither_made_again_nor_deleted(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    await client.ask(roles(machine, "t", range(2)))
    machine.disk.fail_next("write", path_part="/b/t-1/")
    assert (await client.produce("t", b"v", 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = await client.ask(roles(machine, "t", [1], leader_epoch=1, is_new=False))
    assert codes_of(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    answer = await client.ask(stopping(4, delete=True, partition=1))
    assert [row.error_code for row in answer.partition_errors] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not machine.disk.exists("/a/t-1")
    assert machine.disk.exists("/b/t-1")


async def test_a_failed_directory_is_reported_once(nursery, autojump_clock, caplog):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    await client.ask(roles(machine, "t", range(4)))
    machine.disk.fail_next("write", path_part="/b/t-1/")
    for partition in (1, 3, 1):
        assert (await client.produce("t", b"v", partition)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [line for line in caplog.messages if "log directory /b is offline" in line] == [
        "log directory /b is offline: /b/t-1/00000000000000000000.log: EIO (write)"
    ]


async def test_deleting_a_log_that_is_being_flushed_waits_for_the_flush(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client, other = await machine.connect(), await machine.connect()
    await client.create_topic("t", flush_messages="1")
    machine.thread_seconds = 3.0
    await client.send(produce_request("t", b"v", timeout_ms=60_000))
    await trio.sleep(1)
    answer = await other.ask(stopping(4, delete=True))
    assert [row.error_code for row in answer.partition_errors] == [0]
    row = (await client.receive()).responses[0].partition_responses[0]
    assert row.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not machine.disk.exists("/data/t-0")


# -- high watermarks


async def test_high_watermarks_are_written_down_and_read_again(nursery, autojump_clock):
    machine, client, topic_id = await with_topic(nursery)
    for _ in range(3):
        await client.produce("t", b"v")
    await trio.sleep(30)
    assert read_checkpoint(machine.disk, f"/data/{HIGH_WATERMARK_CHECKPOINT}")[TopicPartition("t", 0)] == 3
    await machine.crash()
    client = await (await machine.start()).connect()
    me = machine.serving.broker_id
    request = roles(machine, "t", [0], topic_id=topic_id, controller_epoch=9, leader_epoch=9, isr=[me, 2])
    assert codes_of(await client.ask(request)) == [0]
    assert (await client.fetch("t", max_wait_ms=0)).high_watermark == 3


async def test_requests_of_the_controller_take_turns(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    first, second = await machine.connect(), await machine.connect()
    machine.thread_seconds = 1.0
    await first.send(roles(machine, "t", range(5)))
    await trio.sleep(0.5)
    await second.send(stopping(4, delete=True, partition=4))
    assert codes_of(await first.receive()) == [0] * 5
    assert [row.error_code for row in (await second.receive()).partition_errors] == [0]
    machine.thread_seconds = 0.001
    assert not machine.disk.exists("/data/t-4")
    assert machine.disk.exists("/data/t-3")


async def test_roles_that_come_when_the_session_is_over_were_meant_for_a_life_that_is(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    machine.broker.store.renew = trio.sleep_forever  # the store does not respond, so no new session begins
    await machine.broker.store.expire()
    asked = roles(machine, "unheard-of", [0], controller_epoch=await machine.controller_epoch())
    assert codes_of(await client.ask(asked)) == [ErrorCode.STALE_BROKER_EPOCH]
