"""The controller while it is in office: one queue of events, each read, decided, written, replayed and told in turn.

Theory of operation
-------------------
A controller is made for one term of office and knows its fencing token, the version of /controller_epoch that its
election wrote. It starts with an empty image and the event `Startup`, which reads the whole cluster (reference B.2).
Everything after that is an event too: a watch fired, a broker answered, somebody asks for something. Events are handled
one at a time, in order, by the functions of `HANDLERS`; nothing else touches the image.

`commit` is the one way to change anything: it writes the operations of a decision in one batch, each as a multi that
first checks the epoch, replays the records whose operations succeeded, and queues what brokers are to be told. When the
epoch check fails somebody else was elected: `ControllerMoved` ends the term, and nothing of the batch was written.

A state node that somebody else wrote (its version is not the expected one) is read again. If it holds exactly what we
meant to write, our write had been applied and only its answer was lost; otherwise the decision is made once more, on
what the node says now.

A term also ends when its owner cancels it, when the store cannot be reached, and on `InvariantBroken`: the image is
wrong, and the next controller builds a new one.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from barnabas.controller import (
    events,
    failover,
    loading,
    membership,
    paths,
    producer_id_blocks,
    topic_changes,
    topic_deletion,
)
from barnabas.controller.channels import ControllerChannels, Peer
from barnabas.controller.decisions import Decision, LeaderRules, Step, decide_leaders, topics_without_clean_leader
from barnabas.controller.requests import ControlBatch, Sender
from barnabas.controller.state import ClusterImage, Leadership, LeadershipChanged, LiveBroker, Record, replay
from barnabas.controller.store import Check, MetadataStore, NodeError, Op, StoreError, Watch
from barnabas.wire import messages as m
from barnabas.wire.apis import inter_broker_versions
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    import random

LEADER_AND_ISR_KEY = 4
LEADER_AND_ISR_WITH_RECOVERY = 6  # the first version that carries the leader's recovery state
STEPS_IN_A_TURN = 100  # decided or replayed before other tasks get a turn: about a millisecond

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class ControllerMoved(Exception):
    """Another controller was elected."""


class ControllerConfig(Protocol):
    """What the controller reads of the configuration, each time anew."""

    @property
    def unclean_leader_election_enable(self) -> bool: ...
    @property
    def delete_topic_enable(self) -> bool: ...
    @property
    def inter_broker_protocol_version(self) -> str: ...
    @property
    def inter_broker_listener(self) -> str: ...
    @property
    def controller_socket_timeout_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Term:
    """One term of office: the epoch, the version of /controller_epoch, and the czxid of /controller."""

    epoch: int
    token: int
    czxid: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a controller is given of the world; the same in every term."""

    store: MetadataStore
    broker_id: int
    config: ControllerConfig
    peer_for: Callable[[LiveBroker], Peer]
    now_ms: Callable[[], int]
    rng: "random.Random"


@dataclass(frozen=True, slots=True)
class _Watch:
    put: Callable[[events.Event], None]
    event: events.Event

    def __call__(self) -> None:
        self.put(self.event)


class Controller:
    """One term of office."""

    def __init__(self, surroundings: Surroundings, term: Term) -> None:
        self.image = ClusterImage()
        self.term = term
        self.store = surroundings.store
        self.config = surroundings.config
        self.rng = surroundings.rng
        self.channels: ControllerChannels
        self._surroundings = surroundings
        self._sender = Sender(surroundings.broker_id, term.epoch, surroundings.config.inter_broker_listener)
        self._queue_in, self._queue_out = trio.open_memory_channel[events.Event](math.inf)
        self._refusals: dict[Callable[[ErrorCode], None], None] = {}  # of questions without an answer
        self._over = False

    # -- the loop

    async def run(self, on_started: Callable[[], None]) -> ControllerMoved | StoreError | InvariantBroken:
        """Serve until the term is over, and return why; `on_started` is called when the fail-over is done."""
        async with trio.open_nursery() as nursery:
            self.channels = ControllerChannels(
                nursery, self._surroundings.peer_for, self._answered, lambda: self.config.controller_socket_timeout_ms
            )
            try:
                await self._handle(events.Startup())
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
        await HANDLERS[type(event)](self, event)

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

    def watch(self, event: events.Event) -> Watch:
        """A watch that queues this event. Watches of one event are equal, and a store keeps equal ones once."""
        return _Watch(self.put, event)

    def _answered(self, broker: LiveBroker, request: m.Message, response: m.Message) -> None:
        event = events.response_event(broker, request, response)
        if event is not None:
            self.put(event)

    def _refuse_questions(self) -> None:
        self._over = True
        for answer in self._refusals:
            answer(ErrorCode.NOT_CONTROLLER)

    # -- changing things

    def replay(self, *records: Record) -> None:
        """Apply records that are true without being written by us."""
        for record in records:
            replay(self.image, record)

    async def replay_many(self, records: Iterable[Record]) -> None:
        """The same for as many as a cluster has, giving other tasks their turn."""
        for number, record in enumerate(records, 1):
            replay(self.image, record)
            if number % STEPS_IN_A_TURN == 0:
                await trio.lowlevel.checkpoint()

    async def write(self, items: Iterable[Sequence[Op]]) -> list[object]:
        """Write each item as a fenced multi, all in one batch; an item's outcome may be a `NodeError`."""
        fence = Check(paths.CONTROLLER_EPOCH, self.term.token)
        fenced = [(fence, *item) for item in items]
        if not fenced:
            return []
        outcomes = await self.store.batch(fenced)
        for outcome in outcomes:
            if isinstance(outcome, NodeError) and outcome.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the epoch is no longer {self.term.epoch}")
        return list(outcomes)

    async def commit(self, decision: Decision, *, tell_brokers: bool = False) -> list[Step]:
        """Write, replay, tell; returns the steps that the store refused.

        `tell_brokers`: every broker learns the list of live brokers, even when nothing else is told.
        """
        writes = [*([op] for op in decision.prepare), *(step.ops for step in decision.steps if step.ops)]
        outcomes = iter((await self.write(writes))[len(decision.prepare) :])
        refused: list[Step] = []
        batch = ControlBatch()
        if tell_brokers:
            batch.add_metadata()
        for number, step in enumerate(decision.steps, 1):
            if step.ops and isinstance(next(outcomes), NodeError):
                refused.append(step)
                continue
            replay(self.image, step.record)
            for tell in step.tells:
                batch.add(tell)
            if number % STEPS_IN_A_TURN == 0:
                await trio.lowlevel.checkpoint()
        self.tell(batch)
        return refused

    def tell(self, batch: ControlBatch, metadata_to: Sequence[int] | None = None) -> None:
        """Queue the requests of a batch at their brokers' channels."""
        for broker_id, requests in batch.requests(self.image, self._sender, metadata_to).items():
            self.channels.send(broker_id, requests)

    # -- leaders

    async def elect(
        self, topic_partitions: Iterable[TopicPartition], decision: Decision, *, tell_brokers: bool = False
    ) -> None:
        """Commit a decision together with the leaders of these partitions, and again what the store refused of them."""
        pending = list(topic_partitions)
        while True:
            rules = await self._leader_rules(pending)
            for first in range(0, len(pending), STEPS_IN_A_TURN):
                decision.extend(decide_leaders(self.image, pending[first : first + STEPS_IN_A_TURN], rules))
                await trio.lowlevel.checkpoint()
            refused = await self.commit(decision, tell_brokers=tell_brokers)
            if not refused:
                return
            decision, tell_brokers = Decision(), False
            pending = await self._read_refused(refused, decision)

    async def _leader_rules(self, topic_partitions: list[TopicPartition]) -> LeaderRules:
        """Read which topics allow unclean elections, if that matters to any of these partitions."""
        doubtful = topics_without_clean_leader(self.image, topic_partitions)
        by_default = self.config.unclean_leader_election_enable
        configs = await loading.read_topic_configs(self.store, doubtful)
        unclean = {
            topic: None
            for topic in doubtful
            if _is_true(configs.get(topic, {}).get("unclean.leader.election.enable"), by_default)
        }
        versions = inter_broker_versions(self.config.inter_broker_protocol_version)
        return LeaderRules(self.term.epoch, unclean, versions[LEADER_AND_ISR_KEY] >= LEADER_AND_ISR_WITH_RECOVERY)

    async def _read_refused(self, refused: list[Step], decision: Decision) -> list[TopicPartition]:
        """Read again the state nodes that were not as expected; returns the partitions to decide on once more.

        A state that turns out to be what we meant to write is added to `decision`, to be replayed and told.
        """
        meant = {step.record.topic_partition: step for step in refused if isinstance(step.record, LeadershipChanged)}
        found = await loading.read_states(self.store, meant)
        pending = []
        for topic_partition, step in meant.items():
            leadership = found.get(topic_partition)
            if leadership is None:
                logger.warning("%s has no state node any more; its topic is gone", topic_partition)
            elif LeadershipChanged(topic_partition, leadership) == step.record:
                decision.steps.append(Step(step.record, tells=step.tells))
            elif leadership.state.controller_epoch > self.term.epoch:
                logger.error("%s was written by a later controller: %s", topic_partition, leadership.state)
                self._accept(topic_partition, leadership)
            else:
                self._accept(topic_partition, leadership)
                pending.append(topic_partition)
        return pending

    def _accept(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        replay(self.image, LeadershipChanged(topic_partition, leadership))


def _is_true(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"


# What a controller does about each event.
HANDLERS: Mapping[type[events.Event], Callable[..., Awaitable[None]]] = {
    events.Startup: failover.startup,
    events.BrokerIdsTouched: membership.broker_ids_touched,
    events.RegistrationTouched: membership.registration_touched,
    events.LogDirEventsTouched: membership.log_dir_events_touched,
    events.LeaderAndIsrAnswered: membership.leader_and_isr_answered,
    events.TopicsTouched: topic_changes.topics_touched,
    events.TopicTouched: topic_changes.topic_touched,
    events.UncleanElectionAllowed: topic_changes.unclean_election_allowed,
    events.DeletionMarksTouched: topic_deletion.deletion_marks_touched,
    events.StopReplicaAnswered: topic_deletion.stop_replica_answered,
    events.ProducerIdsAsked: producer_id_blocks.producer_ids_asked,
}
