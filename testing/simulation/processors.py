"""Parties that read, process and write: each transaction has an output, and the offsets of its input (KIP-447).

A `Processor` is a member of a group, and has a transactional id of its own. It reads committed records of its
partitions, writes one batch for what it has read, commits the offsets of what it has read in the same transaction, with
its generation and member id, and begins the next one where the committed offsets are. If anything goes wrong, the
transaction is aborted, and it goes on from the committed offsets.

Now and then it is slow, before it commits its offsets or before it ends the transaction, for so long that the group
gives its partitions to another member. What it commits then must be refused, or the other one must wait for it.
"""

from collections.abc import Mapping

import trio

from barnabas.testing.simulation.committed_readers import TellRead, filter_batches
from barnabas.testing.simulation.groups import Member, Rejoin, TellOwner
from barnabas.testing.simulation.history import RESUMED, History
from barnabas.testing.simulation.party import Link, Lost, Party
from barnabas.testing.simulation.transaction_rules import Attempt
from barnabas.testing.simulation.transactional import FENCED, RETRIABLE, Abortable, Fenced, TransactionalWriter
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

SLOW_SHARE = 0.06  # of the transactions, at each of two places
SLOW_SECONDS = (1.0, 6.0)
COMMIT_SECONDS = 5.0  # after which a commit of offsets has failed
ABORT_SHARE = 0.15
STABLE_TRIES, STABLE_PAUSE_SECONDS = 30, 0.2

Range = tuple[int, int]


class Unstable(Rejoin):
    """There is a commit of an open transaction."""


class Processor(Member):
    """One member that processes its partitions in transactions."""

    isolation_level = 1

    def __init__(
        self,
        party: Party,
        history: History,
        group: str,
        topic: str,
        ownership: TellOwner,
        writer: TransactionalWriter,
        tell_read: TellRead,
        session_ms: int,
    ) -> None:
        super().__init__(party, history, group, topic, ownership, session_ms=session_ms)
        self._writer = writer
        self._rules = writer.rules
        self._tell_read = tell_read
        self._is_calm = False

    def calm(self) -> None:
        """Be slow no more."""
        self._is_calm = True

    # -- as a member

    async def run(self) -> None:
        """Be a member until stopped."""
        await super().run()
        self._writer.party.close()

    async def _live_one_generation(self) -> None:
        try:
            await self._writer.begin_incarnation()
            await super()._live_one_generation()
        except (Fenced, Abortable):
            self._writer.forget_producer()
            raise Rejoin from None
        except Lost:
            # What became of a transaction may not be known: the next incarnation waits for its end.
            self._writer.forget_producer()
            raise

    async def _resume(self, link: Link) -> None:
        for _ in range(STABLE_TRIES):
            try:
                await super()._resume(link)
            except Unstable:
                await self.party.pause(STABLE_PAUSE_SECONDS)
            else:
                return
        raise Rejoin

    def _judge(self, code: int) -> None:
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise Unstable
        super()._judge(code)

    def _note(self, kind: str, partition: int, offset: int, asked_ms: int) -> None:
        super()._note(kind, partition, offset, asked_ms)
        if kind == RESUMED:
            key = TopicPartition(self.topic, partition)
            self._rules.resumed(self.group, self.generation, key, max(offset, 0), asked_ms)

    def _taken(self, row: m.FetchResponse.PartitionData, topic_id: bytes) -> None:
        self._tell_read(self.party.name, (self.topic, topic_id, row.partition_index), *filter_batches(row))

    # -- a transaction

    async def _commit(self, link: Link) -> None:
        """Write what follows from the input, and commit it together with the offsets of the input."""
        read = {
            partition: (self._committed[partition], position)
            for partition, position in self._positions.items()
            if position > self._committed[partition]
        }
        if not read:
            return
        attempt = self._writer.begin()
        for partition, offsets in read.items():
            attempt.offsets[self.group, TopicPartition(self.topic, partition)] = offsets
        commit = self.party.rng.random() >= ABORT_SHARE
        try:
            await self._process(attempt, read)
            await self._writer.end(attempt, commit=commit)
        except Rejoin:
            await self._writer.recover(attempt)
            raise
        except Abortable:
            await self._writer.recover(attempt)
            commit = False

        if commit:
            self._committed |= {partition: end for partition, (_, end) in read.items()}
            self.progress_at = trio.current_time()
        else:
            await self._resume(link)

    async def _process(self, attempt: Attempt, read: Mapping[int, Range]) -> None:
        output = self.party.rng.choice(list(self._writer.plan.partitions))
        await self._writer.add(attempt, [output])
        await self._writer.write(attempt, output)
        await self._be_slow()
        await self._writer.add_offsets(attempt, self.group)
        await self._commit_offsets(read)
        await self._be_slow()

    async def _be_slow(self) -> None:
        if not self._is_calm and self.party.rng.random() < SLOW_SHARE:
            await trio.sleep(self.party.rng.uniform(*SLOW_SECONDS))

    async def _commit_offsets(self, read: Mapping[int, Range]) -> None:
        """TxnOffsetCommit, at whichever broker is the group's coordinator."""
        row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        topic_row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        rows = [
            row(partition_index=partition, committed_offset=end, committed_metadata="")
            for partition, (_, end) in read.items()
        ]
        producer = self._writer.producer
        request = m.TxnOffsetCommitRequest(
            transactional_id=self._writer.plan.name,
            group_id=self.group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=self.generation,
            member_id=self._member_id,
            topics=[topic_row(name=self.topic, partitions=rows)],
        )
        deadline = trio.current_time() + COMMIT_SECONDS
        while trio.current_time() < deadline:
            try:
                answer = await (await self._coordinator()).ask(request, m.TxnOffsetCommitResponse)
            except Lost:
                self._coordinator_id = None
                await self.party.pause()
                continue
            code = max((each.error_code for each in answer.topics[0].partitions), default=0)
            if code in FENCED:
                raise Fenced(f"TxnOffsetCommit is answered with {code}")
            if code not in RETRIABLE:
                if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
                    self._rules.count("offsets of a member that is gone")
                    self._judge(code)
                if code:
                    raise Abortable(f"TxnOffsetCommit is answered with {code}")
                return
            self._coordinator_id = None
            await self.party.pause()

        raise Abortable("the group's coordinator does not take the offsets")
