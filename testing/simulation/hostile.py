"""A client that uses up each limit of a broker in the cheapest way, and the rules about those beside it.

Each `Hostile` goes through `TRICKS`, on many connections to every broker at once:

    frames        begin large requests, and send a byte of each now and then
    joins         JoinGroups with large protocols, which wait for a member that never joins again
    pending       ask for one member id after the other, with long client ids
    slow          ask for long responses, and read a little of them now and then
    deep          version 0 offsets of a group whose id has a hundred slashes

It logs in as other clients do, if there are logins, and does nothing else that a client may not do. `SiegeRules` say
what the others notice when no fault but this client troubles the cluster:

    C1  control requests (LeaderAndIsr, StopReplica, UpdateMetadata) are answered within `CONTROL_SECONDS`
    C2  a well-behaved client is answered within `SERVED_SECONDS`, and loses no connection
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable

import trio

from barnabas.testing.simulation.net import SimStream
from barnabas.testing.simulation.party import Link, Lost, Party
from barnabas.wire import messages as m
from barnabas.wire.asking import InFlightRequests
from barnabas.world.net import ConnectionLost, Stream

HOSTILE_RULES = {
    "C1": "control requests are answered within a bound, whatever clients do",
    "C2": "a well-behaved client is served within a bound while a hostile one is there",
}
CONTROL_SECONDS, SERVED_SECONDS = 1.0, 2.0
CONTROL_KEYS = frozenset({4, 5, 6})
FRAME_BYTES, FRAME_BEGUN_BYTES = 290_000, 60_000
PROTOCOL_BYTES = 40_000
CLIENT_ID_BYTES = (2000, 10)  # short ones use what long ones have left
LONG_MINUTES_MS = 1_700_000  # just below group.max.session.timeout.ms
UPKEEP_SECONDS = 1.5
DEEP = "/".join("d" * 100)

Violate = Callable[[str, str], None]


class SiegeRules:
    """C1 and C2, from `begin` to `end`."""

    def __init__(self, violate: Violate, now: Callable[[], float]) -> None:
        self.began = math.inf
        self.counts = {"hostile connections": 0, "hostile connections closed": 0, "control requests in a siege": 0}
        self._violate = violate
        self._now = now
        self._asked: dict[SimStream, deque[tuple[int, float]]] = {}

    def begin(self) -> None:
        """No fault troubles the cluster from now on."""
        self.began = self._now()

    def end(self) -> None:
        """Judge nothing more."""
        self.began = math.inf

    def sent(self, stream: SimStream, data: bytes) -> None:
        """For the network: one end of a connection sends these bytes."""
        if stream.has_connected:
            key = int.from_bytes(data[4:6])
            if self._now() >= self.began and key in CONTROL_KEYS and stream.name.startswith("broker-"):
                self._asked.setdefault(stream, deque()).append((key, self._now()))
                self.counts["control requests in a siege"] += 1
        elif asked := self._asked.get(stream.other_end()):
            key, since = asked.popleft()
            self._judge(stream.other_end(), key, since)

    def look(self) -> None:
        """Look at control requests that have no answer."""
        for stream, asked in list(self._asked.items()):
            if stream.is_closed or stream.lost is not None:
                del self._asked[stream]
            elif asked and self._now() - asked[0][1] > CONTROL_SECONDS:
                key, since = asked.popleft()
                self._judge(stream, key, since)

    def _judge(self, stream: SimStream, key: int, since: float) -> None:
        seconds = self._now() - since
        if self.began < math.inf and seconds > CONTROL_SECONDS:
            self._violate(
                "C1", f"request {key} of {stream.name} has waited at {stream.peer_address} for {seconds:.1f} s"
            )

    def served(self, name: str, seconds: float, worked_at: float, why_not: str) -> None:
        """A well-behaved client got its answer, or (with a reason) none.

        A connection that did not work since before the siege may have been lost by a fault, which its client notices
        when it uses it.
        """
        if worked_at >= self.began and (why_not or seconds > SERVED_SECONDS):
            self._violate("C2", f"{name} is served after {seconds:.1f} s {why_not}")

    def joined(self, name: str, *, is_stable: bool) -> None:
        """Whether a member has joined its group again by the end of the siege."""
        if not is_stable:
            self._violate("C2", f"{name} has not joined its group")


class Hostile:
    """One hostile client."""

    def __init__(self, party: Party, rules: SiegeRules) -> None:
        self.party = party
        self._rules = rules
        self._scope = trio.CancelScope()
        self._number = 0

    def stop(self) -> None:
        """Go away, with all connections."""
        self._scope.cancel()

    async def run(self) -> None:
        """All tricks at once, until stopped."""
        # How many connections to each broker.
        tricks: dict[Callable[[Link], Awaitable[None]], int] = {
            self._begin_frame: 8,
            self._join_and_wait: 4,
            self._ask_for_ids: 1,
            self._read_slowly: 6,
            self._commit_deep: 1,
        }
        with self._scope:
            async with trio.open_nursery() as nursery:
                for address in self.party.bootstrap:
                    for trick, count in tricks.items():
                        for _ in range(count):
                            nursery.start_soon(self._again, trick, address)

    async def _again(self, trick: Callable[[Link], Awaitable[None]], address: tuple[str, int]) -> None:
        while True:
            await self.party.pause(1.0)
            try:
                link = await self.party.another_link(*address)
            except Lost:
                continue
            self._rules.counts["hostile connections"] += 1
            try:
                await trick(link)
            except (Lost, ConnectionLost):
                self._rules.counts["hostile connections closed"] += 1
            finally:
                link.close()

    # -- tricks: each uses one connection for as long as it is open

    async def _begin_frame(self, link: Link) -> None:
        await link.stream.send_all(FRAME_BYTES.to_bytes(4) + bytes(FRAME_BEGUN_BYTES))
        for _ in range(FRAME_BYTES - FRAME_BEGUN_BYTES - 1):
            await self.party.pause(UPKEEP_SECONDS)
            await link.stream.send_all(b"\0")

    async def _join_and_wait(self, link: Link) -> None:
        self._number += 1
        group = f"{self.party.name}-{self._number}"
        first = await self.party.another_link(*link.address)
        try:
            for each, patience in ((first, 4.0), (link, float("inf"))):
                joined = await each.ask(_join(group, "", PROTOCOL_BYTES), m.JoinGroupResponse, patience)
                if joined.error_code:  # as it should be: a member id is required, or no memory is left
                    joined = await each.ask(
                        _join(group, joined.member_id, PROTOCOL_BYTES), m.JoinGroupResponse, patience
                    )
        finally:
            first.close()

    async def _ask_for_ids(self, link: Link) -> None:
        while True:
            request = _join(f"{self.party.name}-pending", "", 0)
            frame = InFlightRequests("c" * self.party.rng.choice(CLIENT_ID_BYTES)).frame(request, 5)
            await link.stream.send_all(frame * 10)
            await _read(link.stream, 1 << 16)
            await self.party.pause(0.5)

    async def _read_slowly(self, link: Link) -> None:
        resource = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4, resource_name=link.address[0].removeprefix("broker-"), configuration_keys=None
        )
        for _ in range(8):
            request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
            await link.send(request)
        while True:
            await self.party.pause(UPKEEP_SECONDS)
            await _read(link.stream, 100)

    async def _commit_deep(self, link: Link) -> None:
        rows = [m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="steady", partitions=rows)
        request = m.OffsetCommitRequest(group_id=DEEP, topics=[topic])
        await link.stream.send_all(InFlightRequests(self.party.name).frame(request, 0))
        await _read(link.stream, 1 << 16)
        await self.party.pause(10.0)


async def _read(stream: Stream, bytes_max: int) -> None:
    if not await stream.receive_some(bytes_max):
        raise ConnectionLost("the broker closed the connection")


def _join(group: str, member_id: str, protocol_bytes: int) -> m.JoinGroupRequest:
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=LONG_MINUTES_MS,
        rebalance_timeout_ms=LONG_MINUTES_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(protocol_bytes))],
    )
