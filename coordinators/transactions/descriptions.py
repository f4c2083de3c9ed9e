"""What DescribeTransactions and ListTransactions show (pure; KIP-664, KIP-994)."""

from typing import NamedTuple

from barnabas.coordinators.transactions.state import PREPARED, STATUS_NAMES, Partitions, Producer, TransactionalId


class Description(NamedTuple):
    """One transactional id. Times are the wall clock in ms; `start_ms` is NO_TIME without a transaction."""

    name: str
    status: str
    timeout_ms: int
    start_ms: int
    producer: Producer
    partitions: Partitions


def describe(known: TransactionalId) -> Description:
    """The id as it is recorded; of a decided transaction the partitions that have no marker yet."""
    recorded = known.recorded
    partitions = dict(known.unmarked) if recorded.status in PREPARED else recorded.partitions
    name = STATUS_NAMES[recorded.status]
    return Description(known.name, name, recorded.timeout_ms, recorded.start_ms, known.producer, partitions)


class Overview(NamedTuple):
    """One transactional id in a list."""

    name: str
    status: str
    producer: Producer


def overview(known: TransactionalId) -> Overview:
    """The id as it is recorded."""
    return Overview(known.name, STATUS_NAMES[known.recorded.status], known.producer)


class Filters(NamedTuple):
    """What ListTransactions asks for; an empty set does not filter."""

    statuses: frozenset[str]
    producer_ids: frozenset[int]
    duration_ms: int  # longer than this; below 0 does not filter


def is_listed(known: TransactionalId, filters: Filters, now_ms: int) -> bool:
    """Whether the filters let this id pass."""
    recorded = known.recorded
    if filters.statuses and STATUS_NAMES[recorded.status] not in filters.statuses:
        return False
    if filters.producer_ids and recorded.producer_id not in filters.producer_ids:
        return False
    # An id without a transaction passes, as in Kafka: its start, NO_TIME, is long ago.
    return filters.duration_ms < 0 or now_ms - recorded.start_ms > filters.duration_ms
