"""Hears what happens in a run, and keeps what a diagram shows of it. It changes nothing.

Theory of operation
-------------------
A run without a recorder has none of this: `SimNet.recorder` is None, and wires have no taps. A recorder draws no random
number, starts no task and sets no timer, so a seed has the same history with it.

Messages are heard by the taps on the wires (`taps.py`), cuts of links from the network. What brokers hold comes from
the observer (`look`), as it comes to the rules; what the metadata store holds from its tree (`stored`). After each step
of any task the recorder looks whether each broker runs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.controller.store import paths
from barnabas.testing.simulation.diagram.frames import Talk
from barnabas.testing.simulation.diagram.recording import (
    DOWN,
    PAUSED,
    STARTING,
    UP,
    Cut,
    Held,
    InSync,
    Recording,
    Trouble,
)
from barnabas.testing.simulation.diagram.taps import Messages, StoreTap, StreamTap, partition_at
from barnabas.testing.simulation.harm import Fault
from barnabas.testing.simulation.net import SimStream
from barnabas.testing.simulation.node import Node
from barnabas.testing.simulation.observe import WatchedNode
from barnabas.testing.simulation.store import STORE, Connection
from barnabas.wire.sentinels import NO_LEADER

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition


class Recorder:
    """Made before the run; `begin` is called when there is a cluster, `finish` when there is none any more."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._now: Callable[[], float] = lambda: 0.0
        self._nodes: Sequence[Node] = ()
        self._messages = Messages(self.recording)
        self._cuts: dict[tuple[str, str], list[float]] = {}

    def begin(self, now: Callable[[], float], nodes: Sequence[Node]) -> None:
        """`now` is the time since the run began, in seconds."""
        self._now = now
        self._messages.now = now
        self._nodes = nodes
        self.recording.states = {node.name: [(0.0, DOWN)] for node in nodes}

    def finish(self) -> None:
        """Nothing more happens."""
        recording = self.recording
        recording.end = self._now()
        # A run that ends early leaves its faults as they are.
        for (source, target), began in self._cuts.items():
            recording.cuts += [Cut(source, target, each, recording.end) for each in began]
        self._cuts.clear()
        recording.cuts.sort(key=lambda cut: cut.began)

    # -- from the network

    def connected(self, near: SimStream, far: SimStream) -> None:
        """The party of the near end has connected to a broker."""
        # Each end of a connection sends: requests go one way, responses the other.
        messages = self._messages
        talk = Talk(messages.fetch_sessions, broker=far.name)
        near.tap(StreamTap(messages, near, partial(messages.asked, talk)))
        far.tap(StreamTap(messages, far, partial(messages.answered, talk)))

    def cut(self, source: str, target: str) -> None:
        """From now on nothing of the one reaches the other."""
        self._cuts.setdefault((source, target), []).append(self._now())

    def mended(self, source: str, target: str) -> None:
        """One such cut is taken back."""
        began = self._cuts[source, target].pop()
        self.recording.cuts.append(Cut(source, target, began, self._now()))

    def store_connected(self, party: str, connection: Connection) -> None:
        """A party tries to reach the metadata store."""
        connection.up.tap = StoreTap(self._messages, party, STORE)
        connection.down.tap = StoreTap(self._messages, STORE, party)

    # -- from the observer, and the metadata store

    def look(self, node: WatchedNode, partition: "Partition") -> None:
        """Something about this replica may have changed."""
        # The log is gone when its directory has failed: the replica stays, and holds nothing.
        end_offset = -1 if partition.log is None else partition.log.log_end_offset
        epoch = partition.leader_epoch
        self._hold(node, partition, Held(0, epoch, partition.is_leader, end_offset, partition.high_watermark))

    def replica_removed(self, node: WatchedNode, partition: "Partition") -> None:
        """The broker does not have this replica any more."""
        self._hold(node, partition, Held(0, None))

    def looked(self) -> None:
        """Everything that changed in this step was looked at."""

    def _hold(self, node: WatchedNode, partition: "Partition", held: Held) -> None:
        topic, index = partition.topic_partition
        brokers = self.recording.replicas.setdefault((topic, index), {})
        before = brokers.setdefault(f"broker-{node.broker_id}", [])
        # The observer looks at every replica twice a second, changed or not.
        if not before or before[-1][1:] != held[1:]:
            before.append(held._replace(at=self._now()))

    def stored(self, path: str, data: bytes | None) -> None:
        """A node of the metadata store was written (None: is gone)."""
        if path == paths.CONTROLLER:
            broker_id = -1 if data is None else paths.ControllerNode.decode(data, path).broker_id
            self.recording.controllers.append((self._now(), broker_id))
            return
        # In-sync replicas are taken from here, and not from the brokers, who learn of them later. A broker that still
        # thinks that it leads is shown as it believes, beside the real leader.
        partition = partition_at(path)
        if partition is not None:
            state = None if data is None else paths.PartitionState.decode(data, path)
            leader, isr = (NO_LEADER, ()) if state is None else (state.leader, state.isr)
            self.recording.in_sync.setdefault(partition, []).append(InSync(self._now(), leader, isr))

    # -- from the run

    def step(self) -> None:
        """After a step of any task: does each broker do what it did before?"""
        for node in self._nodes:
            states = self.recording.states[node.name]
            state = _state_of(node)
            if states[-1][1] != state:
                states.append((self._now(), state))

    def trouble(self, fault: Fault) -> None:
        """A fault has just happened."""
        # The run says so after the fault did its work, and before the next step: these brokers went down by it.
        states = self.recording.states
        down = [node.name for node in self._nodes if not node.is_running and states[node.name][-1][1] != DOWN]
        self.recording.troubles.append(Trouble(self._now(), fault, tuple(down)))

    def troubles_are_over(self) -> None:
        """Every fault that still lasted ends."""
        self.recording.troubles_end = self._now()


def _state_of(node: Node) -> str:
    if not node.is_running:
        return DOWN
    if node.is_paused:
        return PAUSED
    return UP if node.is_ready else STARTING
