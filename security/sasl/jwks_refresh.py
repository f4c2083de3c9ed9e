"""Keeps the keys for signed access tokens fresh: one task for each listener with a JWKS endpoint.

`start` fetches the first keys, with retries; a broker that cannot get them does not start, as in Kafka. From then on
`run` fetches them whenever `JwksCache` says that they are due. A failed fetch keeps the old keys.
"""

import logging
from collections.abc import Callable

import trio

from barnabas.security.sasl.jwks import Jwk, JwksCache, parse_jwks
from barnabas.storage.disk import InThread

logger = logging.getLogger(__name__)

ATTEMPTS_AT_START = 5


class JwksUnavailable(Exception):
    """The first key set cannot be fetched."""


class JwksRefresher:
    """Fetches the keys of one endpoint. `fetch` blocks, in a thread; it raises OSError or ValueError."""

    def __init__(self, cache: JwksCache, url: str, fetch: Callable[[str], bytes], in_thread: InThread) -> None:
        self._cache = cache
        self._url = url
        self._fetch = fetch
        self._in_thread = in_thread
        self._missed = trio.Event()  # set when a token names a key that is not there

    def missed(self, key_id: str | None) -> None:
        """A token names a key that is not there: fetch early, if it may."""
        if self._cache.missed(key_id, _now_ms()):
            self._missed.set()

    async def start(self) -> None:
        """Fetch the first keys. JwksUnavailable."""
        for _ in range(ATTEMPTS_AT_START):
            if await self._refresh():
                return
            await trio.sleep_until(self._cache.due_at_ms / 1000)
        raise JwksUnavailable(f"no keys can be fetched from sasl.oauthbearer.jwks.endpoint.url={self._url}")

    async def run(self) -> None:
        """Fetch keys when they are due, until cancelled."""
        while True:
            with trio.move_on_at(self._cache.due_at_ms / 1000):
                await self._missed.wait()
            self._missed = trio.Event()
            await self._refresh()

    async def _refresh(self) -> bool:
        try:
            keys = await self._in_thread(_fetched_keys, self._fetch, self._url)
        except (OSError, ValueError) as error:
            logger.warning("no keys from %s: %s", self._url, error, extra={"peer": self._url})
            self._cache.failed(_now_ms())
            return False
        self._cache.fetched(keys, _now_ms())
        return True


def _fetched_keys(fetch: Callable[[str], bytes], url: str) -> tuple[Jwk, ...]:
    return parse_jwks(fetch(url))


def _now_ms() -> float:
    return trio.current_time() * 1000
