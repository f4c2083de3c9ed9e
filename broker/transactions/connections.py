"""The order of a producer's connections (pure): a request that was overtaken is not executed.

A client that gets no answer closes the connection, connects again, and repeats its request. The first one may still be
on its way in the network. Producer id and epoch are the same in all transactions of a producer, so that a delayed
EndTxn would end the *next* transaction (KAFKA-17754). A client uses one connection to a coordinator at a time, so a
request is overtaken if another one of the same producer came on a connection that was accepted later.

Connections are numbered as they are accepted.
"""

import re

from barnabas.broker.transactions.state import Producer, TransactionalId


def is_overtaken(known: TransactionalId | None, producer: Producer, connection: int) -> bool:
    """Whether a later connection of this producer has been used."""
    # A producer with another epoch is refused anyway.
    return known is not None and known.producer == producer and connection < known.connection


def note_connection(known: TransactionalId, producer: Producer, connection: int) -> None:
    """This producer uses this connection."""
    if known.producer == producer:
        known.connection = max(known.connection, connection)


SENDER_CLIENT_ID = "broker-{}-txn-marker-sender"  # of a coordinator's requests; Kafka's name
_SENDER = re.compile(r"broker-\d{1,10}-txn-marker-sender")
SENDERS_MAX = 1000  # more brokers than a cluster has; a client may call itself by any such name


class SenderConnections:
    """The order of the connections of coordinators that send markers to this broker.

    A delayed WriteTxnMarkers would end the next transaction of its producer in one partition: the coordinator sends it
    again on another connection, and goes on when that one is answered.
    """

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}

    def is_overtaken(self, client_id: str | None, connection: int) -> bool:
        """Whether this coordinator has used a later connection; notes this one if not. Others are never overtaken."""
        # Administrators end hanging transactions with the same request.
        if client_id is None or not _SENDER.fullmatch(client_id):
            return False
        latest = self._latest.pop(client_id, 0)
        self._latest[client_id] = max(latest, connection)
        if len(self._latest) > SENDERS_MAX:
            del self._latest[next(iter(self._latest))]
        return connection < latest
