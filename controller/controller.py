"""The active controller: one queue of events; each is read, decided, written, replayed and sent to brokers in turn.

Theory of operation
-------------------
A controller is made for one term. It starts with an empty image and the event `Startup`, which reads the whole cluster
(reference B.2). Everything after that is an event too: a watch fired, a broker answered, a request came.
Events are handled one at a time, in order, by the functions of `HANDLERS`; nothing else touches the image. Those
functions know the `ControllerContext` and not this file.

A term ends when its owner cancels it, when another controller was elected, when the store cannot be reached, and on
`InvariantBroken`: the image is wrong, and the next controller builds a new one. Any other exception of a handler is a
mistake of ours, and ends the term too, for what the handler began is not done. Where it had not changed anything yet,
and a `Request` is all that is left undone, the controller logs that and goes on, as dispatch does: otherwise one
request that we cannot handle, repeated by its client, would end one controller after the other.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from barnabas.controller import events
from barnabas.controller.channels import ControllerChannels
from barnabas.controller.context import ControllerContext, ControllerDeps, ControllerMoved, Term
from barnabas.controller.handlers import (
    brokers,
    controlled_shutdown,
    elections,
    failover,
    isr,
    producer_ids,
    reassignments,
    topic_deletion,
    topics,
)
from barnabas.controller.image.state import ClusterImage, LiveBroker
from barnabas.controller.store.store import Delete, StoreError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken

FIRST_REBALANCE_SECONDS = 5  # Kafka's own: brokers that start together are there by then

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Controller:
    """One term as the active controller."""

    def __init__(self, deps: ControllerDeps, term: Term) -> None:
        self._deps = deps
        self._context = ControllerContext(deps, term, self.put)
        self._queue_in, self._queue_out = trio.open_memory_channel[events.Event](math.inf)
        self._refusals: dict[Callable[[ErrorCode], None], None] = {}  # of questions without an answer
        self._over = False

    @property
    def image(self) -> ClusterImage:
        """The cluster as this controller sees it; read it only."""
        return self._context.image

    async def run(self, on_started: Callable[[], None]) -> ControllerMoved | StoreError | InvariantBroken:
        """Serve until the term is over, and return why; `on_started` is called when the fail-over is done."""
        async with trio.open_nursery() as nursery:
            config = self._deps.config
            self._context.channels = ControllerChannels(
                nursery, self._deps.peer_for, self._answered, lambda: config.controller_socket_timeout_ms
            )
            try:
                await self._handle(events.Startup())
                nursery.start_soon(self._rebalance)
                on_started()
                async for event in self._queue_out:
                    await self._handle(event)
            except (ControllerMoved, StoreError, InvariantBroken) as error:
                return error
            finally:
                self._refuse_questions()
                nursery.cancel_scope.cancel()
        raise InvariantBroken("the controller's queue ended")

    async def _handle(self, event: events.Event) -> None:
        logger.debug("%s", event)
        changes = self._context.changes
        try:
            await HANDLERS[type(event)](self._context, event)
        except (ControllerMoved, StoreError, InvariantBroken):
            raise
        except Exception:
            if not isinstance(event, events.Request):
                raise
            if isinstance(event, events.Asked):
                event.answer(ErrorCode.UNKNOWN_SERVER_ERROR)  # NOT_CONTROLLER would have it asked again
            nothing_done = self._context.changes == changes
            if event.node is not None:
                logger.error("%s cannot be handled and is removed", event.node)
                await self._context.write([[Delete(event.node)]])
            if not nothing_done:
                raise
            logger.exception("the controller cannot handle %s and goes on", event)

    async def _rebalance(self) -> None:
        """See from time to time whether leadership is spread, if that is configured."""
        config = self._deps.config
        await trio.sleep(FIRST_REBALANCE_SECONDS)
        while config.auto_leader_rebalance_enable:
            self.put(events.RebalanceDue())
            await trio.sleep(config.leader_imbalance_check_interval_seconds)

    def put(self, event: events.Event) -> None:
        """Queue an event; after the term it is dropped."""
        if not self._over:
            self._queue_in.send_nowait(event)

    async def ask(self, question: "events.Asked[Result]") -> Result | ErrorCode:
        """Queue a question and wait for its answer; NOT_CONTROLLER when the term ends first."""
        if self._over:
            return ErrorCode.NOT_CONTROLLER
        self._refusals[question.answer] = None
        try:
            self.put(question)
            return await question.wait()
        finally:
            del self._refusals[question.answer]

    def _answered(self, broker: LiveBroker, request: m.Message, response: m.Message) -> None:
        event = events.response_event(broker, request, response)
        if event is not None:
            self.put(event)

    def _refuse_questions(self) -> None:
        self._over = True
        for answer in self._refusals:
            answer(ErrorCode.NOT_CONTROLLER)


# What a controller does about each event.
HANDLERS: Mapping[type[events.Event], Callable[..., Awaitable[None]]] = {
    events.Startup: failover.startup,
    events.WorkLeftBehind: failover.work_left_behind,
    events.BrokerIdsTouched: brokers.broker_ids_touched,
    events.RegistrationTouched: brokers.registration_touched,
    events.LogDirEventsTouched: brokers.log_dir_events_touched,
    events.LeaderAndIsrAnswered: brokers.leader_and_isr_answered,
    events.TopicsTouched: topics.topics_touched,
    events.TopicTouched: topics.topic_touched,
    events.UncleanElectionAllowed: topics.unclean_election_allowed,
    events.DeletionMarksTouched: topic_deletion.deletion_marks_touched,
    events.StopReplicaAnswered: topic_deletion.stop_replica_answered,
    events.ReassignmentsTouched: reassignments.reassignments_touched,
    events.PreferredElectionsTouched: elections.preferred_elections_touched,
    events.RebalanceDue: elections.rebalance_due,
    events.ElectionAsked: elections.election_asked,
    events.IsrChangeNotesTouched: isr.isr_change_notes_touched,
    events.IsrChangesAsked: isr.isr_changes_asked,
    events.ReassignmentsAsked: reassignments.reassignments_asked,
    events.OngoingReassignmentsAsked: reassignments.ongoing_reassignments_asked,
    events.ControlledShutdownAsked: controlled_shutdown.controlled_shutdown_asked,
    events.ProducerIdsAsked: producer_ids.producer_ids_asked,
}
