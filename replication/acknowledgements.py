"""The acknowledgements of appended records: several partitions, one wait."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.replication.partition import Partition
from barnabas.wire.errors import ErrorCode
from barnabas.world.waiting import Decisions


class AppendedUpTo(NamedTuple):
    """Records that one request appended to one partition and that wait for their acknowledgement."""

    partition: Partition
    end_offset: int
    leading_since: int  # the epoch in which this broker became the leader that appended them

    def outcome(self, required_acks: int) -> ErrorCode | None:
        """The error code of the acknowledgement; None while it is open."""
        return self.partition.outcome(self.end_offset, self.leading_since, required_acks)


def acknowledgements(appends: Sequence[AppendedUpTo], required_acks: int) -> Decisions[ErrorCode]:
    """The error codes of several appends, in their order. Each is decided when its records are committed or lost."""
    return Decisions([each.partition for each in appends], lambda index: appends[index].outcome(required_acks))
