"""The pending markers of decided transactions, and what an answer to them means (reference transactions, T.11).

A committed decision has to write a marker into each partition of its transaction: a `Debt` is its pending markers, and
`Owed` is the queue of all of them, as Kafka's TxnMarkerQueue. Markers are sent to the partitions' leaders, all pending
ones of a broker in one request. A partition has its marker when its leader says so; until
then the marker is sent again, for ever: the decision cannot be reversed, and readers wait behind the open transaction.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from barnabas.coordinators.runtime.shard import Shard
from barnabas.coordinators.transactions.markers import Ending
from barnabas.coordinators.transactions.state import PREPARED, TransactionalId, TransactionalIds
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_of
from barnabas.wire.topics import TopicPartition

# The topic cannot hold transactions, so there is nothing to end.
WITHOUT_MARKER = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
# A newer coordinator or producer epoch has written to the partition. This broker may be about to
# resign.
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
SENT_AT_A_TIME = 1000  # partitions in one request: to make it, and to read its answer, takes one step each

Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
MarkerTopic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic


class Debt:
    """The pending markers of one decision."""

    __slots__ = ("attempts", "known", "offset", "shard", "was_reported")

    def __init__(self, shard: Shard[TransactionalIds], known: TransactionalId) -> None:
        self.shard = shard
        self.known = known
        self.offset = known.offset
        self.attempts = 0  # failed ones, for the pause before the next
        self.was_reported = False  # that a partition refuses the marker for good

    @property
    def is_open(self) -> bool:
        """Whether this broker is still the coordinator, and the decision the newest record of the id."""
        shard = self.shard
        known = self.known
        if shard.refusal or not shard.partition.is_leader:
            return False
        return known.offset == self.offset and known.recorded.status in PREPARED

    @property
    def coordinator_epoch(self) -> int:
        """It rises with each coordinator of the id. Partitions refuse markers with a lower one than they have seen."""
        return self.shard.partition.leader_epoch

    @property
    def ending(self) -> Ending:
        """What the markers say."""
        recorded = self.known.recorded
        return Ending(recorded.producer_id, recorded.producer_epoch, bool(recorded.is_commit), self.coordinator_epoch)


Partitions = dict[TopicPartition, None]
Taken = list[tuple[Debt, Sequence[TopicPartition]]]


class Settled(NamedTuple):
    """An answer's result: partitions to try again soon, those to try later, and what has no pending marker left."""

    again: dict[Debt, Partitions]
    later: dict[Debt, Partitions]
    paid: list[Debt]


class Owed:
    """The markers that wait to be sent, by destination."""

    def __init__(self) -> None:
        # The dicts are OrderedDicts, because the first entry of a plain dict is found only behind
        # all those that were removed from its front.
        self._by_broker: dict[int, OrderedDict[Debt, Partitions]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_broker)

    def is_owed(self, broker_id: int) -> bool:
        """Whether markers wait for this broker."""
        return broker_id in self._by_broker

    def add(
        self, debt: Debt, partitions: Iterable[TopicPartition], leader_of: Callable[[TopicPartition], int | None]
    ) -> tuple[set[int], Partitions]:
        """Queue markers for the leaders of these partitions: (the destinations, the partitions without a leader)."""
        destinations: set[int] = set()
        homeless: Partitions = {}
        for each in partitions:
            leader = leader_of(each)
            if leader is None:
                homeless[each] = None
            else:
                destinations.add(leader)
                self._by_broker.setdefault(leader, OrderedDict()).setdefault(debt, {})[each] = None
        return destinations, homeless

    def take(self, broker_id: int) -> Taken:
        """The next markers for this broker, of at most SENT_AT_A_TIME partitions. None may be taken although some wait:
        very many may have become obsolete since they were queued."""
        waiting = self._by_broker.get(broker_id, OrderedDict())
        taken: Taken = []
        left = SENT_AT_A_TIME
        while waiting and left > 0:
            debt, partitions = waiting.popitem(last=False)

            # Its markers are all written, or another coordinator sends them now.
            if not debt.is_open:
                left -= 1
                continue
            some = list(islice(partitions, left))
            if len(some) < len(partitions):
                for each in some:
                    del partitions[each]
                waiting[debt] = partitions
            taken.append((debt, some))
            left -= len(some)

        if not waiting:
            self._by_broker.pop(broker_id, None)
        return taken


def request_of(taken: Taken) -> m.WriteTxnMarkersRequest:
    """One marker for each decision: an id has one decision at a time, so no producer id is there twice."""
    markers = []
    for debt, partitions in taken:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        ending = debt.ending
        markers.append(
            Marker(
                producer_id=ending.producer_id,
                producer_epoch=ending.producer_epoch,
                transaction_result=ending.is_commit,
                topics=[MarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
                coordinator_epoch=ending.coordinator_epoch,
            )
        )

    return m.WriteTxnMarkersRequest(markers=markers)


def errors_of(response: m.WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """The error code of each partition, by producer id."""
    errors: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        of_producer = errors.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for row in topic.partitions:
                of_producer[TopicPartition(topic.name, row.partition_index)] = error_of(row.error_code)
    return errors


def settle(taken: Taken, errors: Mapping[int, Mapping[TopicPartition, ErrorCode]]) -> Settled:
    """Take the confirmed partitions off `unmarked`. What the answer does not name is tried again."""
    settled = Settled({}, {}, [])
    for debt, partitions in taken:
        # The answer is to an older decision, or this broker has resigned and the new coordinator
        # sends the
        # markers.
        if not debt.is_open:
            continue
        of_producer = errors.get(debt.known.recorded.producer_id, {})
        for each in partitions:
            error = of_producer.get(each, ErrorCode.UNKNOWN_SERVER_ERROR)
            if not error or error in WITHOUT_MARKER:
                debt.known.unmarked.pop(each, None)
            else:
                bucket = settled.later if error in FENCED else settled.again
                bucket.setdefault(debt, {})[each] = None
        if not debt.known.unmarked:
            settled.paid.append(debt)

    return settled
