"""Which old segments may go: by time, by size, or because they lie below the log start offset.

Kafka deletes whole segments from the front of a log, and only such as lie below the high watermark (reference D.6;
KIP-107 for the log start offset). The three rules are asked in Kafka's order and their answers add up:

    log start   the next segment begins at or below the log start offset: no consumer can read this one. Any cleanup
    policy size        without this segment the log still holds `retention.bytes`. Only with the policy "delete" time
    the segment's newest record is older than `retention.ms`. Only with the policy "delete"

The last segment has no next one, so the log start rule never takes it; the other two may, if it is not empty. Who
carries the decision out rolls a new segment first then, for a log is never without one.

Pure: the facts are an iterable that is read only as far as the decision needs, because the newest timestamp of a
segment costs its owner a look into a file.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

UNLIMITED = -1


class SegmentFacts(Protocol):
    """What a decision needs to know of one segment."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def next_base_offset(self) -> int | None:
        """Where the next segment begins; None for the last one."""

    def largest_timestamp_ms(self) -> int:
        """The newest record's timestamp, or the file's time when records bear none. Costs a look into a file."""


class Limits(NamedTuple):
    """The settings that matter, as they are at this moment."""

    deletes: bool  # whether cleanup.policy contains "delete"
    retention_ms: int  # -1: for ever
    retention_bytes: int  # -1: any size


def decide_retention(
    segments: Iterable[SegmentFacts],
    limits: Limits,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    log_size_bytes: int,
    now_ms: int,
) -> int:
    """How many segments, from the first on, may be deleted."""
    surplus_bytes = log_size_bytes - limits.retention_bytes if limits.retention_bytes >= 0 else UNLIMITED
    count = 0
    for segment in _below(segments, log_end_offset, high_watermark):
        breached = segment.next_base_offset is not None and segment.next_base_offset <= log_start_offset
        oversize = limits.deletes and surplus_bytes >= segment.size_bytes
        if not (breached or oversize or (limits.deletes and _is_expired(segment, limits.retention_ms, now_ms))):
            break
        surplus_bytes -= segment.size_bytes
        count += 1
    return count


def _below(segments: Iterable[SegmentFacts], log_end_offset: int, high_watermark: int) -> Iterator[SegmentFacts]:
    """The leading segments that hold only committed records; an empty last one has nothing to delete."""
    for segment in segments:
        end_offset = log_end_offset if segment.next_base_offset is None else segment.next_base_offset
        if end_offset > high_watermark or (segment.next_base_offset is None and segment.size_bytes == 0):
            return
        yield segment


def _is_expired(segment: SegmentFacts, retention_ms: int, now_ms: int) -> bool:
    return retention_ms >= 0 and now_ms - segment.largest_timestamp_ms() > retention_ms
