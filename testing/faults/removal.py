"""The removal of a fault, for which tasks on the loops of brokers wait (edge)."""

import threading
from contextlib import suppress

import trio


class Removal:
    """Set once, from any thread; tasks on any loop wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: dict[trio.Event, trio.lowlevel.TrioToken] = {}

    @property
    def is_set(self) -> bool:
        """Whether the fault is removed."""
        return self._is_set

    def set(self) -> None:
        """Let all who wait go on, and those who come later."""
        with self._lock:
            self._is_set = True
            waiting = list(self._waiting.items())
        for event, token in waiting:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(event.set)

    async def wait(self) -> None:
        """Until it is set."""
        event = trio.Event()
        with self._lock:
            if self._is_set:
                return
            self._waiting[event] = trio.lowlevel.current_trio_token()
        try:
            await event.wait()
        finally:
            with self._lock:
                del self._waiting[event]
