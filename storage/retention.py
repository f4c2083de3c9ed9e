"""Which old segments retention may delete: by time, by size, or below the log start offset (pure).

Kafka deletes whole segments from the front of a log, and only those that lie below the high watermark (reference D.6;
KIP-107 for the log start offset). A segment goes if one of three rules applies:

    log start   the next segment begins at or below the log start offset, so no consumer can read this one; any policy
    size        without this segment the log still holds `retention.bytes`; only if cleanup.policy contains "delete"
    time        its largest timestamp is older than `retention.ms`; only if cleanup.policy contains "delete"

The log start rule never applies to the last segment, which has no next one; the other two may, if it is not empty. The
caller then rolls a new segment first, because a log always has one.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.storage.cleanable import SegmentFacts

UNLIMITED = -1
DELETIONS_AT_A_TIME = 8  # segments in one call on the event loop; each costs up to five renames


class Limits(NamedTuple):
    """The topic settings that retention uses."""

    deletes: bool  # whether cleanup.policy contains "delete"
    retention_ms: int  # -1: no limit
    retention_bytes: int  # -1: no limit


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
    """The number of segments, from the first on, that may be deleted."""
    # The bytes by which the log exceeds retention.bytes; -1 without a limit, so that no segment counts as surplus.
    surplus_bytes = log_size_bytes - limits.retention_bytes if limits.retention_bytes >= 0 else UNLIMITED
    count = 0
    for segment in _below(segments, log_end_offset, high_watermark):
        # The cheap rules come first: the time rule may read a file. The loop ends at the first segment that stays.
        breached = segment.next_base_offset is not None and segment.next_base_offset <= log_start_offset
        oversize = limits.deletes and surplus_bytes >= segment.size_bytes
        if not (breached or oversize or (limits.deletes and _is_expired(segment, limits.retention_ms, now_ms))):
            break
        # Every deleted segment reduces the surplus, whichever rule it met.
        surplus_bytes -= segment.size_bytes
        count += 1
    return count


def _below(segments: Iterable[SegmentFacts], log_end_offset: int, high_watermark: int) -> Iterator[SegmentFacts]:
    """The leading segments whose records are all below the high watermark, without an empty last one."""
    # Retention raises the log start offset, which must not exceed the high watermark (KIP-107).
    for segment in segments:
        # An empty last segment stays: its deletion would free nothing, and a new one would have to be created.
        end_offset = log_end_offset if segment.next_base_offset is None else segment.next_base_offset
        if end_offset > high_watermark or (segment.next_base_offset is None and segment.size_bytes == 0):
            return
        yield segment


def _is_expired(segment: SegmentFacts, retention_ms: int, now_ms: int) -> bool:
    return retention_ms >= 0 and now_ms - segment.largest_timestamp_ms() > retention_ms
