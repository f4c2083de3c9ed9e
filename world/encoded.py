"""`Kept`: a cache of encoded responses that many clients request alike, such as Metadata of all topics.

All clients share one bytes object, whatever their number.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

import trio

FORMS_MAX = 16  # cached responses: combinations of versions and listeners that clients use at the same time
KEPT_BYTES_MAX = 32 << 20  # all cached responses together


class Encoded(NamedTuple):
    """The encoded body of a response, in pieces; large pieces are sent without a copy."""

    pieces: tuple[bytes, ...]


class _Making:
    """A response that is being made; all requests for it wait for `ended`."""

    def __init__(self) -> None:
        self.made: bytes | None = None  # stays None when making it failed or was cancelled
        self.ended = trio.Event()


class Kept:
    """Responses by key: everything that they depend on except the state whose changes call `clear`."""

    def __init__(self) -> None:
        self._made: dict[Hashable, bytes] = {}
        self._making: dict[Hashable, _Making] = {}

    def clear(self) -> None:
        """Drop all responses after the state changed; requests from now on get newly made ones."""
        # A response that is being made goes to the requests that wait for it already, and is not kept: `_make` finds
        # that it is no longer in `_making`.
        self._made = {}
        self._making = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The response under this key. Calls `make` if there is none; raises what `make` raises."""
        while True:
            kept = self._made.get(key)
            if kept is not None:
                return kept
            making = self._making.get(key)
            # Many clients ask at once after a change, so one of them makes the response and the
            # others wait.
            if making is None:
                return await self._make(key, make)
            await making.ended.wait()
            if making.made is not None:
                return making.made
            # The request that made it failed or was cancelled: the first one that continues here makes it.

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
