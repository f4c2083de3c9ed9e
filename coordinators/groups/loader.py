"""Loading groups: what a record or a marker of the log means for them, and what follows when all are read."""

import logging

from barnabas.coordinators.groups.classic.state import forget
from barnabas.coordinators.groups.records import decode_record
from barnabas.coordinators.groups.replay import Groups, replay, replay_marker

logger = logging.getLogger(__name__)


class GroupLoader:
    """Replays a log into `groups`, which nothing else uses yet (`broker.shards.loading.Loader`)."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    @property
    def needs_all_records(self) -> bool:
        """Only while a transaction is open: a tombstone drops pending offsets, even if a commit follows it."""
        return bool(self._groups.open)

    def replay(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        """A record of the log. Raises MalformedRecord."""
        decoded = decode_record(key, value)
        # As in Kafka, records of the newer group protocol (KIP-848) are ignored here.
        if decoded is None:
            logger.warning("passed over a record at offset %d of a kind that is not served", offset)
        else:
            replay(self._groups, decoded, offset, producer_id)

    def replay_marker(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """The end of a transaction."""
        replay_marker(self._groups, producer_id, offset, committed=committed)

    def finish(self) -> Groups:
        """The whole log is read: derive the volatile part of each group."""
        # Groups of which the log has only tombstones do not exist.
        by_id = self._groups.by_id
        for group_id in [group_id for group_id, group in by_id.items() if group.recorded.is_blank]:
            del by_id[group_id]
        for group in by_id.values():
            forget(group)
            self._groups.unknown_topics |= dict.fromkeys(key.topic for key in group.recorded.partitions())
        return self._groups
