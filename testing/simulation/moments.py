"""Moments that a fault waits for: what happens next at a broker. The rules about transactions tell of them (pure)."""

from collections.abc import Callable
from typing import NamedTuple

PREPARED, DECIDED = "prepared", "decided"  # a decision about a transaction was appended; it is committed
OPENED = "opened"  # a leader has appended the first batch of a transaction in a partition


class Moment(NamedTuple):
    """It has come: at this broker, for this transactional id."""

    kind: str
    broker_id: int
    name: str


Act = Callable[[Moment], None]


class Moments:
    """What waits for which moment, in the order in which the waits began."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[Act, Moment | None]]] = {}

    def wait(self, kind: str, act: Act, *, only: Moment | None = None) -> Callable[[], None]:
        """Call `act` at the next moment of this kind, or `only` at this one, unless the wait is taken back."""
        waiting = self._waiting.setdefault(kind, [])
        mine = (act, only)
        waiting.append(mine)

        def undo() -> None:
            if mine in waiting:
                waiting.remove(mine)

        return undo

    def come(self, moment: Moment) -> None:
        """The moment is there."""
        waiting = self._waiting.get(moment.kind, [])
        for act, only in waiting:
            if only in (None, moment):
                waiting.remove((act, only))
                act(moment)
                return
