"""The active controller: one queue of events, handled one at a time and in order.

Theory of operation
-------------------
A `Controller` is made for one term. It starts with an empty image and the event `Startup`, which reads the whole
cluster (reference B.2). Everything after that is an event too: a watch fired, a broker answered, a request came.
For each event its function in `HANDLERS` reads the store, decides, writes, replays what was written, and queues
requests for brokers. Nothing else touches the image. The functions are given the `ControllerContext` and do not import
this file.

A term ends when the candidate cancels it, when another controller was elected (`ControllerMoved`), when the store fails
(`StoreError`), and on `InvariantBroken`: the image contradicts itself, and the next controller builds a new one from
the store. Any other exception of a handler is a bug of ours; `_handle` decides whether it ends the term.
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

FIRST_REBALANCE_SECONDS = 5  # as in Kafka: brokers that were started together have registered by then

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Controller:
    """One term as the active controller."""

    def __init__(self, deps: ControllerDeps, term: Term) -> None:
        self._deps = deps
        self._context = ControllerContext(deps, term, self.put)
        self._queue_in, self._queue_out = trio.open_memory_channel[events.Event](math.inf)
        self._refusals: dict[Callable[[ErrorCode], None], None] = {}  # `answer` of each question still unanswered
        self._over = False
        self.state = events.IDLE  # Kafka's number of what the controller does now

    @property
    def image(self) -> ClusterImage:
        """The cluster as this controller sees it. Read-only for callers."""
        return self._context.image

    @property
    def queued_events(self) -> int:
        """How many events wait to be handled."""
        return self._queue_in.statistics().current_buffer_used

    async def run(self, on_started: Callable[[], None]) -> ControllerMoved | StoreError | InvariantBroken:
        """Serve until the term is over; returns why it ended.

        `on_started` is called once, when the fail-over is done. A bug of a handler is raised, in an exception group.
        """
        async with trio.open_nursery() as nursery:
            config = self._deps.config

            # The senders live in this nursery, so the end of the term stops them in the middle of a request.
            self._context.channels = ControllerChannels(
                nursery, self._deps.peer_for, self._answered, lambda: config.controller_socket_timeout_ms
            )
            try:
                # `Startup` is handled before any event of the queue: watches that fire while the
                # cluster is read queue events that must come after it.
                await self._handle(events.Startup())
                nursery.start_soon(self._rebalance)
                on_started()
                async for event in self._queue_out:
                    began = trio.current_time()
                    await self._handle(event)
                    if isinstance(event, events.BrokerIdsTouched):
                        self._deps.tally.on_brokers_changed(trio.current_time() - began)
            except (ControllerMoved, StoreError, InvariantBroken) as error:
                # The error is returned, because the nursery would wrap it in an exception group if
                # it were raised.
                return error
            finally:
                # Questions are refused on every way out, cancellation included: none may wait for a
                # term that is over.
                self._refuse_questions()
                nursery.cancel_scope.cancel()

        raise InvariantBroken("the controller's queue ended")

    async def _handle(self, event: events.Event) -> None:
        logger.debug("%s", event)
        changes = self._context.changes
        self.state = events.STATES[type(event)]
        try:
            await HANDLERS[type(event)](self._context, event)
            while accepted := self._context.take_accepted():
                await reassignments.complete_moves(self._context, accepted)
        except (ControllerMoved, StoreError, InvariantBroken):
            raise
        except Exception:
            # This is a bug of ours. The handler may have done half of its work, so the term ends.
            # Only a `Request` that failed before it changed anything does not end it: repeated by
            # its client, it would end the term of one controller after the other.
            if not isinstance(event, events.Request):
                raise
            if isinstance(event, events.Asked):
                # The code is not NOT_CONTROLLER, with which the client looks for the controller and
                # sends the request again.
                event.answer(ErrorCode.UNKNOWN_SERVER_ERROR)

            # The counts are compared before the write below, which is itself a change.
            nothing_done = self._context.changes == changes
            if event.node is not None:
                # The node of the request is removed even if the term ends: otherwise the next
                # controller would handle it at its start, and fail as well.
                logger.error("%s cannot be handled and is removed", event.node)
                await self._context.write([[Delete(event.node)]])
            if not nothing_done:
                raise
            logger.exception("the controller cannot handle %s and goes on", event)
        finally:
            self.state = events.IDLE

    async def _rebalance(self) -> None:
        """Queue `RebalanceDue` every `leader.imbalance.check.interval.seconds`, if rebalancing is enabled."""
        config = self._deps.config
        await trio.sleep(FIRST_REBALANCE_SECONDS)
        while config.auto_leader_rebalance_enable:
            self.put(events.RebalanceDue())
            await trio.sleep(config.leader_imbalance_check_interval_seconds)

    def put(self, event: events.Event) -> None:
        """Queue an event. After the end of the term it is dropped: watches and brokers may still answer then."""
        if not self._over:
            self._queue_in.send_nowait(event)

    async def ask(self, question: "events.Asked[Result]") -> Result | ErrorCode:
        """Queue a question and wait for its answer; NOT_CONTROLLER when the term ends first."""
        # `put` would drop the question, and nothing would answer it.
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
        # `answer` only sets an event: the waiting tasks remove their entries later, not during this loop.
        for answer in self._refusals:
            answer(ErrorCode.NOT_CONTROLLER)


# The handler of each event type.
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
    events.IsrChangeNotificationsTouched: isr.isr_change_notifications_touched,
    events.AlterPartitionAsked: isr.alter_partition_asked,
    events.ReassignmentsAsked: reassignments.reassignments_asked,
    events.OngoingReassignmentsAsked: reassignments.ongoing_reassignments_asked,
    events.ControlledShutdownAsked: controlled_shutdown.controlled_shutdown_asked,
    events.ProducerIdsAsked: producer_ids.producer_ids_asked,
}
