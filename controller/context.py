"""What the controller's handlers are given: the image of the cluster, and the one way to change it.

Theory of operation
-------------------
A context lasts for one term. It knows its fencing token, the version of /controller_epoch that its election wrote. The
functions that handle events (`controller.HANDLERS`) are given the context and nothing else: they read `store`, replay
what is true without being written, and `commit` what was decided.

`commit` writes the operations of a decision in one batch, each as a multi that first checks the epoch, replays the
records whose operations succeeded, and queues what brokers are sent. When the epoch check fails another broker was
elected: `ControllerMoved` ends the term, and nothing of the batch was written.

A state node that another broker wrote (its version is not the expected one) is read again. If it holds exactly what we
meant to write, our write had been applied and only its answer was lost; otherwise the decision is made once more, on
what the node says now.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from barnabas.controller import events
from barnabas.controller.channels import ControllerChannels, Peer
from barnabas.controller.decide.leaders import Choose, LeaderRules, decide_leaders, topics_without_clean_leader
from barnabas.controller.decide.requests import ControlBatch, Sender
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.decide.steps import Decision, Step
from barnabas.controller.image import loading
from barnabas.controller.image.state import (
    ClusterImage,
    Leadership,
    LeadershipChanged,
    LiveBroker,
    Record,
    replay,
    replay_all,
)
from barnabas.controller.store import paths
from barnabas.controller.store.metadata_versions import level_of
from barnabas.controller.store.store import Check, MetadataStore, NodeError, Op, Watch
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    import random

PARTITIONS_IN_A_BATCH = 1000  # written at a time; in a batch of the store each is a multi of its own

Item = TypeVar("Item")

logger = logging.getLogger(__name__)


class ControllerMoved(Exception):
    """Another controller was elected."""


class ControllerConfig(Protocol):
    """What the controller reads of the configuration, each time it needs it."""

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
    @property
    def auto_leader_rebalance_enable(self) -> bool: ...
    @property
    def leader_imbalance_check_interval_seconds(self) -> int: ...
    @property
    def leader_imbalance_per_broker_percentage(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Term:
    """One term: the epoch, the version of /controller_epoch, and the czxid of /controller."""

    epoch: int
    token: int
    czxid: int


@dataclass(frozen=True, slots=True)
class ControllerDeps:
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


class ControllerContext:
    """What the functions that handle events are given, for one term."""

    channels: ControllerChannels  # open while the term lasts

    def __init__(self, deps: ControllerDeps, term: Term, put: Callable[[events.Event], None]) -> None:
        self.image = ClusterImage()
        self.changes = 0  # how often the store or the image was changed, or may have been
        self.term = term
        self.store = deps.store
        self.config = deps.config
        self.rng = deps.rng
        self.put = put  # queue an event; after the term it is dropped
        self.level = level_of(deps.config.inter_broker_protocol_version)
        listener = deps.config.inter_broker_listener
        self._sender = Sender(deps.broker_id, term.epoch, listener, self.level.versions)

    def watch(self, event: events.Event) -> Watch:
        """A watch that queues this event. Watches of one event are equal, and a store keeps equal ones once."""
        return _Watch(self.put, event)

    # -- changing things

    def replay(self, *records: Record) -> None:
        """Apply records that are true without being written by us."""
        self.changes += 1
        for record in records:
            replay(self.image, record)

    async def replay_many(self, records: Iterable[Record]) -> None:
        """The same for as many as a cluster has, giving other tasks their turn."""
        self.changes += 1
        for part in in_slices(records):
            replay_all(self.image, part)
            await trio.lowlevel.checkpoint()

    async def write(self, items: Iterable[Sequence[Op]]) -> list[object]:
        """Write each item as a fenced multi, all in one batch; an item's outcome may be a `NodeError`."""
        fence = Check(paths.CONTROLLER_EPOCH, self.term.token)
        fenced = [(fence, *item) for item in items]
        if not fenced:
            return []
        self.changes += 1
        outcomes = await self.store.batch(fenced)
        for outcome in outcomes:
            if isinstance(outcome, NodeError) and outcome.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the epoch is no longer {self.term.epoch}")
        return list(outcomes)

    async def commit(self, decision: Decision, *, tell_brokers: bool = False) -> list[Step]:
        """Write, replay, tell; returns the steps that the store refused.

        `tell_brokers`: every broker learns the list of live brokers, even when nothing else is sent.
        """
        refused: list[Step] = []
        batch = ControlBatch()
        if tell_brokers:
            batch.add_metadata()
        outcomes = await self.write([*decision.prepare, *(step.ops for step in decision.steps if step.ops)])
        remaining = iter(outcomes[len(decision.prepare) :])
        self.changes += bool(decision.steps)
        for part in in_slices(decision.steps):
            refused += self._take(part, remaining, batch)
            await trio.lowlevel.checkpoint()
        await self.tell(batch)
        return refused

    def _take(self, steps: Iterable[Step], outcomes: Iterator[object], batch: ControlBatch) -> Iterator[Step]:
        """Replay what is written, and add to the batch what it tells; returns the others."""
        for step in steps:
            if step.ops and isinstance(next(outcomes), NodeError):
                yield step
                continue
            replay(self.image, step.record)
            for tell in step.tells:
                batch.add(tell)

    async def tell(self, batch: ControlBatch, metadata_to: Sequence[int] | None = None) -> None:
        """Queue the requests of a batch at their brokers' channels."""
        for broker_id, request in batch.requests(self.image, self._sender, metadata_to):
            self.channels.send(broker_id, [request])
            await trio.lowlevel.checkpoint()

    async def decide(
        self, decide: Callable[[ClusterImage, list[Item]], Decision], subjects: Iterable[Item]
    ) -> Decision:
        """The decision about all these subjects, made slice by slice."""
        decision = Decision()
        for part in in_slices(subjects):
            decision.extend(decide(self.image, part))
            await trio.lowlevel.checkpoint()
        return decision

    # -- leaders

    async def elect(
        self,
        topic_partitions: Iterable[TopicPartition],
        decision: Decision,
        *,
        choose: Choose = decide_leaders,
        tell_brokers: bool = False,
    ) -> None:
        """Commit a decision together with what `choose` decides about the leaders of these partitions.

        What the store refuses of it is decided once more, on what the store says then. Of many partitions the first
        are written and sent before the last are decided on.
        """
        for pending in list(in_slices(topic_partitions, PARTITIONS_IN_A_BATCH)) or [[]]:
            await self._elect(pending, decision, choose, tell_brokers=tell_brokers)
            decision, tell_brokers = Decision(), False

    async def _elect(
        self, pending: list[TopicPartition], decision: Decision, choose: Choose, *, tell_brokers: bool
    ) -> None:
        while True:
            rules = await self.leader_rules(pending)
            decision.extend(await self.decide(partial(_choose, choose, rules), pending))
            refused = await self.commit(decision, tell_brokers=tell_brokers)
            if not refused:
                return
            decision, tell_brokers = Decision(), False
            pending = await self.read_refused(refused, decision)

    async def leader_rules(self, topic_partitions: Iterable[TopicPartition] = ()) -> LeaderRules:
        """Read which topics allow unclean elections, if that matters to any of these partitions."""
        doubtful: dict[str, None] = {}
        for part in in_slices(topic_partitions):
            doubtful |= topics_without_clean_leader(self.image, part)
            await trio.lowlevel.checkpoint()
        by_default = self.config.unclean_leader_election_enable
        configs = await loading.read_topic_configs(self.store, doubtful)
        unclean = {
            topic: None
            for topic in doubtful
            if _is_true(configs.get(topic, {}).get("unclean.leader.election.enable"), by_default)
        }
        return LeaderRules(self.term.epoch, unclean, self.level.marks_recovery)

    async def read_states_again(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Accept what leaders wrote into the state nodes of these partitions; returns those that changed."""
        changed = []
        for topic_partition, found in (await loading.read_states(self.store, topic_partitions)).items():
            if found.leadership != self.image.partition(topic_partition).leadership:
                self._accept(topic_partition, found.leadership)
                changed.append(topic_partition)
        return changed

    async def read_refused(self, refused: list[Step], decision: Decision) -> list[TopicPartition]:
        """Read again the state nodes that were not as expected; returns the partitions to decide on once more.

        A state that turns out to be what we meant to write is added to `decision`, to be replayed and sent.
        """
        meant = {step.record.topic_partition: step for step in refused if isinstance(step.record, LeadershipChanged)}
        found = await loading.read_states(self.store, meant)
        pending = []
        for topic_partition, step in meant.items():
            if topic_partition not in found:
                logger.warning("%s has no state node any more; its topic is gone", topic_partition)
                continue
            leadership = found[topic_partition].leadership
            if LeadershipChanged(topic_partition, leadership) == step.record:
                decision.steps.append(Step(step.record, tells=step.tells))
            elif leadership.state.controller_epoch > self.term.epoch:
                logger.error("%s was written by a later controller: %s", topic_partition, leadership.state)
                self._accept(topic_partition, leadership)
            else:
                self._accept(topic_partition, leadership)
                pending.append(topic_partition)
        return pending

    def _accept(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        self.replay(LeadershipChanged(topic_partition, leadership))


def _choose(choose: Choose, rules: LeaderRules, image: ClusterImage, subjects: list[TopicPartition]) -> Decision:
    return choose(image, subjects, rules)


def _is_true(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"
