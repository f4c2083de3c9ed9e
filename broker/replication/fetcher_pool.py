"""What this broker follows, and the fetchers that do it (reference B.8, C.1).

One `Fetcher`, a task with a connection, for each (leader, index) that something is followed from; it ends with the last
partition that it follows. `num.replica.fetchers` says how many a leader has; partitions are divided among them as Kafka
divides them.

`follow` and `forget` are synchronous, so that a role flips in one step with its fetching. `leave` waits for a
truncation that is under way as well, and comes before a flip: no log is cut but a follower's.

A leader that is not alive, as far as metadata knows, is not asked until metadata says that it is.
"""

from collections.abc import Container, Iterable
from typing import Protocol

import trio

from barnabas.broker.replication.fetcher import Fetcher
from barnabas.broker.replication.followed_partition import FetcherDeps, Followable, Followed
from barnabas.broker.replication.follower_state import EPOCH_IN_FETCH_VERSION, fetcher_index
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.topics import TopicPartition


class Living(Protocol):
    """Which brokers are alive: ClusterMetadata."""

    @property
    def brokers(self) -> Container[int]: ...


class FetcherPool:
    """Every fetcher of this broker."""

    def __init__(self, deps: FetcherDeps, metadata: Living) -> None:
        self._deps = deps
        self._metadata = metadata
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._followed: dict[TopicPartition, Fetcher] = {}
        self._leaderless: dict[TopicPartition, Followable] = {}  # their leader is not alive, as far as metadata knows
        self._nursery: trio.Nursery | None = None
        self._is_stopping = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch for ever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._is_stopping = True

    def __len__(self) -> int:
        """How many partitions are followed."""
        return len(self._followed) + len(self._leaderless)

    # -- who is followed

    def follow(self, partition: Followable) -> None:
        """Fetch this partition from its leader from now on, when that is alive; it was not followed before."""
        key = partition.topic_partition
        if partition.leader_id not in self._metadata.brokers:
            self._leaderless[key] = partition
            return
        log = partition.log
        if log is None:
            return
        is_unknown = self._deps.fetch_version < EPOCH_IN_FETCH_VERSION or log.epochs.latest_epoch is None
        self._place(Followed(partition, is_truncating=is_unknown))

    def _place(self, followed: Followed) -> None:
        """Give it to the fetcher that it belongs to, made if need be."""
        if self._is_stopping:
            return  # a LeaderAndIsr request may still be at work while the broker stops
        index = fetcher_index(followed.key, self._deps.fetcher_count)
        leader_id = followed.partition.leader_id
        fetcher = self._fetchers.get((leader_id, index))
        if fetcher is None:
            if self._nursery is None:
                raise InvariantBroken("nothing can be followed before the fetchers run")
            fetcher = self._fetchers[leader_id, index] = Fetcher(self._deps, leader_id, index, self._place)
            self._nursery.start_soon(self._run_fetcher, fetcher)
        self._followed[followed.key] = fetcher
        fetcher.add(followed)

    async def leave(self, keys: Iterable[TopicPartition]) -> None:
        """Fetch these no more; returns when nothing is done to their logs."""
        for cut_ended in [event for key in keys if (event := self.forget(key)) is not None]:
            await cut_ended.wait()

    def forget(self, key: TopicPartition) -> trio.Event | None:
        """Fetch this no more, from this step on; the end of a truncation that is under way."""
        self._leaderless.pop(key, None)
        fetcher = self._followed.pop(key, None)
        return None if fetcher is None else fetcher.remove(key)

    def metadata_changed(self) -> None:
        """The metadata cache is another: leaders may have come to life."""
        for key, partition in list(self._leaderless.items()):
            if partition.leader_id in self._metadata.brokers:
                del self._leaderless[key]
                self.follow(partition)

    def reconfigured(self) -> None:
        """The broker's configuration changed, perhaps `num.replica.fetchers`."""
        for fetcher in self._fetchers.values():
            fetcher.interrupt()

    async def _run_fetcher(self, fetcher: "Fetcher") -> None:
        try:
            await fetcher.run()
        finally:  # in the step in which it found nothing to follow
            del self._fetchers[fetcher.leader_id, fetcher.index]
