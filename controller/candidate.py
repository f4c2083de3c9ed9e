"""The election of the controller, and the terms of this broker as the active controller (reference A.7).

Theory of operation
-------------------
Every broker runs a candidate. It watches /controller, an ephemeral node that names the controller. When the node is
absent the candidate tries to create it and, in the same multi, to raise /controller_epoch by one: of several candidates
exactly one succeeds. The version of /controller_epoch after that write is the winner's *fencing token*. All its later
writes check that version, so a controller that was replaced, and has not noticed it yet, writes nothing more.

During a term a second task watches the node: when it is gone, or is another one, the term is cancelled at once, in the
middle of whatever it does. When the term fails by itself (the image contradicts itself, the store fails, or a part of
the controller has a bug) the candidate removes the node if it can, waits, and takes part in the next election. So a bug
of the controller costs a term; the broker goes on.

When the session with the store expires, the ephemeral node is gone with it: the term is cancelled first, then a new
session is opened and the broker registered in it, and only then does the candidate take part in an election again.
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
    Delete,
    NodeError,
    NodeExists,
    SessionExpired,
    SetData,
    Stat,
    StoreError,
)
from barnabas.controller.tally import ControllerTally
from barnabas.wire.errors import ErrorCode

RETRY_BACKOFF_MS = 1000  # after a failed term: another broker can win the election, and the log is not flooded

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class UnusableEpoch(Exception):
    """/controller_epoch does not hold a number, so no controller can be elected (nor in Kafka)."""


class Register(Protocol):
    """Registers this broker in the store's new session (`registration.register_broker`)."""

    async def __call__(self) -> None: ...


class Candidate:
    """This broker as a candidate for controller; owns the `Controller` while this broker is the active one.

    `on_elected` is called with the controller epoch before a term begins, `on_resigned` after it has ended, however it
    ended.
    """

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
        """Whether this broker is the active controller, as far as it has noticed."""
        return self._controller is not None

    @property
    def tally(self) -> ControllerTally:
        """What the terms of this broker have counted."""
        return self._deps.tally

    @property
    def controller(self) -> Controller | None:
        """The controller, while this broker is the active one; to be read only."""
        return self._controller

    @property
    def replica_count(self) -> int:
        """The number of replicas in the image of the cluster; 0 while this broker is not the active controller."""
        return 0 if self._controller is None else sum(map(len, self._controller.image.held.values()))

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock | ErrorCode:
        """The next block of producer ids for a broker (KIP-730).

        NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when no ids are left.
        """
        return await self.ask(ProducerIdsAsked(broker_id, broker_epoch))

    async def ask(self, question: Asked[Result]) -> Result | ErrorCode:
        """The controller's answer; NOT_CONTROLLER when this broker is not the active one, or its term ends first."""
        if self._controller is None:
            return ErrorCode.NOT_CONTROLLER
        return await self._controller.ask(question)

    def unclean_election_allowed(self, topic: str | None) -> None:
        """`unclean.leader.election.enable` became true, for one topic or (None) for the brokers."""
        if self._controller is not None:
            self._controller.put(UncleanElectionAllowed(topic))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in elections and serve terms until cancelled.

        The task counts as started when the cluster has a controller; if that is this broker, after its fail-over.
        """
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

                # Each election has a new event. A watch of an earlier election sets a former
                # event, for which nothing waits.
                self._node_changed = trio.Event()
                term = await self._race()
                if term is None:
                    on_started()

                    # The watch of the race sets this event, and so does the end of the session.
                    await self._node_changed.wait()
                else:
                    await self._serve(term, on_started)
            except SessionExpired:
                self._session_is_over = True
            except (StoreError, UnusableEpoch) as error:
                # Both may pass without a restart of this broker: the store comes back, or a person repairs the node.
                logger.error("cannot take part in the election of a controller: %s", error)
                await trio.sleep(RETRY_BACKOFF_MS / 1000)

    # -- the race

    async def _race(self) -> Term | None:
        """The term that this broker won; None when another is the controller: `_node_changed` is set when that ends."""
        while True:
            found = await self._store.exists(paths.CONTROLLER, self._node_changed.set)
            if found is None:
                term = await self._try_to_win()
                # If there is no term, another candidate was faster, and its node may be gone
                # again. The next round looks once more, and sets the watch on that node.
                if term is not None:
                    return term
            elif found.owner == self._store.session_id:
                # The node is of a term of ours that failed and could not remove it. That term
                # cannot be continued: its image is gone, and only an election gives a new epoch.
                await self._remove_node()
            else:
                return None

    async def _try_to_win(self) -> Term | None:
        epoch, version = await self._read_epoch()
        won = epoch + 1
        node = ControllerNode(self._deps.broker_id, self._deps.now_ms())
        try:
            _, written = await self._store.multi(
                [
                    Create(paths.CONTROLLER, node.encode(), ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, ControllerEpoch(won).encode(), version),
                ]
            )
        except NodeError:
            # Another candidate won; or our multi was carried out, its answer was lost, and the
            # store's second attempt was refused because of our own node.
            return await self._find_own_victory(won)
        assert isinstance(written, Stat), written
        # A multi has one zxid, so the node of this term was created at the epoch's mzxid. The stat of a created node is
        # no substitute: some versions of ZooKeeper leave it out, and a later read may find another broker's node.
        return Term(won, written.version, written.mzxid)

    async def _find_own_victory(self, epoch: int) -> Term | None:
        """The term that this session won by a multi whose answer was lost, or None."""
        found = await self._store.exists(paths.CONTROLLER)
        written, version = await self._read_epoch()
        # The epoch alone proves nothing: another candidate may have read the same epoch, and
        # written the same next one.
        if found is not None and found.owner == self._store.session_id and written == epoch:
            return Term(epoch, version, found.czxid)
        return None

    async def _read_epoch(self) -> tuple[int, int]:
        """(epoch, version of its node). The first candidate of a cluster creates the node. UnusableEpoch."""
        if await self._store.exists(paths.CONTROLLER_EPOCH) is None:
            try:
                # Epoch 0, so the first controller has epoch 1, as in Kafka.
                await self._store.create(paths.CONTROLLER_EPOCH, ControllerEpoch(0).encode())
            except NodeExists:
                logger.debug("another candidate created %s", paths.CONTROLLER_EPOCH)
        data, stat = await self._store.get(paths.CONTROLLER_EPOCH)
        try:
            return ControllerEpoch.decode(data).epoch, stat.version
        except ValueError as error:
            # No epoch can be made up instead: brokers refuse a controller whose epoch is below the highest that they
            # have seen, and no other node is certain to hold that number.
            raise UnusableEpoch(f"{error}; a person must restore the last epoch") from None

    async def _remove_node(self) -> None:
        """Remove /controller if this session owns it."""
        # The epoch is read before the node: if the node is then ours, no successor has been elected at this version.
        _, version = await self._read_epoch()
        found = await self._store.exists(paths.CONTROLLER)
        if found is None or found.owner != self._store.session_id:
            return
        try:
            # The delete is fenced: when an answer is lost the store sends the multi again, and a
            # bare delete would then remove the node of a successor that was elected in between.
            await self._store.multi([Check(paths.CONTROLLER_EPOCH, version), Delete(paths.CONTROLLER)])
        except NodeError as error:
            logger.debug("/controller changed in the meantime: %s", error)

    # -- during a term

    async def _serve(self, term: Term, on_started: Callable[[], None]) -> None:
        """Serve one term, until everything that it started has ended. StoreError, if that ended it."""
        logger.info("broker %d is the controller, epoch %d", self._deps.broker_id, term.epoch)
        controller = Controller(self._deps, term)
        self._controller = controller
        self.epoch = term.epoch
        self._term_scope = trio.CancelScope()
        end: Exception | None = None
        try:
            self._on_elected(term.epoch)
            with self._term_scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch_node, term)
                    end = await controller.run(on_started)
                    nursery.cancel_scope.cancel()
        except Exception as mistake:
            # This is a bug of ours, anywhere in the controller. It costs the term, not the broker.
            end = mistake
        finally:
            # The callback must find `is_active` False, so the controller goes first.
            self._controller = None
            self._on_resigned()

        logger.info("broker %d is no longer the controller, epoch %d: %s", self._deps.broker_id, term.epoch, end)

        # The store has failed, so the node cannot be removed now. `Candidate.run` waits, or opens a
        # new session; if the old one lives on, `_race` removes the node.
        if isinstance(end, StoreError):
            raise end

        # If `end` is None the term was cancelled: the node or the session is gone, or the node can
        # no longer be watched.
        if end is not None and not isinstance(end, ControllerMoved):
            logger.error("the controller failed and resigns", exc_info=end)
            await self._resign(term)

    async def _watch_node(self, term: Term) -> None:
        """Cancel the term as soon as /controller is not the node that this term created."""
        try:
            while True:
                self._node_changed = trio.Event()
                found = await self._store.exists(paths.CONTROLLER, self._node_changed.set)
                # The czxid is compared, because owner and broker id are the same in a later term of
                # this session.
                if found is None or found.czxid != term.czxid:
                    self._term_scope.cancel()
                await self._node_changed.wait()
        except StoreError:
            # The error is not raised here: the next race meets the same one, and `run` logs it.
            self._term_scope.cancel()

    async def _resign(self, term: Term) -> None:
        """Remove our node, then wait, so that another broker can win and a failure is not repeated at once."""
        # The delete is fenced as in `_remove_node`: it is refused if another controller has been
        # elected.
        fence = Check(paths.CONTROLLER_EPOCH, term.token)
        try:
            await self._store.multi([fence, Delete(paths.CONTROLLER)])
        except NodeError as error:
            logger.debug("/controller changed in the meantime: %s", error)
        await trio.sleep(RETRY_BACKOFF_MS / 1000)

    # -- the session

    def _on_expired(self) -> None:
        # The callback runs on the loop while `run` waits, inside a term or for a change of the
        # node. Both waits are ended.
        self._session_is_over = True
        self._term_scope.cancel()
        self._node_changed.set()

    async def _begin_session(self) -> None:
        """Open a new session and register this broker in it. StoreError; other errors of `register` end the broker."""
        await self._store.renew()
        # This is reset before registering: if the session expires meanwhile, `_on_expired` sets it
        # again.
        self._session_is_over = False
        try:
            if self._register is not None:
                await self._register()
        except StoreError:
            # Try again from the start: `renew` keeps a session that lives, and a node that was created is found again.
            self._session_is_over = True
            raise
