"""Committed offsets of topics that do not exist any more (shell): they are not read, and are removed.

A committed offset is one of the topic that had its name when it was committed. A topic of the same name that is created
later begins at offset 0, and a consumer that began at the old offset would pass over records. So each offset has the id
of its topic, in memory only, as its record has none. It is compared with the id that the topic has now whenever the
offset is read or may expire. Which topics exist comes from two places:

- UpdateMetadata says which partitions are being deleted (`note_deleted`). It says so once, and only to brokers with a
  session. What was appended before is of the deleted topic, also in a shard that is still being loaded.
- The metadata cache has the id of each topic. An offset that is committed gets the id from there. An offset that is
  loaded may be younger than the cache: its topic id comes from the store, once the cache has the same one. A topic that
  the store does not have was deleted while no one could write the tombstones.

Without an id, of the offset or of the topic, nothing is outdated: the metadata may not have arrived yet.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.controller.store.store import StoreError
from barnabas.coordinators.groups.classic.events import Event, PartitionsDeleted
from barnabas.coordinators.groups.classic.state import Group
from barnabas.coordinators.groups.offsets import CommittedOffsets, StoredOffset
from barnabas.coordinators.groups.records import Commit
from barnabas.coordinators.groups.replay import Groups
from barnabas.coordinators.runtime.shard import Shard
from barnabas.coordinators.runtime.shards import Shards
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from barnabas.world.pacing import paced

if TYPE_CHECKING:
    from barnabas.world.metadata import ClusterMetadata

logger = logging.getLogger(__name__)

GroupShard = Shard[Groups]
# The ids of those of the given topics that exist in the store; None where the topic's node cannot
# be read. Raises StoreError.
ReadTopicIds = Callable[[Collection[str]], Awaitable[Mapping[str, bytes | None]]]


class Forget(Protocol):
    """`GroupShards.forget`."""

    async def __call__(
        self,
        shard: GroupShard,
        partitions_of: Callable[[Group], list[TopicPartition]],
        event_of: Callable[[Group, Sequence[TopicPartition]], Event],
    ) -> None: ...


class Outdated:
    """Which committed offsets are of deleted topics."""

    def __init__(self, shards: Shards[Groups], metadata: "ClusterMetadata", read_topic_ids: ReadTopicIds) -> None:
        self._shards = shards
        self._metadata = metadata
        self._read_topic_ids = read_topic_ids
        # Deleted partitions whose offsets are not all removed yet, each with the log end offsets of the shards at the
        # time.
        self._deleted: dict[TopicPartition, Mapping[GroupShard, int]] = {}
        self._deletion = trio.Event()
        self._look_wanted = trio.Event()
        self._compares = False  # whether all offsets are to be compared, and not only those that were loaded

    # -- what is known

    def note_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions were deleted: remove the offsets that are committed for them."""
        # The removal is a task, and a topic of the same name may be created before it ends. Offsets that are committed
        # for the new topic have records after these log end offsets, and stay. The log is read from
        # the partition, because `shard.log` is closed after a move to another directory
        # (AlterReplicaLogDirs).
        ends = {shard: log.log_end_offset for shard in self._shards if (log := shard.partition.log) is not None}
        self._deleted |= dict.fromkeys(deleted, ends)
        self._deletion.set()

    def note_serving(self) -> None:
        """A shard was loaded."""
        if self._deleted:
            self._deletion.set()
        self._look_wanted.set()

    def look_again(self) -> None:
        """Compare all offsets with the topics that exist now."""
        self._compares = True
        self._look_wanted.set()

    def topic_id(self, topic: str) -> bytes:
        """The id that the topic has now; zero if it is unknown."""
        info = self._metadata.topics.get(topic)
        return ZERO_TOPIC_ID if info is None else info.topic_id

    # -- what follows for requests

    def is_late(self, commits: Mapping[TopicPartition, Commit]) -> bool:
        """Whether a topic was deleted since its partitions were looked up for these commits."""
        return any(
            commit.topic_id != ZERO_TOPIC_ID and commit.topic_id != self.topic_id(key.topic)
            for key, commit in commits.items()
        )

    def hide_deleted(self, shard: GroupShard, offsets: dict[TopicPartition, StoredOffset]) -> None:
        """Take out of this copy the offsets of partitions that were deleted, and are about to be removed."""
        deleted = self._deleted
        fewer: Collection[TopicPartition] = deleted if len(deleted) < len(offsets) else offsets
        for key in list(fewer):
            if key in offsets and key in deleted and offsets[key].at_offset < deleted[key].get(shard, 0):
                del offsets[key]

    def hide_outdated(
        self, shard: GroupShard, offsets: dict[TopicPartition, StoredOffset], keys: Iterable[TopicPartition]
    ) -> None:
        """Take out of this copy those of these offsets whose topic has another id now."""
        for key in keys:
            if key in offsets and self._is_outdated(shard, key.topic, offsets[key]):
                del offsets[key]

    def _is_outdated(self, shard: GroupShard, topic: str, stored: StoredOffset) -> bool:
        own = stored.commit.topic_id
        current = self.topic_id(topic)
        if own == ZERO_TOPIC_ID:
            own = shard.state.loaded_topics.get(topic, ZERO_TOPIC_ID)
        return own != current and ZERO_TOPIC_ID not in (own, current)

    # -- what is removed

    async def run(self, forget: Forget) -> None:
        """Remove offsets of deleted topics, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._forget_deleted, forget)
            nursery.start_soon(self._forget_outdated, forget)
            replaced = self._metadata.replaced
            while True:
                await self._metadata.changed()
                if self._metadata.replaced != replaced:
                    replaced = self._metadata.replaced
                    self.look_again()

    async def _forget_deleted(self, forget: Forget) -> None:
        """Remove the offsets of deleted partitions, in one pass those of all that were deleted during the last one."""
        while True:
            await self._deletion.wait()
            self._deletion = trio.Event()
            deleted = dict(self._deleted)
            serving = self._shards.serving()
            for shard in serving:
                await forget(shard, partial(_committed_of, deleted), partial(_deletion_of, deleted, shard))

            # A shard that is still being loaded has such offsets, too: `note_serving` wakes this
            # task.
            loading = {
                shard
                for shard in self._shards
                if shard not in serving and shard.refusal is not ErrorCode.COORDINATOR_NOT_AVAILABLE
            }
            for key, ends in deleted.items():
                # If the partition was deleted once more meanwhile, `_deleted` has later ends for
                # it.
                if self._deleted[key] is ends and loading.isdisjoint(ends):
                    del self._deleted[key]

    async def _forget_outdated(self, forget: Forget) -> None:
        """Look up the topics of offsets that were loaded, and remove the offsets whose topic has another id."""
        await self._metadata.is_complete.wait()
        while True:
            await self._look_wanted.wait()
            self._look_wanted = trio.Event()
            await self._look_up(forget)
            compares = self._compares
            self._compares = False
            for shard in self._shards.serving() if compares else ():
                await forget(shard, _partitions_of, partial(self._removal, shard, _end_of(shard)))

    def _removal(
        self, shard: GroupShard, end_offset: int, group: Group, some: Sequence[TopicPartition]
    ) -> PartitionsDeleted:
        removed = [key for key in some if self._has_only_outdated(shard, group.recorded, key)]
        return PartitionsDeleted(dict.fromkeys(removed, end_offset))

    def _has_only_outdated(self, shard: GroupShard, committed: CommittedOffsets, key: TopicPartition) -> bool:
        # A tombstone removes all offsets of the partition, committed and pending. If one of them is
        # of the current topic, nothing is removed: a pending one replaces the outdated one when it
        # takes effect.
        stored = committed.offsets.get(key)
        known = [*committed.pending.get(key, {}).values(), *(() if stored is None else (stored,))]
        return all(self._is_outdated(shard, key.topic, each) for each in known)

    async def _look_up(self, forget: Forget) -> None:
        """Find the ids of the topics of which offsets were loaded; remove the offsets of those that do not exist."""
        # The log end offsets are read before the store: a later commit may be of a topic that was
        # created meanwhile.
        ends = {shard: _end_of(shard) for shard in self._shards.serving() if shard.state.unknown_topics}
        if not ends:
            return
        try:
            ids = await self._read_topic_ids({topic: None for shard in ends for topic in shard.state.unknown_topics})
        # The next check for expired offsets looks again.
        except StoreError as error:
            logger.debug("the ids of topics with committed offsets cannot be read: %s", error)
            return

        for shard, end_offset in ends.items():
            groups = shard.state
            async for topic in paced(list(groups.unknown_topics)):
                topic_id = ids.get(topic) or ZERO_TOPIC_ID

                # A cache that is behind the store, or ahead, will have the same id later.
                if topic in ids and topic_id == self.topic_id(topic):
                    groups.loaded_topics[topic] = topic_id
                    del groups.unknown_topics[topic]
            gone = {topic: None for topic in groups.unknown_topics if topic not in ids}
            if gone:
                await forget(shard, _partitions_of, partial(_disappearance_of, gone, end_offset))
            for topic in gone:
                del groups.unknown_topics[topic]


def _end_of(shard: GroupShard) -> int:
    log = shard.partition.log
    return 0 if log is None else log.log_end_offset


def _partitions_of(group: Group) -> list[TopicPartition]:
    return group.recorded.partitions()


def _committed_of(deleted: Mapping[TopicPartition, object], group: Group) -> list[TopicPartition]:
    """The deleted partitions with an offset of this group, committed or pending."""
    recorded = group.recorded
    # Either may have tens of thousands of entries: the loop goes over the smaller one.
    known = len(recorded.offsets) + len(recorded.pending)
    fewer = recorded.partitions() if known < len(deleted) else deleted
    return [key for key in fewer if key in deleted and recorded.has(key)]


def _deletion_of(
    deleted: Mapping[TopicPartition, Mapping[GroupShard, int]],
    shard: GroupShard,
    _: Group,
    some: Sequence[TopicPartition],
) -> PartitionsDeleted:
    return PartitionsDeleted({key: deleted[key].get(shard, 0) for key in some})


def _disappearance_of(
    gone: Collection[str], end_offset: int, _: Group, some: Sequence[TopicPartition]
) -> PartitionsDeleted:
    return PartitionsDeleted({key: end_offset for key in some if key.topic in gone})
