"""The broker's own properties act: those of groups, offsets, logs, fetches, producers, topics.

`PROOFS` names for each a value and an observation of a whole broker that is another one with the value than without it.
Properties that are only the default of a topic's are proved with those (`test_topic_properties_act.py`).
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from barnabas.config.property import Effect, Update
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE
from barnabas.storage.checkpoint import RECOVERY_POINT_CHECKPOINT
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_reader import read_all_records
from barnabas.wire.record_writer import build_batch
from barnabas.wire.topics import GROUP_TOPIC
from tests.broker.clock import now_ms
from tests.broker.handlers.altering import BROKER, altered
from tests.broker.handlers.topic_properties import (
    HOUR_MS,
    Scene,
    first_offset_left_of_what_is_two_hours_old,
    survives_any_power_failure,
)
from tests.broker.harness import Client, Machine
from tests.broker.requests import fetch_request

Observe = Callable[[Scene], Awaitable[Any]]


# -- groups and offsets


def joining(group: str, member_id: str, **fields) -> m.JoinGroupRequest:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    return m.JoinGroupRequest(
        group_id=group, member_id=member_id, protocol_type="consumer", protocols=[protocol], **times | fields
    )


async def ready_for_groups(scene: Scene) -> None:
    """The group topic is there, and its coordinator has loaded."""
    await find_coordinator(scene)
    await trio.sleep(1)


async def find_coordinator(scene: Scene) -> ErrorCode:
    answer = await scene.client.ask(m.FindCoordinatorRequest(key="g"), 3)
    return ErrorCode(answer.error_code)


async def join(scene: Scene, client: Client | None = None) -> ErrorCode:
    """Join group `g` as a new member: the code of the answer."""
    client = client or scene.client
    first = await client.ask(joining("g", ""), 5)
    if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return ErrorCode(first.error_code)
    return ErrorCode((await client.ask(joining("g", first.member_id), 5)).error_code)


async def error_of_a_join(scene: Scene) -> ErrorCode:
    await ready_for_groups(scene)
    return await join(scene)


async def seconds_of_a_join(scene: Scene) -> int:
    await ready_for_groups(scene)
    before = trio.current_time()
    await join(scene)
    return round(trio.current_time() - before)


async def whether_a_second_member_is_turned_away(scene: Scene) -> bool:
    await ready_for_groups(scene)
    await join(scene)
    other, answered = await scene.machine.connect(), ErrorCode.NONE
    with trio.move_on_after(2):  # a member that is let in waits for the first one
        answered = await join(scene, other)
    return answered == ErrorCode.GROUP_MAX_SIZE_REACHED


def commit(metadata: str = "so far") -> m.OffsetCommitRequest:
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=metadata
    )
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])
    return m.OffsetCommitRequest(group_id="g", topics=[topic])


async def error_of_a_commit(scene: Scene) -> ErrorCode:
    await ready_for_groups(scene)
    answer = await scene.client.ask(commit(), 8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed_offset(client: Client) -> int:
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await client.ask(m.OffsetFetchRequest(group_id="g", topics=[topic]), 5)
    return answer.topics[0].partitions[0].committed_offset


async def offset_left_after_two_minutes(scene: Scene) -> int:
    assert await error_of_a_commit(scene) == 0
    await trio.sleep(120)
    return await committed_offset(scene.client)


async def seconds_of_a_commit_that_no_replica_follows(scene: Scene) -> int:
    await ready_for_groups(scene)
    await trio.sleep(1)
    assert await scene.client.give_role(scene.machine, GROUP_TOPIC, replicas=[1, 2], isr=[1, 2]) == 0
    await trio.sleep(1)
    before = trio.current_time()
    await scene.client.ask(commit(), 8)
    return round(trio.current_time() - before)


async def partitions_of_the_group_topic(scene: Scene) -> int:
    await ready_for_groups(scene)
    return len((await scene.client.metadata(GROUP_TOPIC))[GROUP_TOPIC].partitions)


async def segments_of_the_group_topic(scene: Scene) -> int:
    for _ in range(5):
        assert await error_of_a_commit(scene) == 0
    return len([name for name in scene.machine.disk.list(f"/data/{GROUP_TOPIC}-0") if name.endswith(".log")])


async def codec_of_a_commit(scene: Scene) -> Codec:
    assert await error_of_a_commit(scene) == 0
    row = await scene.client.fetch(GROUP_TOPIC)
    headers = [header for header, _ in read_all_records(row.records)]
    return Codec(headers[-1].codec)


# -- logs


async def checkpointed(scene: Scene) -> bool:
    await scene.client.produce("t", b"x")
    await trio.sleep(3)
    path = f"/data/{RECOVERY_POINT_CHECKPOINT}"
    return scene.machine.disk.exists(path) and b"t 0 1" in scene.machine.disk.read_file(path)


# -- fetches, producers, topics


async def batches_in_a_fetch(scene: Scene) -> int:
    for _ in range(3):
        await scene.client.produce("t", b"x" * 600)
    return len(list(read_all_records((await scene.client.fetch("t")).records)))


async def session_of_a_fetch(scene: Scene) -> bool:
    answer = await scene.client.ask(fetch_request([("t", 0, 0)], session=(0, 0), max_wait_ms=0), 12)
    return answer.session_id != 0


async def error_of_a_gap_in_the_sequence_after_a_while(scene: Scene) -> ErrorCode:
    def batch(sequence: int) -> bytearray:
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        return bytearray(build_batch([(b"k", b"v")], timestamp_ms=now_ms(), **fields).data)

    assert (await scene.client.produce("t", batch(0))).error_code == 0
    await trio.sleep(5)
    return ErrorCode((await scene.client.produce("t", batch(5))).error_code)


async def whether_an_unknown_topic_is_made(scene: Scene) -> bool:
    await scene.client.metadata("new", create=True)
    await trio.sleep(1)
    return (await scene.client.metadata("new"))["new"].error_code == 0


async def error_of_a_deletion(scene: Scene) -> ErrorCode:
    topic = m.DeleteTopicsRequest.DeleteTopicState(name="t")
    answer = await scene.client.ask(m.DeleteTopicsRequest(topics=[topic], timeout_ms=5_000))
    return ErrorCode(answer.responses[0].error_code)


# -- the table


class Proof(NamedTuple):
    """A property's value, and what is seen with it and without it."""

    text: str
    observe: Observe
    seen: Any
    unseen: Any
    broker: Mapping[str, str] = {}  # what else the broker sets
    topic: Mapping[str, str] = {}  # what the topic sets


AT_ONCE = {"log.initial.task.delay.ms": "100"}
EXPIRING = {"offsets.retention.minutes": "1"}
SHORT_LIVED = {"retention.ms": str(HOUR_MS)}

PROOFS = {
    "group.min.session.timeout.ms": Proof("20000", error_of_a_join, ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.NONE),
    "group.max.session.timeout.ms": Proof("7000", error_of_a_join, ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.NONE),
    "group.initial.rebalance.delay.ms": Proof("4000", seconds_of_a_join, 4, 0),
    "group.max.size": Proof("1", whether_a_second_member_is_turned_away, True, False),
    "offset.metadata.max.bytes": Proof("3", error_of_a_commit, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE),
    "offsets.topic.replication.factor": Proof(
        "2", find_coordinator, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE
    ),
    "offsets.topic.num.partitions": Proof("3", partitions_of_the_group_topic, 3, 1),
    "offsets.topic.segment.bytes": Proof("250", segments_of_the_group_topic, 3, 1),
    "offsets.topic.compression.codec": Proof("1", codec_of_a_commit, Codec.GZIP, Codec.NONE),
    "offsets.retention.minutes": Proof(
        "1", offset_left_after_two_minutes, -1, 5, {"offsets.retention.check.interval.ms": "1000"}
    ),
    "offsets.retention.check.interval.ms": Proof("1000", offset_left_after_two_minutes, -1, 5, EXPIRING),
    "offsets.commit.timeout.ms": Proof("2000", seconds_of_a_commit_that_no_replica_follows, 2, 5),
    "offsets.commit.required.acks": Proof("1", seconds_of_a_commit_that_no_replica_follows, 0, 5),
    "log.retention.check.interval.ms": Proof(
        "1000", first_offset_left_of_what_is_two_hours_old, 3, 0, topic=SHORT_LIVED
    ),
    "log.initial.task.delay.ms": Proof("1000", first_offset_left_of_what_is_two_hours_old, 3, 0, topic=SHORT_LIVED),
    "log.flush.scheduler.interval.ms": Proof(
        "100", survives_any_power_failure, True, False, AT_ONCE, {"flush.ms": "1000"}
    ),
    "log.flush.offset.checkpoint.interval.ms": Proof("1000", checkpointed, True, False, topic={"flush.messages": "1"}),
    "fetch.max.bytes": Proof("1024", batches_in_a_fetch, 1, 3),
    "max.incremental.fetch.session.cache.slots": Proof("0", session_of_a_fetch, False, True),
    "producer.id.expiration.ms": Proof(
        "1000",
        error_of_a_gap_in_the_sequence_after_a_while,
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        {"producer.id.expiration.check.interval.ms": "1000"} | AT_ONCE,
    ),
    "producer.id.expiration.check.interval.ms": Proof(
        "1000",
        error_of_a_gap_in_the_sequence_after_a_while,
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        {"producer.id.expiration.ms": "1000"},
    ),
    "auto.create.topics.enable": Proof("false", whether_an_unknown_topic_is_made, False, True),
    "delete.topic.enable": Proof("false", error_of_a_deletion, ErrorCode.TOPIC_DELETION_DISABLED, ErrorCode.NONE),
}
CLEANER = "replication/logs/test_cleaner_schedule.py"
MEMORY = "coordinators/groups/test_memory.py"
TOKENS = "broker/handlers/test_delegation_tokens.py"
ELSEWHERE = {
    "auto.leader.rebalance.enable": "controller/handlers/test_elections.py::test_it_does_not_where_that_is_disabled",
    "delegation.token.owner.max.bytes": f"{TOKENS}::test_tokens_of_one_owner_have_a_limit",
    "group.members.max.bytes": f"{MEMORY}::test_pending_ids_of_one_group_shut_no_other_group_out",
    "log.cleaner.backoff.ms": f"{CLEANER}::test_after_a_pass_the_next_log_follows_at_once_and_else_after_the_back_off",
    "log.cleaner.dedupe.buffer.size": f"{CLEANER}::test_a_pass_remembers_as_many_keys_as_its_memory_holds",
    "log.cleaner.enable": f"{CLEANER}::test_without_a_cleaner_nothing_of_a_compacted_topic_goes",
    "log.cleaner.io.buffer.load.factor": f"{CLEANER}::test_a_pass_remembers_as_many_keys_as_its_memory_holds",
    "log.cleaner.io.buffer.size": f"{CLEANER}::test_a_pass_reads_in_windows_of_half_the_buffer",
    "log.cleaner.io.max.bytes.per.second": f"{CLEANER}::test_passes_together_read_and_write_no_faster_than_allowed",
    "log.cleaner.threads": f"{CLEANER}::test_as_many_logs_are_cleaned_at_a_time_as_there_are_threads",
    "log.dir": "config/test_live.py::test_data_directories_are_those_of_log_dirs_or_the_one_of_log_dir",
    "log.dirs": "replication/logs/test_partition_logs.py::test_logs_go_where_the_fewest_are",
    "log.flush.start.offset.checkpoint.interval.ms": (
        "replication/logs/test_partition_logs.py::test_log_starts_are_written_in_their_time"
    ),
    "offsets.load.buffer.size": "coordinators/groups/test_coordinator.py::test_a_large_log_is_loaded_slice_by_slice",
}

KRAFT = "a KRaft broker's"
NEWER_COORDINATOR = "the newer group coordinator's, which a ZooKeeper-mode broker does not have"
NEWER_GROUPS = "of groups that a ZooKeeper-mode broker does not serve"
WITHOUT_EFFECT = {
    "auto.include.jmx.reporter": "there is no JMX",
    "fetch.purgatory.purge.interval.requests": "a request that waits leaves nothing behind",
    "group.coordinator.append.linger.ms": NEWER_COORDINATOR,
    "group.coordinator.new.enable": NEWER_COORDINATOR,
    "group.coordinator.rebalance.protocols": "`classic`, which must be in it, is what is served",
    "group.coordinator.threads": NEWER_COORDINATOR,
    "log.dir.failure.timeout.ms": KRAFT,
    "log.local.retention.bytes": "there is no tiered storage",
    "log.local.retention.ms": "there is no tiered storage",
    "log.message.format.version": "ignored by Kafka since 3.0",
    "log.preallocate": "segments grow",
    **{name: NEWER_GROUPS for name in BROKER_TABLE if name.startswith(("group.consumer.", "group.share."))},
}
MUST_ACT = ("group.", "offsets.", "log.", "fetch.", "producer.id.", "auto.", "compression.")
MUST_ACT_TOO = {"delete.topic.enable", "max.incremental.fetch.session.cache.slots", "offset.metadata.max.bytes"}


async def scene_of(nursery, name: str, text: str | None, *, is_altered: bool = False) -> Scene:
    """A broker with a topic, and the value in its file or altered; or everything but the value."""
    proof = PROOFS[name]
    broker = dict(proof.broker) | ({} if text is None or is_altered else {name: text})
    properties = {key.replace(".", "_"): each for key, each in broker.items()}
    machine = await Machine(nursery, broker_id="1", **properties).start()
    client = await machine.connect()
    await client.create_topic("t", **{key.replace(".", "_"): each for key, each in proof.topic.items()})
    if text is not None and is_altered:
        await altered(client, BROKER, "1", **{name: text})
    return Scene(machine, client)


@pytest.mark.parametrize("name", PROOFS)
async def test_the_value_of_a_property_is_seen(nursery, autojump_clock, name):
    proof = PROOFS[name]
    assert await proof.observe(await scene_of(nursery, name, proof.text)) == proof.seen


@pytest.mark.parametrize("name", [each for each in PROOFS if BROKER_TABLE[each].update is not Update.READ_ONLY])
async def test_a_value_that_is_altered_is_seen(nursery, autojump_clock, name):
    proof = PROOFS[name]
    assert await proof.observe(await scene_of(nursery, name, proof.text, is_altered=True)) == proof.seen


@pytest.mark.parametrize("name", PROOFS)
async def test_without_it_something_else_is_seen(nursery, autojump_clock, name):
    proof = PROOFS[name]
    assert await proof.observe(await scene_of(nursery, name, None)) == proof.unseen != proof.seen


def test_every_property_that_must_act_has_its_proof_or_a_reason():
    of_topics = {name for row in TOPIC_TABLE.values() for name, _ in row.synonyms}
    must_act = {name for name in BROKER_TABLE if name.startswith(MUST_ACT)} | MUST_ACT_TOO
    proved = {*PROOFS, *ELSEWHERE, *of_topics}
    assert must_act - proved == WITHOUT_EFFECT.keys() - of_topics
    assert not PROOFS.keys() & ELSEWHERE.keys()


def test_what_is_proved_is_called_served_and_nothing_else():
    assert [name for name in (*PROOFS, *ELSEWHERE) if BROKER_TABLE[name].effect is not Effect.SERVED] == []
    assert [name for name in WITHOUT_EFFECT if BROKER_TABLE[name].effect is Effect.SERVED] == []


def test_what_is_proved_elsewhere_is():
    root = Path(__file__).parents[1]
    for where in ELSEWHERE.values():
        file, _, test = where.partition("::")
        assert f"def {test}(" in (root / file).read_text(), where
