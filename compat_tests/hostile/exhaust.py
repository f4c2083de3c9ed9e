"""Clients that use up one limit of memory each, in the cheapest way, and begin again as soon as they are closed.

python -m compat_tests.hostile.exhaust PORT NAME ATTACKERS SECONDS     prints how often the broker closed a connection

`LIMITS` is the table of them all. One attacker has as many connections as it takes to use up the limit.
"""

import json
import os
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cache

import trio

from barnabas.wire import messages as m
from compat_tests.raw import frame_of, produce_request
from tests.wire.bombs import window_bomb

MIB = 1 << 20
PAUSE_SECONDS = 0.05  # before a connection that was closed is opened again
SMALL_GROUPS, SMALL_GROUPS_AT_A_TIME = 20_000, 20
GROUPS = 8
JOINED_BYTES = 2 * MIB - 1000  # of subscriptions: about as many as a member may have
LONG_CLIENT_ID = "x" * 32_000
LONG_NAME = "y" * 31_000

seen: Counter[str] = Counter()


class Closed(Exception):
    """The broker has closed the connection."""


class Hostile:
    """One connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self._stream.receive_some(count - len(data))
            if not more:
                raise Closed
            data += more
        return data

    async def answer(self) -> bytes:
        (size,) = struct.unpack(">i", await self.read(4))
        return await self.read(size)


Attack = Callable[[Hostile, int], Awaitable[None]]


async def _half_a_frame(client: Hostile, number: int) -> None:
    await client.send(struct.pack(">i", 90_000_000) + bytes(300_000))
    while True:
        await trio.sleep(20)
        await client.send(b"\0")


def _join(group_id: str, protocols_bytes: int) -> m.JoinGroupRequest:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="r", metadata=bytes(protocols_bytes))
    return m.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_700_000,
        protocol_type="c",
        protocols=[protocol],
    )


@cache
def _wide_join(group_id: str) -> bytes:
    return frame_of(_join(group_id, JOINED_BYTES), 3, "hostile")


async def _waiting_join(client: Hostile, number: int) -> None:
    # The first member of a group begins a generation at once; further ones wait for it to join again.
    await client.send(_wide_join(f"waiting-{number % GROUPS}"))
    await client.answer()
    await trio.sleep_forever()


async def _members(client: Hostile, number: int) -> None:
    for each in range(1000):
        await client.send(_wide_join(f"members-{number}-{each % GROUPS}"))
        await client.answer()


async def _small_groups(client: Hostile, number: int) -> None:
    # The answers are read later: a group has its member whether its client hears of it or not.
    for first in range(0, SMALL_GROUPS, SMALL_GROUPS_AT_A_TIME):
        names = [f"small-{number}-{first + each}" for each in range(SMALL_GROUPS_AT_A_TIME)]
        await client.send(b"".join(frame_of(_join(name, 0), 3, "hostile") for name in names))
        for _ in names:
            await client.answer()


async def _pending_ids(client: Hostile, number: int) -> None:
    join = frame_of(_join("pending", 10), 4, LONG_CLIENT_ID)
    while True:
        await client.send(join)
        await client.answer()


@cache
def _names(name: str, count: int) -> bytes:
    topics = [m.MetadataRequest.MetadataRequestTopic(name=f"{name}{each}") for each in range(count)]
    return frame_of(m.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9, "hostile")


async def _slow_reader(client: Hostile, number: int) -> None:
    await client.send(_names(LONG_NAME, 120))
    for _ in range(14):
        await client.read(18_000)
        await trio.sleep(1.9)


async def _many_names(client: Hostile, number: int) -> None:
    while True:
        await client.send(_names("n", 40_000))
        await client.answer()


@cache
def _bomb() -> bytes:
    return frame_of(produce_request("ordinary", bytes(window_bomb(24, 60 * MIB)), acks=1), 9, "hostile")


async def _windows(client: Hostile, number: int) -> None:
    while True:
        await client.send(_bomb())
        await client.answer()


# A crowd of attackers has this times as many connections as one has.
CROWD_FACTOR = 3

# name -> the attack, and how many connections one attacker has
LIMITS: dict[str, tuple[Attack, int]] = {
    "half a frame": (_half_a_frame, 500),
    "JoinGroups of 2 MiB that wait": (_waiting_join, 80),
    "members of 2 MiB": (_members, 4),
    "groups of one member": (_small_groups, 4),
    "pending member ids": (_pending_ids, 4),
    "slow readers of 3.7 MB": (_slow_reader, 60),
    "requests of 40,000 names": (_many_names, 20),
    "records with a window of 16 MiB": (_windows, 20),
}


async def _again(attack: Attack, port: int, number: int) -> None:
    while True:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                seen["opened"] += 1
                await attack(Hostile(stream), number)
        except (OSError, Closed, trio.BrokenResourceError):
            seen["closed"] += 1
        await trio.sleep(PAUSE_SECONDS)


async def _run(port: int, name: str, attackers: int, seconds: float) -> None:
    attack, connections = LIMITS[name]
    connections *= min(attackers, CROWD_FACTOR)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for number in range(max(attackers, connections)):
                nursery.start_soon(_again, attack, port, number)


def main() -> None:
    os.nice(10)
    trio.run(_run, int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
