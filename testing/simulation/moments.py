"""Moments that a fault waits for: what happens next at a broker. The rules about transactions tell of them (pure)."""

from collections.abc import Callable

PREPARED, DECIDED = "prepared", "decided"  # a decision about a transaction was appended; it is committed


class Moments:
    """What waits for which moment, in the order in which the waits began."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[int], None]]] = {}

    def wait(self, moment: str, act: Callable[[int], None]) -> Callable[[], None]:
        """Call `act(broker_id)` at the next moment of this name, unless the wait is taken back."""
        waiting = self._waiting.setdefault(moment, [])
        waiting.append(act)

        def undo() -> None:
            if act in waiting:
                waiting.remove(act)

        return undo

    def come(self, moment: str, broker_id: int) -> None:
        """The moment is there, at this broker."""
        waiting = self._waiting.get(moment)
        if waiting:
            waiting.pop(0)(broker_id)
