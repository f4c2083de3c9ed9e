"""Parties that commit offsets in transactions to a group without members, and delete some while they are pending.

A tombstone drops what is pending for its partition: a COMMIT that comes later brings nothing back, neither at the
coordinator that has replayed both, nor at the one that loads them (X8).
"""

import trio

from barnabas.testing.simulation.party import Link, Lost, Party
from barnabas.testing.simulation.transactional import RETRIABLE, Abortable, Fenced, TransactionalWriter
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

PAUSE_SECONDS = 1.5  # on average, between transactions
DELETED_SHARE, ABORT_SHARE = 0.5, 0.2
TRIES, TRY_PAUSE_SECONDS = 20, 0.2


class Bookkeeper:
    """One such party, with the transactional id of its writer. Each offset is committed once."""

    def __init__(self, party: Party, group: str, key: TopicPartition, writer: TransactionalWriter) -> None:
        self.party = party
        self._group = group
        self._key = key
        self._writer = writer
        self._offset = 0
        self._deleted: set[int] = set()  # while they were pending
        self._coordinator_id: int | None = None
        self._stopping = False

    def stop(self) -> None:
        """Begin no more transactions."""
        self._stopping = True

    async def run(self) -> None:
        """Keep books until stopped."""
        while not self._stopping:
            await trio.sleep(self.party.rng.expovariate(1 / PAUSE_SECONDS))
            try:
                await self._writer.begin_incarnation()
                await self._keep_once()
            except (Fenced, Abortable, Lost):
                # What became of the transaction is not known: the next incarnation ends it.
                self._writer.forget_producer()
                self._coordinator_id = None
                await self.party.pause()
        # Nothing may stay open.
        self._writer.party.close()
        self.party.close()

    async def _keep_once(self) -> None:
        attempt = self._writer.begin()
        self._offset += 1
        await self._writer.add_offsets(attempt, self._group)
        await self._commit()
        if self.party.rng.random() < DELETED_SHARE:
            await self._delete()
            self._deleted.add(self._offset)
            self._writer.rules.count("pending offsets deleted")
        await self._writer.end(attempt, commit=self.party.rng.random() >= ABORT_SHARE)
        found = await self._fetch()
        if found in self._deleted:
            text = f"{self._group} is answered {found} of {self._key}, which was deleted before its transaction ended"
            self._writer.rules.violate("X8", text)

    # -- requests. One without an answer is not asked again: both might be executed, one of them after a deletion.

    async def _commit(self) -> None:
        row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=self._key.partition, committed_offset=self._offset, committed_metadata=""
        )
        producer = self._writer.producer
        request = m.TxnOffsetCommitRequest(
            transactional_id=self._writer.plan.name,
            group_id=self._group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=self._key.topic, partitions=[row])],
        )
        for _ in range(TRIES):
            answer = await (await self._coordinator()).ask(request, m.TxnOffsetCommitResponse)
            if await self._is_done(answer.topics[0].partitions[0].error_code):
                return

        raise Abortable("the coordinator does not take the offset")

    async def _delete(self) -> None:
        row = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=self._key.partition)
        topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=self._key.topic, partitions=[row])
        request = m.OffsetDeleteRequest(group_id=self._group, topics=[topic])
        for _ in range(TRIES):
            answer = await (await self._coordinator()).ask(request, m.OffsetDeleteResponse)
            code = answer.error_code or answer.topics[0].partitions[0].error_code
            if await self._is_done(code):
                return
        raise Abortable("the coordinator does not delete the offset")

    async def _fetch(self) -> int:
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(
            name=self._key.topic, partition_indexes=[self._key.partition]
        )
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self._group, member_id=None, member_epoch=-1, topics=[topic]
        )
        request = m.OffsetFetchRequest(groups=[group], require_stable=True)
        for _ in range(TRIES):
            answer = (await (await self._coordinator()).ask(request, m.OffsetFetchResponse)).groups[0]
            code = answer.error_code or answer.topics[0].partitions[0].error_code
            if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                await self.party.pause(TRY_PAUSE_SECONDS)
            elif await self._is_done(code):
                return answer.topics[0].partitions[0].committed_offset

        raise Abortable("the coordinator has no stable offset")

    async def _is_done(self, code: int) -> bool:
        if not code:
            return True
        if code not in RETRIABLE:
            raise Abortable(f"answered with {code}")
        self._coordinator_id = None
        await self.party.pause(TRY_PAUSE_SECONDS)
        return False

    async def _coordinator(self) -> Link:
        if self._coordinator_id is None:
            await self.party.refresh()
            link = await self.party.broker(self.party.rng.choice(sorted(self.party.view.brokers)))
            request = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
            row = (await link.ask(request, m.FindCoordinatorResponse)).coordinators[0]
            if row.error_code:
                raise Lost(f"the coordinator is not known: {row.error_code}")
            self._coordinator_id = row.node_id
            self.party.view.brokers[row.node_id] = (row.host, row.port)
        return await self.party.broker(self._coordinator_id)
