"""Decisions about in-sync replicas, as pure functions (reference C.6).

The high watermark is the smallest log end offset over the in-sync replicas: everything below it is on every replica
that may become leader, so it is what consumers may see and what acks=all waits for. The leader's own share is its
*acknowledgeable* offset, which stays behind the log end while a demanded flush is outstanding.
"""

from collections.abc import Iterable, Mapping

UNKNOWN_OFFSET = -1


def decide_high_watermark(
    current: int,
    leader_id: int,
    leader_end_offset: int,
    in_sync_replicas: Iterable[int],
    follower_end_offsets: Mapping[int, int],
) -> int:
    """The high watermark after these positions became known: it never falls.

    `leader_end_offset` is the leader's acknowledgeable offset; a follower that has not fetched under this leader epoch
    counts as `UNKNOWN_OFFSET` and holds the high watermark where it is.
    """
    candidate = leader_end_offset
    for replica in in_sync_replicas:
        if replica != leader_id:
            candidate = min(candidate, follower_end_offsets.get(replica, UNKNOWN_OFFSET))
    return max(current, candidate)


def decide_low_watermark(
    leader_id: int,
    leader_start_offset: int,
    live_replicas: Iterable[int],
    follower_start_offsets: Mapping[int, int],
) -> int:
    """The smallest log start offset over the live replicas: what lies below is deleted wherever it could be read.

    It is unknown (-1) while a live follower has not fetched under this leader epoch.
    """
    followers = (follower_start_offsets.get(each, UNKNOWN_OFFSET) for each in live_replicas if each != leader_id)
    return min([leader_start_offset, *followers])
