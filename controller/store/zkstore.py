"""ZooKeeper as the metadata store of a cluster: sessions of `zkclient.py`, below the chroot.

Paths and sizes are checked here, before ZooKeeper, so that both stores refuse the same. Every write is a multi, also a
single one; a batch is a pipeline of multis. A call waits while the connection is lost and the session lives: reads and
writes are sent again over the next connection (`zkclient.py` says what that means for writes). `answer_seconds` limits
the wait.

After the end of a session every call raises `SessionExpired` until `renew` begins another one, as in the embedded
store: callers have ephemeral nodes to create again, so the change must not be hidden from them.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trio

from barnabas.controller.store.store import (
    Create,
    InThread,
    Item,
    MetadataStore,
    NodeError,
    NodeExists,
    Op,
    Outcome,
    Result,
    SessionExpired,
    SessionTally,
    Stat,
    StoreUnavailable,
    Watch,
    check_op,
    check_path,
    refuse_large,
    with_ancestors,
)
from barnabas.controller.store.zkaccess import PLAIN, ZooKeeperAccess

if TYPE_CHECKING:
    from barnabas.controller.store.zkclient import Session

Answer = TypeVar("Answer")

ALONE = "; trying again. One broker alone needs no ZooKeeper: remove zookeeper.connect"


class ZooKeeperConfig(NamedTuple):
    """The `zookeeper.*` properties of the same names. Times in milliseconds."""

    connect: str  # host:port,host:port/chroot
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight_requests: int = 10
    access: ZooKeeperAccess = PLAIN


async def open_zookeeper_store(
    config: ZooKeeperConfig, in_thread: InThread, *, make_chroot: bool = False, answer_seconds: float = math.inf
) -> "ZooKeeperStore":
    """A store with one session with the servers of `config.connect`.

    `make_chroot` creates the chroot if it is missing. `answer_seconds` limits each call. StoreUnavailable when no
    server accepts a session in time, or when the chroot is missing and not to be created.
    """
    store = ZooKeeperStore(config, in_thread, answer_seconds)
    try:
        await store.open(make_chroot=make_chroot)
    # A cancelled start closes the store, too: kazoo's threads would go on without it.
    except BaseException:
        with trio.CancelScope(shield=True):
            await store.close()
        raise
    return store


class ZooKeeperStore(MetadataStore):
    """A sequence of sessions with ZooKeeper, one at a time."""

    def __init__(self, config: ZooKeeperConfig, in_thread: InThread, answer_seconds: float) -> None:
        self._config = config
        self._hosts, slash, chroot = config.connect.partition("/")
        self._root = slash + chroot if chroot else ""
        self._in_thread = in_thread
        self._answer_seconds = answer_seconds
        self._session: Session | None = None
        self._session_id = 0
        self._closed = False
        self._tally = SessionTally()
        self._on_expired: list[Callable[[], None]] = []

    async def open(self, *, make_chroot: bool) -> None:
        """Begin the first session, and create the chroot if asked to. StoreUnavailable."""
        if self._root:
            try:
                check_path(self._root)
            except ValueError as error:
                raise self._unavailable(str(error)) from error

        await self._begin()
        if self._root and await self.exists("/") is None:
            if not make_chroot:
                raise self._unavailable("there is no such chroot")

            # All paths of the session are below its chroot. The chroot and its parents are not, so
            # for these writes the session has no chroot.
            session = self._living()
            session.root = ""
            missing = [Create(path) for path in with_ancestors([self._root])]
            for outcome in await self.batch(missing):
                # Another broker that starts at the same time may create them too.
                if isinstance(outcome, NodeError) and not isinstance(outcome, NodeExists):
                    raise outcome
            session.root = self._root

    @property
    def session_tally(self) -> SessionTally:
        return self._tally

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        check_path(path)
        return await self._answer(self._living().get(path, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        return await self._answer(self._living().exists(path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        return sorted(await self._answer(self._living().children(path, watch)))

    async def batch(self, items: Sequence[Item]) -> list[Outcome]:
        multis = [[item] if isinstance(item, Op) else list(item) for item in items]
        for ops in multis:
            for op in ops:
                check_op(op)
        # Large multis are refused here: ZooKeeper would drop the connection, and with it every
        # request that is on its way.
        too_large = [refuse_large(ops) for ops in multis]
        sent = [ops for ops, refused in zip(multis, too_large, strict=True) if refused is None]
        answers = iter(await self._answer(self._living().write(sent)))
        return [refused or _outcome(item, next(answers)) for item, refused in zip(items, too_large, strict=True)]

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def renew(self) -> None:
        if self._closed:
            raise SessionExpired(self._session_id)
        if self._session is None:
            await self._begin()

    async def close(self) -> None:
        self._closed = True
        # Calls raise SessionExpired from here on; `end` gives up those that wait.
        session = self._session
        self._session = None
        if session is not None:
            session.end()
            await session.stopped()

    # -- the session

    async def _begin(self) -> None:
        """Begin a session. StoreUnavailable when there is none within `zookeeper.connection.timeout.ms`."""
        config = self._config
        try:
            # kazoo is imported only here, because a broker without ZooKeeper may not have it, and
            # in a thread, because the import takes a while.
            session_class = await self._in_thread(_load_session_class)
            session = session_class(
                self._hosts,
                self._root,
                config.session_timeout_ms,
                config.max_in_flight_requests,
                self._session_is_over,
                config.access,
                self._tally,
                # This advice is for a broker that runs alone: its properties may be one of Kafka's
                # files, which name a ZooKeeper.
                "" if self._session_id else ALONE,
            )
        except ImportError:
            raise self._unavailable("kazoo is not installed: pip install kazoo") from None
        except ValueError as error:
            raise self._unavailable(f"{self._hosts!r} names no servers: {error}") from error

        try:
            with trio.move_on_after(config.connection_timeout_ms / 1000):
                await session.connected()
        finally:
            # Without an id the time is up, or this call was cancelled: kazoo must not go on and get a session later.
            # `close` may have been called during the wait, and does not see this session.
            if not session.id or self._closed:
                session.end()

        if session.is_over:
            why = f"no session within {config.connection_timeout_ms} ms"
            raise self._unavailable(f"{why}: {session.refusal}" if session.refusal else why)
        self._session = session
        self._session_id = session.id

    def _session_is_over(self, session: "Session") -> None:
        # A session that ended before it was in use has no callers; `_begin` reports it.
        if session is not self._session:
            return
        # `_session` is None before the callbacks run: what they call must see that there is no
        # session.
        self._session = None
        self._tally.expires += 1
        for callback in list(self._on_expired):
            callback()

    def _living(self) -> "Session":
        if self._session is None:
            raise SessionExpired(self._session_id)
        return self._session

    # -- answers

    async def _answer(self, asked: Awaitable[Answer]) -> Answer:
        began = trio.current_time()
        with trio.move_on_after(self._answer_seconds):
            answer = await asked
            if self._tally.on_answered is not None:
                self._tally.on_answered(trio.current_time() - began)
            return answer
        raise self._unavailable(f"no answer within {self._answer_seconds} s")

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(self._config.connect, why)


def _outcome(item: Item, answer: list[Result] | NodeError) -> Outcome:
    # A single operation was sent as a multi; its outcome is the multi's only result.
    return answer[0] if isinstance(item, Op) and isinstance(answer, list) else answer


def _load_session_class() -> "type[Session]":
    from barnabas.controller.store.zkclient import Session

    return Session
