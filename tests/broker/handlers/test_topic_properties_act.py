"""Every property of topics acts: set at creation, altered later, or by the broker property behind it.

`PROOFS` names for each property a value and an observation of a whole broker that is another one with the value than
without it. Each is made in every way in which the value can be given, so a property that is only stored, or is read
once and copied, or whose broker property is forgotten, fails here. `ELSEWHERE` names the tests of what needs more than
an observation, `WITHOUT_EFFECT` what does not act.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.config.property import Effect, Update
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE
from barnabas.controller.store import paths
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_reader import read_all_records
from tests.broker.clock import now_ms
from tests.broker.handlers.altering import BROKER, TOPIC, altered
from tests.broker.handlers.topic_properties import (
    HOUR_MS,
    LOG,
    Scene,
    dated,
    error_of,
    first_offset_left_of_what_is_two_hours_old,
    survives_any_power_failure,
)
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, fetched

LETTERS = bytes(range(97, 123)) * 40 + bytes(range(65, 91)) * 40


Observe = Callable[[Scene], Awaitable[Any]]


# -- observations


def files(scene: Scene, suffix: str) -> int:
    return len([name for name in scene.machine.disk.list(LOG) if name.endswith(suffix)])


async def error_of_a_record_without_key(scene: Scene) -> ErrorCode:
    return await error_of(scene, b"x")


async def segments_of_three_small_batches(scene: Scene) -> int:
    for _ in range(3):
        await scene.client.produce("t", b"x" * 100)
    return files(scene, ".log")


async def segments_of_many_batches(scene: Scene) -> bool:
    for _ in range(8):
        await scene.client.produce("t", b"x" * 100)
    return files(scene, ".log") > 1


def segments_of_batches_apart(milliseconds: int) -> Observe:
    async def observe(scene: Scene) -> int:
        await scene.client.produce("t", dated(milliseconds))
        await scene.client.produce("t", dated(0))
        return files(scene, ".log")

    return observe


async def index_bytes(scene: Scene) -> int:
    for _ in range(3):
        await scene.client.produce("t", b"x" * 100)
    await scene.machine.stop()
    return scene.machine.disk.size(f"{LOG}/{0:020}.index")


async def deleted_files_left(scene: Scene) -> int:
    await first_offset_left_of_what_is_two_hours_old(scene)
    return files(scene, ".log.deleted")


async def error_of_a_large_batch(scene: Scene) -> ErrorCode:
    return await error_of(scene, b"x" * 2000)


async def codec_on_disk(scene: Scene) -> Codec:
    await scene.client.produce("t", b"x" * 2000)
    ((header, _),) = read_all_records((await scene.client.fetch("t")).records)
    return Codec(header.codec)


async def size_on_disk(scene: Scene) -> int:
    await scene.client.produce("t", LETTERS[::-1] + LETTERS[::3] * 7 + LETTERS)
    return len((await scene.client.fetch("t")).records)


async def age_of_what_claims_an_hour(scene: Scene) -> int:
    await scene.client.produce("t", dated(HOUR_MS))
    ((_, record),) = read_all_records((await scene.client.fetch("t")).records)
    return round((now_ms() - record.timestamp) / HOUR_MS)


def error_of_a_record_of(age_ms: int) -> Observe:
    async def observe(scene: Scene) -> ErrorCode:
        return await error_of(scene, dated(age_ms))

    return observe


async def error_with_one_of_two_replicas(scene: Scene) -> ErrorCode:
    assert await scene.client.give_role(scene.machine, "t", replicas=[1, 2], isr=[1]) == 0
    return await error_of(scene, b"x")


async def leader_when_only_one_out_of_sync_lives(scene: Scene) -> int:
    store = scene.machine._database.session()
    state = paths.PartitionState(leader=-1, leader_epoch=5, controller_epoch=1, isr=(9,))
    await store.set(paths.partition_state("t", 0), state.encode())
    await store.close()
    await scene.machine.stop()
    client = await (await scene.machine.start()).connect()
    return (await client.metadata("t"))["t"].partitions[0].leader_id


async def error_of_an_old_fetch(scene: Scene) -> ErrorCode:
    await scene.client.produce("t", b"x")
    ((_, row),) = fetched(await scene.client.ask(fetch_request([("t", 0, 0)]), 3))
    return ErrorCode(row.error_code)


# -- the table


class Proof(NamedTuple):
    """A property's value, and what is seen with it and without it; None for `seen` where it is just another."""

    text: str
    observe: Observe
    seen: Any = None
    unseen: Any = None
    topic: Mapping[str, str] = {}  # what else the topic sets
    broker: Mapping[str, str] = {}  # what else the broker sets


SOON = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
SMALL = {"segment.bytes": "200"}

PROOFS = {
    "cleanup.policy": Proof("compact", error_of_a_record_without_key, ErrorCode.INVALID_RECORD, ErrorCode.NONE),
    "segment.bytes": Proof("200", segments_of_three_small_batches, 3, 1),
    "segment.ms": Proof(str(HOUR_MS), segments_of_batches_apart(2 * HOUR_MS), 2, 1),
    "segment.jitter.ms": Proof(
        str(HOUR_MS), segments_of_batches_apart(2 * HOUR_MS - 60_000), 2, 1, {"segment.ms": str(2 * HOUR_MS)}
    ),
    "segment.index.bytes": Proof("48", segments_of_many_batches, True, False, {"index.interval.bytes": "0"}),
    "index.interval.bytes": Proof("0", index_bytes, 16, 0),
    "retention.ms": Proof(
        str(HOUR_MS), first_offset_left_of_what_is_two_hours_old, 3, 0, broker=SOON | {"log.segment.bytes": "200"}
    ),
    "retention.bytes": Proof("300", first_offset_left_of_what_is_two_hours_old, 1, 0, SMALL, SOON),
    "flush.messages": Proof("1", survives_any_power_failure, True, False),
    "flush.ms": Proof(
        "1000",
        survives_any_power_failure,
        True,
        False,
        broker={
            "log.flush.scheduler.interval.ms": "100",
            "log.flush.interval.ms": "99999999",
            "log.initial.task.delay.ms": "100",
        },
    ),
    "file.delete.delay.ms": Proof(
        "1000", deleted_files_left, 0, 3, {"retention.ms": str(HOUR_MS)}, SOON | {"log.segment.bytes": "200"}
    ),
    "max.message.bytes": Proof("1000", error_of_a_large_batch, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE),
    "compression.type": Proof("gzip", codec_on_disk, Codec.GZIP, Codec.NONE),
    "compression.gzip.level": Proof("1", size_on_disk, topic={"compression.type": "gzip"}),
    "compression.lz4.level": Proof("12", size_on_disk, topic={"compression.type": "lz4"}),
    "compression.zstd.level": Proof("-50", size_on_disk, topic={"compression.type": "zstd"}),
    "message.timestamp.type": Proof("LogAppendTime", age_of_what_claims_an_hour, 0, 1),
    "message.timestamp.difference.max.ms": Proof(
        "5000", error_of_a_record_of(10_000), ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE
    ),
    "message.timestamp.before.max.ms": Proof(
        "5000", error_of_a_record_of(10_000), ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE
    ),
    "message.timestamp.after.max.ms": Proof(
        "5000", error_of_a_record_of(-10_000), ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE
    ),
    "min.insync.replicas": Proof("2", error_with_one_of_two_replicas, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE),
    "unclean.leader.election.enable": Proof("true", leader_when_only_one_out_of_sync_lives, 1, -1),
    "message.downconversion.enable": Proof(
        "false", error_of_an_old_fetch, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE
    ),
}
CLEANER = "replication/logs/test_cleaner_schedule.py"
THROTTLED = "replication/test_throttled_replication.py::test_a_follower_out_of_sync_gets_what_the_rate_allows"
ELSEWHERE = {
    "leader.replication.throttled.replicas": THROTTLED,
    "follower.replication.throttled.replicas": THROTTLED,
    "delete.retention.ms": f"{CLEANER}::test_tombstones_go_after_the_delete_retention",
    "min.compaction.lag.ms": f"{CLEANER}::test_records_are_safe_for_the_minimum_lag",
    "max.compaction.lag.ms": f"{CLEANER}::test_the_maximum_lag_overrides_the_dirty_share_and_seals_segments",
    "min.cleanable.dirty.ratio": f"{CLEANER}::test_the_dirty_share_decides",
}
WITHOUT_EFFECT = {
    "preallocate",
    "message.format.version",
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "local.retention.ms",
    "local.retention.bytes",
}


# -- the ways in which a value is given


class Way(NamedTuple):
    """Where the value stands: the topic, or a broker property; before the topic is made, or after."""

    name: str | None  # the broker property, None for the topic's own
    factor: int
    is_altered: bool

    def __str__(self) -> str:
        where = self.name or "the topic"
        return f"{where}, altered" if self.is_altered else where


def ways_of(name: str) -> list[Way]:
    ways = [Way(None, 1, False), Way(None, 1, True)]
    for synonym, factor in TOPIC_TABLE[name].synonyms:
        if synonym == "log.flush.scheduler.interval.ms":
            continue  # it is the pace of looking as well: see the test of its own
        ways.append(Way(synonym, factor, False))
        if BROKER_TABLE[synonym].update is not Update.READ_ONLY:
            ways.append(Way(synonym, factor, True))
    return ways


CASES = [pytest.param(name, way, id=f"{name} by {way}") for name in PROOFS for way in ways_of(name)]


async def scene_of(nursery, proof: Proof, name: str, way: Way | None) -> Scene:
    """A broker with a topic; without a way it has everything but the value."""
    topic, broker = dict(proof.topic), dict(proof.broker)
    if way is not None and not way.is_altered:
        if way.name is None:
            topic[name] = proof.text
        else:
            broker[way.name] = in_unit(proof.text, way.factor)
    properties = {key.replace(".", "_"): text for key, text in broker.items()}
    machine = await Machine(nursery, broker_id="1", **properties).start()
    client = await machine.connect()
    await client.create_topic("t", **topic)
    if way is not None and way.is_altered:
        if way.name is None:
            await altered(client, TOPIC, "t", **{name: proof.text})
        else:
            await altered(client, BROKER, "", **{way.name: in_unit(proof.text, way.factor)})
    return Scene(machine, client)


def in_unit(text: str, factor: int) -> str:
    return text if factor == 1 else str(int(text) // factor)


@pytest.mark.parametrize(("name", "way"), CASES)
async def test_the_value_of_a_property_is_seen(nursery, autojump_clock, name, way):
    proof = PROOFS[name]
    seen = await proof.observe(await scene_of(nursery, proof, name, way))
    if proof.seen is None:
        assert seen != await proof.observe(await scene_of(nursery, proof, name, None))
    else:
        assert seen == proof.seen


@pytest.mark.parametrize("name", [name for name, proof in PROOFS.items() if proof.seen is not None])
async def test_without_it_something_else_is_seen(nursery, autojump_clock, name):
    proof = PROOFS[name]
    assert await proof.observe(await scene_of(nursery, proof, name, None)) == proof.unseen != proof.seen


def test_every_property_has_its_proof_or_is_known_not_to_act():
    named = [*PROOFS, *ELSEWHERE, *WITHOUT_EFFECT]
    assert sorted(named) == sorted(TOPIC_TABLE)
    acting = {name for name, row in TOPIC_TABLE.items() if row.effect is Effect.SERVED}
    assert acting == {*PROOFS, *ELSEWHERE}


def test_what_is_proved_elsewhere_is():
    root = Path(__file__).parents[2]
    for where in ELSEWHERE.values():
        file, _, test = where.partition("::")
        assert f"def {test}(" in (root / file).read_text(), where
