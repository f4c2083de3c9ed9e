"""The partitions that one fetcher follows, and which of them it may fetch now.

A partition is not fetched while it is delayed after an error, while its log may differ from the leader's, or after it
has failed. A round compares the positions of `touched` partitions only, so quiet ones cost nothing.
"""

import logging
import math
from collections.abc import Iterable, Iterator

import trio

from barnabas.replication.followed_partition import FetcherDeps, Followed, held_back, position_of
from barnabas.replication.follower_state import FetchSession, Position
from barnabas.wire.errors import error_name
from barnabas.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

DELAY_SECONDS_MIN = 0.01  # replica.fetch.backoff.ms may be 0


class Following:
    """The partitions by their names. Compared by identity: with each role a partition gets another `Followed`."""

    def __init__(self, deps: FetcherDeps, leader_id: int) -> None:
        self._deps = deps
        self._leader_id = leader_id
        # The version is read once, because the inter-broker protocol version changes with a restart
        # only.
        self.fetch_version = deps.fetch_version
        self._followed: dict[TopicPartition, Followed] = {}
        self._touched: dict[TopicPartition, None] = {}  # their positions may differ from those in the session
        self._delayed: dict[Followed, None] = {}
        self.truncating: dict[Followed, None] = {}  # their logs may differ from the leader's

    def __iter__(self) -> Iterator[Followed]:
        return iter(list(self._followed.values()))

    def __len__(self) -> int:
        return len(self._followed)

    def get(self, key: TopicPartition) -> Followed | None:
        """The partition of this name, if it is followed."""
        return self._followed.get(key)

    def add(self, followed: Followed) -> None:
        """Follow this partition too."""
        self._followed[followed.key] = followed
        self._touched[followed.key] = None
        if followed.is_truncating:
            self.truncating[followed] = None
        # A partition that comes from another fetcher continues its delay here.
        if followed.delayed_until > trio.current_time():
            self._delayed[followed] = None

    def remove(self, key: TopicPartition) -> Followed:
        """Stop following this partition."""
        followed = self._followed.pop(key)
        self._touched[key] = None
        self._delayed.pop(followed, None)
        self.truncating.pop(followed, None)
        return followed

    def is_current(self, followed: Followed) -> bool:
        """Whether it is still followed, under the same leader epoch."""
        return self._followed.get(followed.key) is followed and followed.partition.log is not None

    def is_delayed(self, followed: Followed) -> bool:
        """Whether it is not fetched for a while."""
        return followed in self._delayed

    def position(self, followed: Followed) -> Position | None:
        """The position from which to fetch this partition; None while it is not fetched."""
        log = followed.partition.log
        if log is None or followed.failed or followed in self._delayed or followed in self.truncating:
            return None
        # A Fetch from the log end would acknowledge records that still wait for a demanded flush (`flush.messages`).
        if log.acknowledgeable_offset < log.log_end_offset:
            return None
        return position_of(followed, log, self.fetch_version)

    def touch(self, followed: Followed) -> None:
        """Its position may have changed."""
        self._touched[followed.key] = None

    def update(self, session: FetchSession) -> None:
        """Give the session the positions that have changed since the last call."""
        for key in self._touched:
            followed = self._followed.get(key)
            # The current position counts, whatever touched the partition: it may have left, come
            # back and grown since.
            position = None if followed is None else self.position(followed)
            if position is None:
                session.forget(key)
            else:
                session.want(key, position)
        self._touched.clear()

    # -- delays and failures

    def delay(self, followed: Followed, code: int) -> None:
        """Do not fetch this partition for a while, because of this error."""
        if not self.is_current(followed):
            return
        why = error_name(code)
        logger.info("%s is not fetched from broker %d for a while: %s", followed.key, self._leader_id, why)
        self.delay_all([followed.key])

    def delay_all(self, keys: Iterable[TopicPartition]) -> None:
        """Do not fetch these partitions for a while, at most `replica.fetch.backoff.ms`."""
        delay_seconds_max = max(self._deps.config.replica_fetch_backoff_ms / 1000, DELAY_SECONDS_MIN)
        for key in keys:
            followed = self._followed.get(key)
            if followed is not None:
                followed.back_off(delay_seconds_max, trio.current_time())
                self._delayed[followed] = None
                self._touched[key] = None

    def resume_delayed(self) -> None:
        """Fetch again what was delayed long enough; delay those that are throttled."""
        now = trio.current_time()
        for followed in held_back(self._deps.throttle, self._followed.values(), now):
            self._delayed[followed] = None
            self._touched[followed.key] = None
        for followed in [each for each in self._delayed if each.delayed_until <= now]:
            del self._delayed[followed]
            self._touched[followed.key] = None

    @property
    def next_at(self) -> float:
        """When the first delay ends, on trio's clock."""
        return min((each.delayed_until for each in self._delayed), default=math.inf)

    def fail(self, followed: Followed, code: int) -> None:
        """Do not fetch this partition until its next role, because of this error."""
        if self.is_current(followed):
            logger.warning("%s is not fetched until its next role: %s", followed.key, error_name(code))
            self.mark_failed(followed)

    def mark_failed(self, followed: Followed) -> None:
        """Do not fetch this partition until its next role."""
        # It stays here: the pool removes it when the next role comes.
        followed.failed = True
        self._touched[followed.key] = None

    def is_in_line(self, followed: Followed) -> None:
        """The log agrees with the leader's up to its end, so it is fetched from now on."""
        self.truncating.pop(followed, None)
        followed.is_truncating = False
        self._touched[followed.key] = None
