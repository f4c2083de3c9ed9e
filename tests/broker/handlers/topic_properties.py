"""What tests share with `test_topic_properties_act.py`."""

import random
from typing import NamedTuple

import trio

from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_writer import build_batch
from tests.broker.clock import now_ms
from tests.broker.harness import Client, Machine

HOUR_MS = 3_600_000


LOG = "/data/t-0"


class Scene(NamedTuple):
    """A broker with a topic `t`, configured one way or another."""

    machine: Machine
    client: Client


async def error_of(scene: Scene, records, **fields) -> ErrorCode:
    return ErrorCode((await scene.client.produce("t", records, **fields)).error_code)


def dated(age_ms: int, size: int = 100) -> bytearray:
    """One record with a time of the past."""
    return bytearray(build_batch([(b"k", bytes(size))], timestamp_ms=now_ms() - age_ms).data)


async def first_offset_left_of_what_is_two_hours_old(scene: Scene) -> int:
    for _ in range(3):
        await scene.client.produce("t", dated(2 * HOUR_MS))
    await trio.sleep(5)
    return (await scene.client.list_offset("t", -2)).offset


async def survives_any_power_failure(scene: Scene) -> bool:
    for _ in range(3):
        assert await error_of(scene, b"x" * 100) == 0
    await trio.sleep(3)
    disk, log = scene.machine.disk, f"{LOG}/{0:020}.log"
    return all(disk.crash_machine(random.Random(seed)).read_file(log) == disk.read_file(log) for seed in range(10))
