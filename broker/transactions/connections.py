"""The order of a producer's connections (pure): a request that was overtaken is not executed.

A client that gets no answer closes the connection, connects again, and repeats its request. The first one may still be
on its way in the network. Producer id and epoch are the same in all transactions of a producer, so that a delayed
EndTxn would end the *next* transaction (KAFKA-17754). A client uses one connection to a coordinator at a time, so a
request is overtaken if another one of the same producer came on a connection that was accepted later.

Connections are numbered as they are accepted.
"""

from barnabas.broker.transactions.state import Producer, TransactionalId


def is_overtaken(known: TransactionalId | None, producer: Producer, connection: int) -> bool:
    """Whether a later connection of this producer has been used."""
    # A producer with another epoch is refused anyway.
    return known is not None and known.producer == producer and connection < known.connection


def note_connection(known: TransactionalId, producer: Producer, connection: int) -> None:
    """This producer uses this connection."""
    if known.producer == producer:
        known.connection = max(known.connection, connection)
