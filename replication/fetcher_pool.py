"""The fetchers of this broker and the partitions that they follow (reference B.8, C.1).

There is one `Fetcher`, a task with a connection, for each (leader, index) with partitions to follow. It ends with its
last partition. A leader has up to `num.replica.fetchers` of them; `fetcher_index` divides the partitions as Kafka does.

`follow` and `forget` are synchronous, so a partition changes its role and its fetching in one step. `leave` also waits
for a running truncation.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Protocol

import trio

from barnabas.replication.fetcher import Fetcher
from barnabas.replication.followed_partition import FetcherDeps, Followable, Followed
from barnabas.replication.follower_state import EPOCH_IN_FETCH_VERSION, fetcher_index
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.topics import TopicPartition


class Living(Protocol):
    """The brokers that are alive. Implemented by ClusterMetadata."""

    @property
    def brokers(self) -> Container[int]: ...


class FetcherPool:
    """All fetchers for one kind of leader: other brokers, or this broker for its future logs (`log_dir_moves.py`)."""

    def __init__(self, deps: FetcherDeps, metadata: Living) -> None:
        self._deps = deps
        self._metadata = metadata
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._followed: dict[TopicPartition, Fetcher] = {}
        self._leaderless: dict[TopicPartition, Followable] = {}  # their leaders are not alive by the metadata cache
        self._nursery: trio.Nursery | None = None
        self._is_stopping = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the fetcher tasks; for ever. Nothing can be followed before `task_status` reports the start."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            # This is set before the nursery ends: `_place` must not start a task in a nursery that
            # is closed.
            try:
                await trio.sleep_forever()
            finally:
                self._is_stopping = True

    def __len__(self) -> int:
        """The number of followed partitions, including those whose leader is not alive."""
        return len(self._followed) + len(self._leaderless)

    def __iter__(self) -> Iterator[tuple[Fetcher, Followed]]:
        """The followed partitions that have a fetcher, each with it."""
        for key, fetcher in list(self._followed.items()):
            if (followed := fetcher.find(key)) is not None:
                yield fetcher, followed

    @property
    def running(self) -> Iterable[Fetcher]:
        """The fetchers at this moment."""
        return list(self._fetchers.values())

    # -- the followed partitions

    def follow(self, partition: Followable) -> None:
        """Fetch this partition from its leader from now on. The partition must not be followed already."""
        key = partition.topic_partition
        # The leader does not answer anyway while it is not alive. `metadata_changed` tries again.
        if partition.leader_id not in self._metadata.brokers:
            self._leaderless[key] = partition
            return
        log = partition.log
        if log is None:
            return
        # The log's end must be compared with the leader's before the first Fetch if Fetch cannot do that: its version
        # is older than KIP-595, or the log has no leader epochs.
        is_unknown = self._deps.fetch_version < EPOCH_IN_FETCH_VERSION or log.epochs.latest_epoch is None
        self._place(Followed(partition, is_truncating=is_unknown))

    def _place(self, followed: Followed) -> None:
        """Give the partition to its fetcher, which is created if necessary."""
        # A LeaderAndIsr request may still be handled while the broker stops.
        if self._is_stopping:
            return
        index = fetcher_index(followed.key, self._deps.fetcher_count)
        leader_id = followed.partition.leader_id
        fetcher = self._fetchers.get((leader_id, index))
        if fetcher is None:
            if self._nursery is None:
                raise InvariantBroken("nothing can be followed before the fetchers run")
            fetcher = self._fetchers[leader_id, index] = Fetcher(self._deps, leader_id, index, self._place)
            self._nursery.start_soon(self._run_fetcher, fetcher)
        # The partition is added in the step that found or created the fetcher, because a fetcher
        # without partitions ends at its next turn.
        self._followed[followed.key] = fetcher
        fetcher.add(followed)

    async def leave(self, keys: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions. Returns when no truncation of their logs runs any more.

        Called before a role changes: only a follower's log may be truncated.
        """
        # All partitions are removed first, so that no new truncation begins during the waits.
        for cut_ended in [event for key in keys if (event := self.forget(key)) is not None]:
            await cut_ended.wait()

    def forget(self, key: TopicPartition) -> trio.Event | None:
        """Stop fetching this partition at once. Returns the event that ends a running truncation, if any."""
        self._leaderless.pop(key, None)
        fetcher = self._followed.pop(key, None)
        return None if fetcher is None else fetcher.remove(key)

    def metadata_changed(self) -> None:
        """The metadata cache changed: follow the partitions whose leaders are alive now."""
        # A partition that has a fetcher needs nothing: if its leader dies, the fetcher retries
        # until the next role.
        for key, partition in list(self._leaderless.items()):
            if partition.leader_id in self._metadata.brokers:
                del self._leaderless[key]
                self.follow(partition)

    def reconfigured(self) -> None:
        """The broker's configuration changed, perhaps `num.replica.fetchers`."""
        # A new round moves partitions to other fetchers if their number has changed.
        for fetcher in self._fetchers.values():
            fetcher.interrupt()

    async def _run_fetcher(self, fetcher: "Fetcher") -> None:
        try:
            await fetcher.run()
        finally:
            # There was no await since the fetcher found nothing to follow: `_place` cannot add a
            # partition to an ended fetcher.
            del self._fetchers[fetcher.leader_id, fetcher.index]
