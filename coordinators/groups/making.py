"""Large batches are made in a thread before the step that appends them (shell).

A step decides, appends and replays without a pause, and must be short. So what it will append, if nothing changes
meanwhile, is listed, encoded, compressed and checksummed before. The step decides again, and uses the batch only if it
decides on the same records.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import trio

from barnabas.coordinators.groups.batches import RECORDS_INLINE_MAX, build, is_small
from barnabas.coordinators.groups.classic.events import (
    CommitOffsetsInTransaction,
    Commits,
    Join,
    Made,
    Sync,
    Transaction,
)
from barnabas.coordinators.groups.classic.forgetting import deletion_records
from barnabas.coordinators.groups.classic.joining import new_member_id, replacement_record
from barnabas.coordinators.groups.classic.state import Group, Member
from barnabas.coordinators.groups.classic.syncing import assignment_record
from barnabas.coordinators.groups.offsets import commit_records
from barnabas.coordinators.groups.ports import GroupConfig, GroupWorld
from barnabas.coordinators.groups.records import GroupRecord, OffsetRecord
from barnabas.coordinators.groups.replay import Groups
from barnabas.coordinators.runtime.shard import Shard
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from barnabas.world.resting import resting

RecordsAndTooLarge = tuple[list[GroupRecord], frozenset[TopicPartition]]
Work = Callable[[], Awaitable[Made]]


class Returning(NamedTuple):
    """A JoinGroup with its batch, and for which state of which group that was made."""

    join: Join
    made_for: tuple[Group, int]


def made_for_return(group: Group) -> tuple[Group, int]:
    """The group, and the last record about its members, which says whether they have changed."""
    return group, group.recorded.metadata_offset


class Making:
    """Makes batches. Each method returns what makes one, or None if it is small enough to be made within the step."""

    def __init__(self, world: GroupWorld, config: GroupConfig) -> None:
        self._world = world
        self._config = config
        self._codec = Codec(config.offsets_topic_compression_codec)
        self._returns: dict[Group, trio.Lock] = {}  # of groups to which static members return at this moment

    def of_commit(self, shard: Shard[Groups], group_id: str, commit: Commits) -> Work | None:
        """The records of a commit."""
        offsets = commit.offsets
        if len(offsets) <= RECORDS_INLINE_MAX and (
            is_small((OffsetRecord(group_id, *each) for each in offsets.items()), self._codec)
        ):
            return None
        transaction = commit.transaction if isinstance(commit, CommitOffsetsInTransaction) else None
        limit = self._config.offset_metadata_max_bytes
        return self._made(shard, partial(commit_records, group_id, offsets, limit), transaction)

    def of_deletion(self, shard: Shard[Groups], group: Group) -> Work | None:
        """The tombstones of a group."""
        # The partitions are listed here, as the group may change while the thread runs.
        records = deletion_records(group)
        if len(records) <= RECORDS_INLINE_MAX and is_small(records, self._codec):
            return None
        return self._made(shard, lambda: (records, frozenset()))

    def of_assignments(self, shard: Shard[Groups], group: Group, sync: Sync) -> Work | None:
        """The record of a generation. No member of a generation changes while it waits for its assignments."""
        record = partial(assignment_record, group, list(group.members.values()), sync)
        if len(group.members) <= RECORDS_INLINE_MAX and is_small([record()], self._codec):
            return None
        return self._made(shard, lambda: ([record()], frozenset()))

    async def of_return(self, shard: Shard[Groups], group: Group, member: Member, join: Join) -> Returning:
        """The JoinGroup with which this static member returns to a Stable group, with its new id and its batch."""
        made_for = made_for_return(group)
        new_id = join.new_member_id or new_member_id(join, self._world.rng)
        record = partial(replacement_record, group, group.recorded.metadata, member, member.member_id, join, new_id)
        if len(group.members) <= RECORDS_INLINE_MAX and is_small([record()], self._codec):
            made = None
        else:
            made = await self._made(shard, lambda: ([record()], frozenset()))()
        return Returning(join._replace(new_member_id=new_id, made=made), made_for)

    def turn(self) -> "Turn":
        """One static member at a time returns to a group: the record of each has what the one before has changed."""
        return Turn(self._returns)

    def _made(
        self, shard: Shard[Groups], listed: Callable[[], RecordsAndTooLarge], transaction: Transaction | None = None
    ) -> Work:
        limit = shard.partition.config.max_message_bytes
        now_ms = self._world.now_ms()
        return partial(self._world.in_request_thread, _make, listed, now_ms, self._codec, limit, transaction)


class Turn:
    """The turn of one request among the static members that return to the same group."""

    def __init__(self, returns: dict[Group, trio.Lock]) -> None:
        self._returns = returns
        self._group: Group | None = None

    def is_of(self, group: Group) -> bool:
        """Whether it is the turn of this request at this group."""
        return self._group is group

    async def take(self, group: Group) -> None:
        """Wait for the turn at this group."""
        self.end()
        lock = self._returns.setdefault(group, trio.Lock())
        with resting():
            await lock.acquire()
        self._group = group

    def end(self) -> None:
        """The member has returned, or will not."""
        group = self._group
        self._group = None
        if group is None:
            return
        lock = self._returns[group]
        lock.release()
        if not lock.locked():
            del self._returns[group]


def _make(
    listed: Callable[[], RecordsAndTooLarge],
    now_ms: int,
    codec: Codec,
    max_bytes: int,
    transaction: Transaction | None,
) -> Made:
    records, too_large = listed()
    # There are no records if the metadata of all partitions of a commit are too long: then nothing
    # is stored.
    batch = build(records, now_ms, codec, max_bytes, transaction) if records else ErrorCode.NONE
    return Made(records, batch, too_large)
