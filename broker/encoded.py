"""Answers that many clients ask for alike, kept as bytes for as long as they are true.

What all of them share is one object, however many clients it is being sent to.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

import trio

FORMS_MAX = 16  # versions and listeners that are asked for at the same time
KEPT_BYTES_MAX = 32 << 20  # of all of them


class Encoded(NamedTuple):
    """The body of an answer: its bytes, in pieces that are not copied."""

    pieces: tuple[bytes, ...]


class _Making:
    """One that is being made: all who ask meanwhile wait for it."""

    def __init__(self) -> None:
        self.made: bytes | None = None
        self.ended = trio.Event()


class Kept:
    """What was made, by all that it depends on beside the state that `clear` is called for."""

    def __init__(self) -> None:
        self._made: dict[Hashable, bytes] = {}
        self._making: dict[Hashable, _Making] = {}

    def clear(self) -> None:
        """The state has changed: nothing that was made, or is being made, is given to those who ask from now on."""
        self._made, self._making = {}, {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """What is kept under this key, or is made now; it is kept if the state does not change in between."""
        while True:
            kept = self._made.get(key)
            if kept is not None:
                return kept
            making = self._making.get(key)
            if making is None:
                return await self._make(key, make)
            await making.ended.wait()
            if making.made is not None:
                return making.made
            # Who made it was given up: this one does.

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        making = self._making[key] = _Making()
        try:
            making.made = await make()
        finally:
            making.ended.set()
            if self._making.get(key) is making:
                del self._making[key]
                self._keep(key, making.made)
        return making.made

    def _keep(self, key: Hashable, made: bytes | None) -> None:
        if made is None or len(made) > KEPT_BYTES_MAX:
            return
        self._made[key] = made
        while len(self._made) > FORMS_MAX or sum(map(len, self._made.values())) > KEPT_BYTES_MAX:
            del self._made[next(iter(self._made))]  # the oldest
