"""What the controller's handlers are given: the image of the cluster, and the only way to change it.

Theory of operation
-------------------
A context lasts for one term. It holds the fencing token of the term, the version of /controller_epoch that its election
wrote. The functions that handle events (`controller.HANDLERS`) are given the context and the event: they read `store`,
replay records that are true without a write of ours, and `commit` what was decided.

`commit` writes the operations of a decision in one batch, those of each step as one multi that first checks the epoch.
It replays the records whose operations succeeded, and queues what brokers are sent.

A state node that another broker has written (its version is not the expected one) is read again, and the decision is
made once more on what the node holds now (`elect`, `read_refused`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from barnabas.controller.store.metadata_versions import metadata_version_of
from barnabas.controller.store.store import Check, MetadataStore, NodeError, Op, Watch
from barnabas.controller.tally import ControllerTally
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    import random

# Partitions are decided on, written and sent in batches of this size, so that the first of them
# have leaders before the last are decided on. In the store's batch each partition is a multi of
# its own.
PARTITIONS_IN_A_BATCH = 1000

Item = TypeVar("Item")

logger = logging.getLogger(__name__)


class ControllerMoved(Exception):
    """Another controller was elected."""


class ControllerConfig(Protocol):
    """The properties that the controller reads. Those that can change at run time are read where they are used."""

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
    """One term: the controller epoch; `token`, the version of /controller_epoch; the czxid of /controller."""

    epoch: int
    token: int
    czxid: int


@dataclass(frozen=True, slots=True)
class ControllerDeps:
    """What a controller is given from outside; the same in every term."""

    store: MetadataStore
    broker_id: int
    config: ControllerConfig
    peer_for: Callable[[LiveBroker], Peer]
    now_ms: Callable[[], int]
    rng: "random.Random"
    tally: ControllerTally = field(default_factory=ControllerTally)


@dataclass(frozen=True, slots=True)
class _Watch:
    put: Callable[[events.Event], None]
    event: events.Event

    def __call__(self) -> None:
        self.put(self.event)


class ControllerContext:
    """The image, the store and the channels of one term, for the functions that handle events."""

    channels: ControllerChannels  # set by `Controller.run`, before the first event

    def __init__(self, deps: ControllerDeps, term: Term, put: Callable[[events.Event], None]) -> None:
        self.image = ClusterImage()
        # How often the store or the image was changed, or may have been: a handler that failed before it changed
        # anything does not end the term (`Controller._handle`).
        self.changes = 0
        self.term = term
        self._tally = deps.tally
        self._accepted: dict[TopicPartition, None] = {}
        self.store = deps.store
        self.config = deps.config
        self.rng = deps.rng
        self.put = put  # queues an event; dropped after the end of the term
        self.metadata_version = metadata_version_of(deps.config.inter_broker_protocol_version)
        listener = deps.config.inter_broker_listener
        self._sender = Sender(deps.broker_id, term.epoch, listener, self.metadata_version.versions)

    def watch(self, event: events.Event) -> Watch:
        """A watch that queues this event.

        Watches of equal events are equal, and a store keeps equal watches of a node once: reading a node twice does not
        queue its event twice.
        """
        return _Watch(self.put, event)

    # -- changing things

    def replay(self, *records: Record) -> None:
        """Apply records that are true without a write of ours: read from the store, or reported by a broker."""
        self.changes += 1
        for record in records:
            replay(self.image, record)

    async def replay_many(self, records: Iterable[Record]) -> None:
        """`replay` for any number of records, in slices; other tasks run in between."""
        self.changes += 1
        for part in in_slices(records):
            replay_all(self.image, part)
            await trio.lowlevel.checkpoint()

    async def write(self, items: Iterable[Sequence[Op]]) -> list[object]:
        """Write each item as a fenced multi, all in one batch. An outcome an item, in order; it may be a `NodeError`.

        ControllerMoved when another controller was elected; StoreError.
        """
        fence = Check(paths.CONTROLLER_EPOCH, self.term.token)
        fenced = [(fence, *item) for item in items]
        if not fenced:
            return []
        # The change is counted before the write: if that is cancelled or its answer is lost, it may
        # have been carried out.
        self.changes += 1
        outcomes = await self.store.batch(fenced)
        for outcome in outcomes:
            # The fence failed. Items before this one may have been written, under our epoch; they are not replayed, for
            # the image ends with the term.
            if isinstance(outcome, NodeError) and outcome.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the epoch is no longer {self.term.epoch}")
        return list(outcomes)

    async def commit(self, decision: Decision, *, tell_brokers: bool = False) -> list[Step]:
        """Write a decision, replay its records and send its requests; returns the steps that the store refused.

        With `tell_brokers` every broker is sent the list of live brokers, even if nothing else is sent. Errors as
        `write`.
        """
        refused: list[Step] = []
        batch = ControlBatch()
        if tell_brokers:
            batch.add_metadata()
        # Write before replay, replay before sending: a broker must not act on what a fail-over could undo.
        outcomes = await self.write([*decision.prepare, *(step.ops for step in decision.steps if step.ops)])
        # A refusal of `prepare` is no error: a parent exists already, or a child is gone.
        remaining = iter(outcomes[len(decision.prepare) :])
        # Steps without operations change the image, though `write` has counted nothing for them.
        self.changes += bool(decision.steps)
        for part in in_slices(decision.steps):
            refused += self._take(part, remaining, batch)
            await trio.lowlevel.checkpoint()
        await self.tell(batch)
        return refused

    def _take(self, steps: Iterable[Step], outcomes: Iterator[object], batch: ControlBatch) -> Iterator[Step]:
        """Replay the steps that were written, and add their requests to the batch; yields the refused ones."""
        for step in steps:
            # A step without operations has no outcome: its record is true without a write.
            if step.ops and isinstance(next(outcomes), NodeError):
                yield step
                continue
            if isinstance(step.record, LeadershipChanged):
                self._count_election(step.record)
            replay(self.image, step.record)
            for tell in step.tells:
                batch.add(tell)

    def _count_election(self, record: LeadershipChanged) -> None:
        """Count a new leader, before the record is replayed. The first leader of a partition is not elected."""
        # If the leader stays the same, the record only changes the ISR or the leader epoch.
        before = self.image.partition(record.topic_partition).leadership
        leader = record.leadership.state.leader
        if before is not None and leader not in (NO_LEADER, before.state.leader):
            self._tally.leader_elections += 1
            self._tally.unclean_elections += leader not in before.state.isr

    async def tell(self, batch: ControlBatch, metadata_to: Sequence[int] | None = None) -> None:
        """Queue the requests of a batch in their brokers' channels; UpdateMetadata only to `metadata_to`, or to all."""
        # Requests are made from the image one by one, with other tasks in between: the image does not change, as no
        # other event is handled meanwhile.
        for broker_id, request in batch.requests(self.image, self._sender, metadata_to):
            self.channels.send(broker_id, [request])
            await trio.lowlevel.checkpoint()

    async def decide(
        self, decide: Callable[[ClusterImage, list[Item]], Decision], subjects: Iterable[Item]
    ) -> Decision:
        """The decision about all these subjects, made slice by slice on the same image."""
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

        A leader change that the store refuses is decided once more, on the state that is in the store then.
        """
        # If there are no partitions, there is still the decision to commit.
        for pending in list(in_slices(topic_partitions, PARTITIONS_IN_A_BATCH)) or [[]]:
            await self._elect(pending, decision, choose, tell_brokers=tell_brokers)
            # The decision was committed with the first slice.
            decision = Decision()
            tell_brokers = False

    async def _elect(
        self, pending: list[TopicPartition], decision: Decision, choose: Choose, *, tell_brokers: bool
    ) -> None:
        while True:
            # The rules are read again for each attempt: which topics matter depends on the states
            # that were read meanwhile.
            rules = await self.leader_rules(pending)
            decision.extend(await self.decide(partial(_choose, choose, rules), pending))
            refused = await self.commit(decision, tell_brokers=tell_brokers)
            if not refused:
                return
            # The rest of the decision is written and must not be written twice.
            decision = Decision()
            tell_brokers = False
            pending = await self.read_refused(refused, decision)

    async def leader_rules(self, topic_partitions: Iterable[TopicPartition] = ()) -> LeaderRules:
        """The rules for elections of these partitions, with the topics that allow unclean ones.

        Configurations are read only of topics that have no clean candidate for a leader: usually none at all.
        """
        without_clean_leader: dict[str, None] = {}
        for part in in_slices(topic_partitions):
            without_clean_leader |= topics_without_clean_leader(self.image, part)
            await trio.lowlevel.checkpoint()
        by_default = self.config.unclean_leader_election_enable
        configs = await loading.read_topic_configs(self.store, without_clean_leader)
        unclean = {
            topic: None
            for topic in without_clean_leader
            if _is_true(configs.get(topic, {}).get("unclean.leader.election.enable"), by_default)
        }
        return LeaderRules(self.term.epoch, unclean, self.metadata_version.marks_recovery)

    async def read_states_again(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Take over what leaders wrote into the state nodes of these partitions; returns those that changed.

        Leaders write them below metadata version 2.7-IV2, which has no AlterPartition.
        """
        changed = []
        for topic_partition, found in (await loading.read_states(self.store, topic_partitions)).items():
            if found.leadership != self.image.partition(topic_partition).leadership:
                self._accept(topic_partition, found.leadership)
                changed.append(topic_partition)
        return changed

    async def read_refused(self, refused: list[Step], decision: Decision) -> list[TopicPartition]:
        """Read the state nodes of refused steps again; returns the partitions to decide on once more.

        A state that turns out to be the one we meant to write is added to `decision`, to be replayed and sent.
        """
        meant = {step.record.topic_partition: step for step in refused if isinstance(step.record, LeadershipChanged)}
        found = await loading.read_states(self.store, meant)
        pending = []
        for topic_partition, step in meant.items():
            if topic_partition not in found:
                logger.warning("%s has no state node any more; its topic is gone", topic_partition)
                continue
            leadership = found[topic_partition].leadership

            # Version and content are ours: the write was carried out, its answer was lost, and the store's second
            # attempt was refused.
            if LeadershipChanged(topic_partition, leadership) == step.record:
                decision.steps.append(Step(step.record, tells=step.tells))
            # As Kafka does, give up the partition: the next fenced write ends this term.
            elif leadership.state.controller_epoch > self.term.epoch:
                logger.error("%s was written by a later controller: %s", topic_partition, leadership.state)
                self._accept(topic_partition, leadership)
            else:
                self._accept(topic_partition, leadership)
                pending.append(topic_partition)

        return pending

    def take_accepted(self) -> list[TopicPartition]:
        """The partitions that are being moved and have a state, read since the last call, that another broker wrote.

        Such an ISR may complete the move, and nothing tells of it once more.
        """
        accepted = list(self._accepted)
        self._accepted.clear()
        return accepted

    def _accept(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        if topic_partition in self.image.moving:
            self._accepted[topic_partition] = None
        self.replay(LeadershipChanged(topic_partition, leadership))


def _choose(choose: Choose, rules: LeaderRules, image: ClusterImage, subjects: list[TopicPartition]) -> Decision:
    return choose(image, subjects, rules)


def _is_true(text: str | None, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"
