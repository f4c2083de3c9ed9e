"""The order of a producer's connections (pure): a request that was overtaken is not executed.

A client that gets no answer closes the connection, connects again, and repeats its request. The first one may still be
on its way in the network. Producer id and epoch are the same in all transactions of a producer, so that a delayed
EndTxn would end the *next* transaction (KAFKA-17754). A client uses one connection to a coordinator at a time, so a
request is overtaken if another one of the same producer came on a connection that was accepted later.

Connections are numbered as they are accepted.
"""

import re
from typing import Generic, TypeVar

from barnabas.broker.transactions.state import Producer, TransactionalId
from barnabas.wire.errors import ProtocolViolation

Key = TypeVar("Key")


def is_overtaken(known: TransactionalId | None, producer: Producer, connection: int) -> bool:
    """Whether a later connection of this producer has been used."""
    # A producer with another epoch is refused anyway.
    return known is not None and known.producer == producer and connection < known.connection


def note_connection(known: TransactionalId, producer: Producer, connection: int) -> None:
    """This producer uses this connection."""
    if known.producer == producer:
        known.connection = max(known.connection, connection)


def given_up(client_id: str | None) -> ProtocolViolation:
    """What ends a connection whose request was overtaken."""
    return ProtocolViolation(f"client {client_id!r} has given this connection up: its request is not executed")


class LatestConnections(Generic[Key]):
    """The latest connection of each of several users; those that were noted longest ago make room."""

    def __init__(self, users_max: int) -> None:
        self._users_max = users_max
        self._latest: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def is_overtaken(self, user: Key, connection: int) -> bool:
        """Whether this user has used a later connection."""
        return connection < self._latest.get(user, 0)

    def note(self, user: Key, connection: int) -> None:
        """This user uses this connection."""
        self._latest[user] = max(self._latest.pop(user, 0), connection)
        if len(self._latest) > self._users_max:
            del self._latest[next(iter(self._latest))]


# Of TxnOffsetCommit. The state of a producer in a group's partition ends with each transaction, so it is kept apart.
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

    def is_overtaken(self, client_id: str | None, connection: int) -> bool:
        """Whether this coordinator has used a later connection; notes this one if not. Others are never overtaken."""
        # Administrators end hanging transactions with the same request.
        if client_id is None or not _SENDER.fullmatch(client_id):
            return False
        overtaken = self._latest.is_overtaken(client_id, connection)
        self._latest.note(client_id, connection)
        return overtaken
