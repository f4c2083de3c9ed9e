"""The race for /controller, and the controller's terms on this broker (reference A.7).

Theory of operation
-------------------
Every broker runs a candidate. It watches /controller, an ephemeral node that names the controller. When the node is
absent the candidate tries to create it and, in the same multi, to raise /controller_epoch by one: of several candidates
exactly one succeeds. The version of /controller_epoch after that write is the winner's *fencing token*. All its later
writes check that version, so a controller that was replaced, and does not know it yet, writes nothing more.

The answer to the multi may be lost, and the repeated attempt then fails on our own node. So after a failure the
candidate reads again: a node of this session together with the epoch that it meant to write is a victory.

During a term a second task keeps watching the node: when it is gone, or another one, the term is cancelled at once,
in the middle of whatever it does. When the term fails by itself (its image contradicts itself, the store cannot be
used, or a part of the controller makes a mistake) the candidate removes the node, if it still can, waits, and races
again like everybody else. So a mistake of the controller costs a term; the broker that it runs in goes on.

/controller_epoch may hold something that is no number. Then no controller can be elected, in Kafka as here, for brokers
refuse a controller whose epoch is not above the last one's, and nothing else says what that was. A person must restore
it.

When the session with the store expires, the node is gone without being able to say so: the term is cancelled first,
then a new session is opened and the broker registered in it, and only then is there another race.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from barnabas.controller.context import ControllerDeps, ControllerMoved, Term
from barnabas.controller.controller import Controller
from barnabas.controller.events import Asked, ProducerIdsAsked, UncleanElectionAllowed
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ControllerEpoch, ControllerNode, ProducerIdBlock
from barnabas.controller.store.store import (
    Check,
    Create,
    Created,
    Delete,
    NodeError,
    NodeExists,
    SessionExpired,
    SetData,
    Stat,
    StoreError,
)
from barnabas.wire.errors import ErrorCode

RETRY_BACKOFF_MS = 1000  # after a term that failed: others may have more luck, and the log stays readable

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class UnusableEpoch(Exception):
    """/controller_epoch does not hold an epoch."""


class Register(Protocol):
    """Register this broker in the store's new session (`registration.register_broker`)."""

    async def __call__(self) -> None: ...


class Candidate:
    """This broker's part in the election, and the controller while it is elected."""

    def __init__(
        self,
        deps: ControllerDeps,
        *,
        register: Register | None = None,
        on_elected: Callable[[int], None] = lambda epoch: None,
        on_resigned: Callable[[], None] = lambda: None,
    ) -> None:
        self.epoch = -1  # of the last term of this broker
        self._deps = deps
        self._store = deps.store
        self._register = register
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._controller: Controller | None = None
        self._node_changed = trio.Event()
        self._term_scope = trio.CancelScope()
        self._session_is_over = False

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._controller is not None

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock | ErrorCode:
        """The next block of producer ids for a broker; NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
        return await self.ask(ProducerIdsAsked(broker_id, broker_epoch))

    async def ask(self, question: Asked[Result]) -> Result | ErrorCode:
        """The controller's answer, or NOT_CONTROLLER when it is not here, or not any more."""
        if self._controller is None:
            return ErrorCode.NOT_CONTROLLER
        return await self._controller.ask(question)

    def unclean_election_allowed(self, topic: str | None) -> None:
        """`unclean.leader.election.enable` became true, for one topic or (None) for the brokers."""
        if self._controller is not None:
            self._controller.put(UncleanElectionAllowed(topic))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Race and serve until cancelled; started when there is a controller, and it has taken over if it is us."""
        started = False

        def on_started() -> None:
            nonlocal started
            if not started:
                started = True
                task_status.started()

        self._store.on_expired(self._on_expired)
        while True:
            try:
                if self._session_is_over:
                    await self._begin_session()
                self._node_changed = trio.Event()
                term = await self._race()
                if term is None:
                    on_started()
                    await self._node_changed.wait()
                else:
                    await self._serve(term, on_started)
            except SessionExpired:
                self._session_is_over = True
            except (StoreError, UnusableEpoch) as error:
                logger.error("cannot take part in the election of a controller: %s", error)
                await trio.sleep(RETRY_BACKOFF_MS / 1000)

    # -- the race

    async def _race(self) -> Term | None:
        """Win a term, or None when another broker is the controller; then `_node_changed` tells when to race again."""
        while True:
            found = await self._store.exists(paths.CONTROLLER, self._node_changed.set)
            if found is None:
                term = await self._try_to_win()
                if term is not None:
                    return term
            elif found.owner == self._store.session_id:
                await self._remove_node()  # of a term that failed, and could not remove it
            else:
                return None

    async def _try_to_win(self) -> Term | None:
        epoch, version = await self._read_epoch()
        won = epoch + 1
        node = ControllerNode(self._deps.broker_id, self._deps.now_ms())
        try:
            created, written = await self._store.multi(
                [
                    Create(paths.CONTROLLER, node.encode(), ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, ControllerEpoch(won).encode(), version),
                ]
            )
        except NodeError:
            return await self._find_own_victory(won)
        assert isinstance(created, Created), created
        assert isinstance(written, Stat), written
        return Term(won, written.version, created.stat.czxid)

    async def _find_own_victory(self, epoch: int) -> Term | None:
        """The term that a lost answer would have named."""
        found = await self._store.exists(paths.CONTROLLER)
        written, version = await self._read_epoch()
        if found is not None and found.owner == self._store.session_id and written == epoch:
            return Term(epoch, version, found.czxid)
        return None

    async def _read_epoch(self) -> tuple[int, int]:
        """The last epoch and the version of its node, which the first candidate of a cluster creates."""
        if await self._store.exists(paths.CONTROLLER_EPOCH) is None:
            try:
                await self._store.create(paths.CONTROLLER_EPOCH, ControllerEpoch(0).encode())
            except NodeExists:
                logger.debug("another candidate created %s", paths.CONTROLLER_EPOCH)
        data, stat = await self._store.get(paths.CONTROLLER_EPOCH)
        try:
            return ControllerEpoch.decode(data).epoch, stat.version
        except ValueError as error:
            raise UnusableEpoch(f"{error}; a person must restore the last epoch") from None

    async def _remove_node(self) -> None:
        """Remove the node of this session. Fenced: asked again after a lost answer, it would remove a successor's."""
        _, version = await self._read_epoch()
        found = await self._store.exists(paths.CONTROLLER)
        if found is None or found.owner != self._store.session_id:
            return
        try:
            await self._store.multi([Check(paths.CONTROLLER_EPOCH, version), Delete(paths.CONTROLLER)])
        except NodeError as error:
            logger.debug("/controller changed in the meantime: %s", error)

    # -- during a term

    async def _serve(self, term: Term, on_started: Callable[[], None]) -> None:
        """One term, from the victory to the end of everything that it started."""
        logger.info("broker %d is the controller, epoch %d", self._deps.broker_id, term.epoch)
        controller = Controller(self._deps, term)
        self._controller, self.epoch = controller, term.epoch
        self._term_scope = trio.CancelScope()
        end: Exception | None = None
        try:
            self._on_elected(term.epoch)
            with self._term_scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch_node, term)
                    end = await controller.run(on_started)
                    nursery.cancel_scope.cancel()
        except Exception as mistake:  # of ours, wherever in the controller: the broker itself goes on
            end = mistake
        finally:
            self._controller = None
            self._on_resigned()
        logger.info("broker %d is no longer the controller, epoch %d: %s", self._deps.broker_id, term.epoch, end)
        if isinstance(end, StoreError):
            raise end
        if end is not None and not isinstance(end, ControllerMoved):
            logger.error("the controller failed and resigns", exc_info=end)
            await self._resign(term)

    async def _watch_node(self, term: Term) -> None:
        """Cancel the term as soon as /controller is not the node that we made."""
        try:
            while True:
                self._node_changed = trio.Event()
                found = await self._store.exists(paths.CONTROLLER, self._node_changed.set)
                if found is None or found.czxid != term.czxid:
                    self._term_scope.cancel()
                await self._node_changed.wait()
        except StoreError:
            self._term_scope.cancel()  # the race meets the same error, and reports it

    async def _resign(self, term: Term) -> None:
        """Resign, unless another is controller already; then wait, so that a failure is not repeated at once."""
        fence = Check(paths.CONTROLLER_EPOCH, term.token)
        try:
            await self._store.multi([fence, Delete(paths.CONTROLLER)])
        except NodeError as error:
            logger.debug("/controller changed in the meantime: %s", error)
        await trio.sleep(RETRY_BACKOFF_MS / 1000)

    # -- the session

    def _on_expired(self) -> None:
        self._session_is_over = True
        self._term_scope.cancel()
        self._node_changed.set()

    async def _begin_session(self) -> None:
        """A new session, and this broker registered in it."""
        await self._store.renew()
        self._session_is_over = False
        try:
            if self._register is not None:
                await self._register()
        except StoreError:
            self._session_is_over = True  # half begun is not begun: a node of this session is found again
            raise
