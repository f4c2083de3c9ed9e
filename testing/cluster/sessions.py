"""The metadata store of a `LocalCluster`: one embedded store, and a session for each broker, as ZooKeeper gives them.

A session ends when its broker stops, or `zookeeper.session.timeout.ms` after the store has last heard of it: the broker
was killed so, is frozen, or is cut off. While a broker cannot reach the store its calls wait; a broker whose session
has ended meanwhile learns of that when it reaches the store again, and registers in another session.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from barnabas.controller.store.sqlitestore import SqliteDatabase, SqliteStore
from barnabas.controller.store.store import Item, MetadataStore, Outcome, Stat, Watch
from barnabas.testing.cluster.network import STORE, Links
from barnabas.world.world import StoreConfig

Answer = TypeVar("Answer")


class ClusterStore:
    """The sessions of the brokers. `nursery` outlives them all."""

    def __init__(self, database: SqliteDatabase, links: Links, nursery: trio.Nursery) -> None:
        self._database = database
        self._links = links
        self._nursery = nursery
        self._sessions: dict[int, BrokerSession] = {}  # by broker, the last one of each

    async def open(self, broker_id: int, config: StoreConfig) -> MetadataStore:
        """A session for a new life of this broker."""
        await self.end(broker_id)
        timeout_seconds = config.zookeeper_session_timeout_ms / 1000
        session = BrokerSession(self, self._database.session(), self._links, broker_id, timeout_seconds)
        self._sessions[broker_id] = session
        return session

    def linger(self, broker_id: int) -> None:
        """The broker is going to be killed, and its session is to last until its timeout."""
        self._sessions[broker_id].lingers = True

    async def end(self, broker_id: int) -> None:
        """End what is left of the session of an earlier life of this broker."""
        session = self._sessions.pop(broker_id, None)
        if session is not None:
            await session.end()

    def links_changed(self) -> None:
        """Some link was cut or is whole again."""
        for session in list(self._sessions.values()):
            session.look()

    def end_later(self, session: "BrokerSession", silence: trio.CancelScope, deadline: float) -> None:
        """End this session at its deadline, unless the silence is cancelled before."""
        self._nursery.start_soon(session.end_at, silence, deadline)


class BrokerSession(MetadataStore):
    """The session of one broker."""

    def __init__(
        self, store: ClusterStore, inner: SqliteStore, links: Links, broker_id: int, timeout_seconds: float
    ) -> None:
        self.lingers = False  # the end of the broker does not end the session
        self._store = store
        self._inner = inner
        self._links = links
        self._broker_id = broker_id
        self._timeout_seconds = timeout_seconds
        self._silence: trio.CancelScope | None = None  # since the store has last heard of the broker
        self._late: list[Watch] = []  # fired while the broker could not be reached
        self._expired_unheard = False
        self._on_expired: list[Callable[[], None]] = []

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        return await self._reach(lambda: self._inner.get(path, self._heard(watch)))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._reach(lambda: self._inner.exists(path, self._heard(watch)))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._reach(lambda: self._inner.children(path, self._heard(watch)))

    async def batch(self, items: Sequence[Item]) -> list[Outcome]:
        return await self._reach(lambda: self._inner.batch(items))

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def renew(self) -> None:
        await self._reach(self._inner.renew)

    async def close(self) -> None:
        """The broker has ended."""
        if self.lingers or not self._is_reachable:
            self.lingers = True
            self._begin_silence()
        else:
            await self.end()

    async def end(self) -> None:
        """End the session; the nodes that belong to it are removed."""
        self._end_silence()
        await self._inner.close()

    # -- the store's side

    def look(self) -> None:
        """A link has changed."""
        if self.lingers:
            return
        if not self._is_reachable:
            self._begin_silence()
            return
        self._end_silence()
        if self._expired_unheard:
            self._expired_unheard = False
            for callback in list(self._on_expired):
                callback()
        late = self._late
        self._late = []
        for watch in late:
            watch()

    async def end_at(self, silence: trio.CancelScope, deadline: float) -> None:
        """The broker is silent: end its session at the deadline, unless `look` finds that it is back."""
        with silence:
            await trio.sleep_until(deadline)
            with trio.CancelScope(shield=True):
                if self.lingers:
                    await self._inner.close()
                else:
                    self._expired_unheard = True
                    await self._inner.expire()

    # -- the broker's side

    @property
    def _is_reachable(self) -> bool:
        return self._links.are_open(self._broker_id, STORE)

    async def _reach(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        # A call that was sent is carried out, also if its answer does not come back for long.
        await self._links.opened(self._broker_id, STORE)
        answer = await call()
        await self._links.opened(STORE, self._broker_id)
        return answer

    def _heard(self, watch: Watch | None) -> Watch | None:
        """The watch, which fires when the broker can hear of it."""
        return None if watch is None else partial(self._fire, watch)

    def _fire(self, watch: Watch) -> None:
        if self._links.is_open(STORE, self._broker_id):
            watch()
        else:
            self._late.append(watch)

    def _begin_silence(self) -> None:
        if self._silence is None:
            self._silence = trio.CancelScope()
            # The deadline is computed here, because the clock may jump before the task begins.
            self._store.end_later(self, self._silence, trio.current_time() + self._timeout_seconds)

    def _end_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
