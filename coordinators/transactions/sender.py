"""Sends the markers of decided transactions to the leaders of their partitions (shell; reference transactions, T.11).

Sending is a consequence of a committed decision, so the first sending, a repetition, and a new coordinator that has
loaded the log take the same way: `owe` with a `Debt`. What this broker can write in the same step is not sent. A
partition without a leader, and one whose leader did not confirm, is looked up again after a pause.
"""

import heapq
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import count

import trio

from barnabas.controller.channels import Peer
from barnabas.coordinators.transactions.markers import Ending
from barnabas.coordinators.transactions.owed import Debt, Owed, Partitions, Taken, errors_of, request_of, settle
from barnabas.coordinators.transactions.senders import Senders
from barnabas.wire import messages as m
from barnabas.wire.errors import InvariantBroken, PeerLost
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import ClusterMetadata
from barnabas.world.pacing import paced, pause_after

logger = logging.getLogger(__name__)

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0  # before a marker is sent again; doubles with each attempt
# The pause after a partition has refused the marker: only an administrator or a new leader changes
# that.
FENCED_PAUSE_SECONDS = 10.0
PAUSE_SECONDS_EACH = 0.0001  # for each entry of `_later`, so that very many do not keep the loop busy
QUEUED_INLINE_MAX = 100  # partitions; those of a larger transaction are queued in several steps

WRITTEN_INLINE_MAX = 20  # partitions; a marker takes 25 µs

OpenPeer = Callable[[int], Peer]
WriteMarker = Callable[[TopicPartition, Ending], bool]  # whether the marker is written and committed
Deleted = Callable[[Collection[TopicPartition]], Awaitable[set[TopicPartition]]]  # those that do not exist


class MarkerSender:
    """The markers that this broker has to send. `paid(debt)` is called when each partition has confirmed its marker.

    `write_at_once` writes one into a partition of this broker, if that takes one step.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        open_peer: OpenPeer,
        timeout_ms: Callable[[], int],
        paid: Callable[[Debt], None],
        deleted: Deleted,
        write_at_once: WriteMarker,
    ) -> None:
        self._metadata = metadata
        self._open_peer = open_peer
        self._timeout_ms = timeout_ms
        self._paid = paid
        self._deleted = deleted
        self._write_at_once = write_at_once
        self._peers: dict[int, Peer] = {}
        self._owed = Owed()
        self._senders = Senders("markers of transactions", self._send_next)
        self._later: list[tuple[float, int, Debt, Partitions]] = []  # a heap, by trio's clock
        self._numbers = count()  # orders entries of the same time, as pending markers cannot be compared
        self._later_wanted = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send markers, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._senders.run)
            nursery.start_soon(self._begin_again)
            task_status.started()

    def owe(self, debt: Debt) -> None:
        """Write and send the markers of a committed decision."""
        unmarked = debt.known.unmarked
        if len(unmarked) <= WRITTEN_INLINE_MAX:
            self._write(debt)
        if len(unmarked) > QUEUED_INLINE_MAX:
            self._put_off(debt, unmarked, 0.0)
        else:
            self._queue(debt, list(unmarked))

    def _write(self, debt: Debt) -> None:
        ending = debt.ending
        for each in list(debt.known.unmarked):
            # A failed append may take the log of the coordinator's own partition offline: the debt
            # ends then.
            if debt.is_open and self._write_at_once(each, ending):
                del debt.known.unmarked[each]

    def try_later(self, debt: Debt, partitions: Iterable[TopicPartition] = (), *, fenced: bool = False) -> None:
        """Send these markers again after a pause; without partitions, only report again that all are written."""
        pause = FENCED_PAUSE_SECONDS if fenced else min(PAUSE_SECONDS * 2**debt.attempts, PAUSE_SECONDS_MAX)
        debt.attempts = min(debt.attempts + 1, 10)
        self._put_off(debt, partitions, max(pause, PAUSE_SECONDS_EACH * len(self._later)))

    def _put_off(self, debt: Debt, partitions: Iterable[TopicPartition], seconds: float) -> None:
        at = trio.current_time() + seconds
        heapq.heappush(self._later, (at, next(self._numbers), debt, dict.fromkeys(partitions)))
        self._later_wanted.set()

    def _queue(self, debt: Debt, partitions: Iterable[TopicPartition]) -> None:
        destinations, homeless = self._owed.add(debt, partitions, self._leader_of)
        for broker_id in destinations:
            self._senders.wake(broker_id)
        if homeless:
            self.try_later(debt, homeless)
        elif not debt.known.unmarked:
            self._paid(debt)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        return self._metadata.leader_of(*partition)

    async def _drop_deleted(self, due: Sequence[tuple[Debt, Partitions]]) -> None:
        """Forget the markers of partitions that do not exist any more."""
        # What is missing in the metadata cache may exist: a topic that was just created, or grew, may have data already
        # on a leader that learned of it earlier. Kafka takes it for deleted, and its readers wait for ever. These
        # transactions are decided, so a partition that does not exist now gets no data of theirs later.
        missing: dict[TopicPartition, None] = {}
        for debt, partitions in due:
            async for each in paced(partitions):
                if each in debt.known.unmarked and self._metadata.partition(*each) is None:
                    missing[each] = None
        deleted = await self._deleted(missing) if missing else set()
        for debt, partitions in due if deleted else ():
            before = len(debt.known.unmarked)
            async for each in paced(partitions):
                if each in deleted:
                    debt.known.unmarked.pop(each, None)
            if len(debt.known.unmarked) < before:
                logger.info("deleted partitions get no marker of %.300r", debt.known)

    async def _send_next(self, broker_id: int) -> bool:
        taken = self._owed.take(broker_id)
        if not taken:
            if not self._owed.is_owed(broker_id):
                return False
            # `take` has skipped many obsolete markers, and there may be more.
            await trio.lowlevel.checkpoint()
            return True
        is_settled = False
        try:
            is_settled = await self._send(broker_id, taken)
        finally:
            # No marker may be lost if there is no answer, or a bug. Leaders are looked up again, as
            # another broker may lead now.
            if not is_settled:
                for debt, partitions in taken:
                    self.try_later(debt, partitions)
        return True

    async def _send(self, broker_id: int, taken: Taken) -> bool:
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = self._open_peer(broker_id)
        try:
            response = await peer.ask(request_of(taken), self._timeout_ms())
        except PeerLost as lost:
            logger.info("no answer to markers from broker %d: %s", broker_id, lost)
            return False

        if not isinstance(response, m.WriteTxnMarkersResponse):
            raise InvariantBroken(f"{response!r} answers WriteTxnMarkers")
        settled = settle(taken, errors_of(response))
        for debt, partitions in settled.again.items():
            self.try_later(debt, partitions)
        for debt, partitions in settled.later.items():
            self._report(debt, partitions)
            self.try_later(debt, partitions, fenced=True)
        for debt in settled.paid:
            self._paid(debt)
        return True

    def _report(self, debt: Debt, partitions: Partitions) -> None:
        # An operator reads this once: the id stays as it is until an administrator ends the
        # transaction in those partitions.
        if not debt.was_reported:
            debt.was_reported = True
            named = ", ".join(map(str, list(partitions)[:10]))
            logger.error("%.300r cannot be completed: its markers are refused by %s", debt.known, named)

    async def _begin_again(self) -> None:
        while True:
            self._later_wanted = trio.Event()
            at = self._later[0][0] if self._later else float("inf")
            with trio.move_on_at(at):
                await self._later_wanted.wait()
            due: list[tuple[Debt, Partitions]] = []
            while self._later and self._later[0][0] <= trio.current_time():
                _, _, debt, partitions = heapq.heappop(self._later)
                if debt.is_open:
                    due.append((debt, partitions))
            await self._drop_deleted(due)
            for debt, partitions in due:
                await self._begin(debt, list(partitions))

    async def _begin(self, debt: Debt, partitions: Sequence[TopicPartition]) -> None:
        """Queue these markers, in several steps; without partitions, report again that all are written."""
        # One portion is needed even if it is empty: `_queue` reports that all markers are written.
        for start in range(0, max(len(partitions), 1), QUEUED_INLINE_MAX):
            if debt.is_open:
                some = partitions[start : start + QUEUED_INLINE_MAX]
                self._queue(debt, [each for each in some if each in debt.known.unmarked])
                await pause_after(len(some))
