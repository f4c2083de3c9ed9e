"""The synchronous parts of a Fetch: positions that it names, partitions that it plans, rows that it selects.

`handlers/fetch.py` uses them with checkpoints in between, `now/fetch.py` in one step.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.fetching.plan import FetchPlan, Row, records_bytes
from barnabas.replication.fetch_sessions import FetchSession, Topic, Wanted
from barnabas.wire import messages as m


class Planned(NamedTuple):
    """A Fetch of which everything is planned that its response needs: it is neither opened nor planned again."""

    plan: FetchPlan
    session: FetchSession | None


def wanted_of(topic: Topic, partition: m.FetchRequest.FetchPartition) -> Wanted:
    """What a request wants of a partition."""
    wanted = Wanted(topic, partition.partition)
    wanted.fetch_offset = partition.fetch_offset
    wanted.max_bytes = partition.partition_max_bytes
    wanted.current_leader_epoch = partition.current_leader_epoch
    wanted.last_fetched_epoch = partition.last_fetched_epoch
    wanted.log_start_offset = partition.log_start_offset
    return wanted


def update(session: FetchSession, change: Wanted) -> None:
    """Add a partition that an incremental request names, or update its position."""
    known = session.find(change.topic, change.partition_index)
    if known is None:
        session.want(change)
        return
    # A follower ignores rows of its previous leader epoch, for example one that was under way when it got the new role.
    if change.current_leader_epoch != known.current_leader_epoch:
        known.forget_sent()
    # The known entry is updated, not replaced: it holds the offsets of the last response and the follower's state.
    known.fetch_offset = change.fetch_offset
    known.max_bytes = change.max_bytes
    known.current_leader_epoch = change.current_leader_epoch
    known.last_fetched_epoch = change.last_fetched_epoch
    known.log_start_offset = change.log_start_offset
    session.want(known)


def begin_in(session: FetchSession, plan: FetchPlan) -> float:
    """A request of the session arrives: the time (ms) that its pulse gets once all due partitions are planned."""
    # An incremental fetch of a follower names only partitions with news. Through the pulse it counts as a fetch of all
    # partitions of the session, so a quiet partition's follower stays in the ISR.
    plan.pulse = session.pulse
    session.pulse.broker_epoch = plan.broker_epoch
    return plan.broker.alter_partition.now_ms()


def plan_some(plan: FetchPlan, session: FetchSession, due: Iterable[Wanted]) -> None:
    """Plan these partitions of the session, and watch them."""
    for wanted in due:
        session.watch(wanted, plan.plan(wanted))


def is_enough(plan: FetchPlan, request: m.FetchRequest) -> bool:
    """Whether the request is answered without a wait."""
    return plan.urgent or plan.planned_bytes >= plan.min_bytes or request.max_wait_ms <= 0 or bool(plan.awaited)


def select(plan: FetchPlan, session: FetchSession, wanted: Wanted, row: Row, *, incremental: bool) -> tuple[bool, bool]:
    """Whether the response holds this row, and whether its partition was served. Notes which offsets it reports.

    An incremental response holds only rows with news: an error, records, or other offsets than the last response had.
    """
    has_news = (
        row.error_code != 0
        or records_bytes(row) > 0
        or row.diverging_epoch.epoch >= 0
        or row.preferred_read_replica >= 0
    )

    # To be fair, a partition whose records found no room is planned before those that were served now.
    # Two more kinds of partitions are planned in every request: that of a follower outside the ISR, which
    # joins by a fetch, and that of a follower whose fetches the leader awaits.
    if not has_news and (wanted in plan.left_over or wanted in plan.awaited or plan.is_joining(wanted)):
        session.due[wanted] = None
    offsets = row.high_watermark, row.log_start_offset
    has_moved = offsets != (wanted.sent_high_watermark, wanted.sent_log_start_offset)
    wanted.sent_high_watermark, wanted.sent_log_start_offset = offsets

    # A follower whose log diverges truncates it, and takes over nothing else of this row.
    if row.diverging_epoch.epoch >= 0:
        wanted.forget_sent()
    return has_news or not incremental or has_moved, has_news
