"""The order of a sender's connections (pure): a request that was overtaken is not executed.

A sender that gets no answer closes the connection, connects again, repeats its request, and goes on when that one is
answered. The first request may still be on its way in the network; executed after all, it would undo what was done
since. A sender uses one connection at a time, so a request is overtaken if another one of the same sender came on a
connection that was accepted later. Three kinds of senders are kept in order: producers (EndTxn and its kin), brokers
that send transaction markers, and the controller.

Connections are numbered as they are accepted.
"""

from typing import Generic, NamedTuple, TypeVar

from barnabas.wire.errors import ProtocolViolation

Key = TypeVar("Key")


class Source(NamedTuple):
    """Where a request came from."""

    client_id: str | None
    connection: int


class LatestConnections(Generic[Key]):
    """The latest connection of each of several senders; those that were noted longest ago make room."""

    def __init__(self, senders_max: int) -> None:
        self._senders_max = senders_max
        self._latest: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def is_overtaken(self, sender: Key, connection: int) -> bool:
        """Whether this sender has used a later connection."""
        return connection < self._latest.get(sender, 0)

    def is_latest(self, sender: Key, connection: int) -> bool:
        """Whether this connection is the latest that this sender has used."""
        return self._latest.get(sender) == connection

    def note(self, sender: Key, connection: int) -> None:
        """This sender uses this connection."""
        self._latest[sender] = max(self._latest.pop(sender, 0), connection)
        if len(self._latest) > self._senders_max:
            del self._latest[next(iter(self._latest))]


def given_up(client_id: str | None) -> ProtocolViolation:
    """What ends a connection whose request was overtaken."""
    return ProtocolViolation(f"client {client_id!r} has given this connection up: its request is not executed")
