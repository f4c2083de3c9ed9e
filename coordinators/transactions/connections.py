"""The order of connections (`connection_order.py`) in transactions: of a producer, and of a sender of markers.

Producer id and epoch are the same in all transactions of a producer, so a delayed EndTxn would end the *next*
transaction (KAFKA-17754).
"""

import re

from barnabas.coordinators.transactions.state import Producer, TransactionalId
from barnabas.world.connection_order import LatestConnections


def is_overtaken(known: TransactionalId | None, producer: Producer, connection: int) -> bool:
    """Whether a later connection of this producer has been used."""
    # A producer with another epoch is refused anyway.
    return known is not None and known.producer == producer and connection < known.connection


def is_unproved(known: TransactionalId, producer: Producer, connection: int) -> bool:
    """Whether this producer has not used this connection since the id was loaded.

    A request that was under way while this broker was no coordinator, and is one again, must not be executed. It is
    answered with a retriable error: a client that repeats it on the same connection has not given that up. An earlier
    connection is no proof: its client may have repeated the request on this one, and have given up both.
    """
    return known.producer == producer and known.connection != connection


def note_connection(known: TransactionalId, producer: Producer, connection: int) -> None:
    """This producer uses this connection."""
    if known.producer == producer:
        known.connection = max(known.connection, connection)


# How many producers of TxnOffsetCommit are remembered. They are kept apart from the groups'
# partitions, where the state of a producer ends with each transaction.
COMMITTERS_MAX = 10_000


SENDER_CLIENT_ID = "broker-{}-txn-marker-sender"  # of a coordinator's requests; Kafka's name
_SENDER = re.compile(r"broker-\d{1,10}-txn-marker-sender")
SENDERS_MAX = 1000  # more brokers than a cluster has; a client may call itself by any such name


class SenderConnections:
    """The order of the connections of coordinators that send markers to this broker.

    A delayed WriteTxnMarkers would end the next transaction of its producer in one partition: the coordinator sends it
    again on another connection, and goes on when that one is answered.
    """

    def __init__(self) -> None:
        self._latest = LatestConnections[str](SENDERS_MAX)
        self._arrivals: dict[str, tuple[int, int]] = {}  # of the last request: its connection and mark

    def sent_after(self, client_id: str | None, connection: int, mark: int) -> int:
        """A request has arrived, at `mark` (`Partition.mark`): the mark of a moment after which it was sent.

        A coordinator sends the next request on a connection when it has the response to the one before, so that is the
        arrival of that one; 0 if there is none. Requests of others are taken to be sent now.
        """
        if client_id is None or not _SENDER.fullmatch(client_id):
            return mark
        last_connection, last_mark = self._arrivals.pop(client_id, (0, 0))
        self._arrivals[client_id] = connection, mark
        if len(self._arrivals) > SENDERS_MAX:
            del self._arrivals[next(iter(self._arrivals))]
        return last_mark if connection == last_connection else 0

    def is_overtaken(self, client_id: str | None, connection: int) -> bool:
        """Whether this coordinator has used a later connection; notes this one if not. Others are never overtaken."""
        # Administrators end hanging transactions with the same request.
        if client_id is None or not _SENDER.fullmatch(client_id):
            return False
        overtaken = self._latest.is_overtaken(client_id, connection)
        self._latest.note(client_id, connection)
        return overtaken
