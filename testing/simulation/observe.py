"""Observes the brokers: the content of each replica, and its changes.

*Theory of operation.* The broker has no hooks for the observer. A partition wakes its `Waiter`s after each append,
truncation, change of role and move of the high watermark; the observer registers a waiter of its own with every
partition of every broker (`_Watch`). After each step of any task (`step`) it checks the woken ones, so the cost is
proportional to the changes. Once in `SWEEP_SECONDS` it checks all of them, in case a change did not wake its waiters.

The content of a replica is read from its log file, from the position where reading stopped the last time; from the
beginning if the log's segments were truncated or replaced since, or if the broker is another process. Reading bypasses
the simulated disk: it meets no fault, and takes no time. A crashed process is not observed any more, although work that
it had begun in a thread may still end.

`Checks.look` gets the change and the old shadow, and updates the shadow.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.wire.record_batch import checksum
from barnabas.wire.records import BatchHeader, read_batch_header
from barnabas.world.waiting import Waiter, Watched

if TYPE_CHECKING:
    from barnabas.broker.call import Broker
    from barnabas.controller.store.store import Item, Outcome
    from barnabas.replication.partition import Partition
    from barnabas.replication.replicas import Replicas
    from barnabas.storage.log import PartitionLog
    from barnabas.storage.memdisk import MemDisk
    from barnabas.testing.simulation.tree import Tree, WatchKey
    from barnabas.testing.simulation.truth import Shadow

SWEEP_SECONDS = 0.5

LookInto = Callable[[BatchHeader, bytearray, int], None]  # a batch, and where it lies in the bytes of a file


class WatchedNode(Protocol):
    """A simulated machine; its broker is None while none runs."""

    broker_id: int

    @property
    def broker(self) -> "Broker | None": ...
    @property
    def disk(self) -> "MemDisk": ...


class Looker(Protocol):
    """What is called for each change: the invariants."""

    def look(self, node: WatchedNode, partition: "Partition") -> None:
        """Something about this replica may have changed."""

    def replica_removed(self, node: WatchedNode, partition: "Partition") -> None:
        """The broker does not have this replica any more, while it runs."""

    def looked(self) -> None:
        """Everything that changed in this step was looked at."""


class Both:
    """Two lookers as one; the first one is called first."""

    def __init__(self, first: Looker, second: Looker) -> None:
        self._first = first
        self._second = second

    def look(self, node: WatchedNode, partition: "Partition") -> None:
        """Something about this replica may have changed."""
        self._first.look(node, partition)
        self._second.look(node, partition)

    def replica_removed(self, node: WatchedNode, partition: "Partition") -> None:
        """The broker does not have this replica any more, while it runs."""
        self._first.replica_removed(node, partition)
        self._second.replica_removed(node, partition)

    def looked(self) -> None:
        """Everything that changed in this step was looked at."""
        self._first.looked()
        self._second.looked()


class _Watch(Waiter):
    """Registered with every partition of one broker process."""

    __slots__ = ("changed", "process")

    def __init__(self, process: "_Process", changed: "dict[Watched, _Process]") -> None:
        super().__init__()
        self.process = process
        self.changed = changed

    def touch(self, changed: Watched) -> None:
        self.changed[changed] = self.process
        self.register([changed])  # every change is looked at


class _Process:
    """One broker process, and what is known of its partitions."""

    __slots__ = ("hosted", "node", "replicas", "watch")

    def __init__(self, node: WatchedNode, replicas: "Replicas", changed: "dict[Watched, _Process]") -> None:
        self.node = node
        self.replicas = replicas
        self.watch = _Watch(self, changed)
        self.hosted: dict[Partition, None] = {}

    @property
    def is_alive(self) -> bool:
        broker = self.node.broker
        return broker is not None and broker.replicas is self.replicas

    @property
    def is_outdated(self) -> bool:
        """Whether partitions came or went. One may have gone and another come in the same step."""
        return len(self.replicas) != len(self.hosted) or not all(map(self.hosted.__contains__, self.replicas))

    def find_new(self, looker: Looker, changed: "dict[Watched, _Process]") -> None:
        """Register with what came since, and tell of what went."""
        now = dict.fromkeys(self.replicas)
        for partition in self.hosted:
            if partition not in now:
                partition.waiters.pop(self.watch, None)
                changed.pop(partition, None)
                looker.replica_removed(self.node, partition)
        for partition in now:
            if partition not in self.hosted:
                self.watch.register([partition])
                changed[partition] = self
        self.hosted = now


class Observer:
    """Watches any number of nodes; `step` is to be called after each step of any task."""

    def __init__(self, nodes: Callable[[], Sequence[WatchedNode]], looker: Looker, now: Callable[[], float]) -> None:
        self.look_count = 0
        self._nodes = nodes
        self._looker = looker
        self._now = now
        self._changed: dict[Watched, _Process] = {}
        self._processes: dict[int, _Process] = {}
        self._sweep_at = 0.0
        self._searched_at = -1.0

    def step(self) -> None:
        """Look at whatever changed."""
        now = self._now()
        if now != self._searched_at:  # roles come and go with messages, and those take time
            self._searched_at = now
            self._search()
        if self._changed:
            self._look()
        if now >= self._sweep_at:
            self.sweep()

    def _search(self) -> None:
        """Look for brokers and partitions that are new, or gone."""
        for node in self._nodes():
            broker = node.broker
            process = self._processes.get(node.broker_id)
            if broker is None:
                if process is not None:
                    del self._processes[node.broker_id]
                continue
            if process is None or process.replicas is not broker.replicas:
                process = self._processes[node.broker_id] = _Process(node, broker.replicas, self._changed)
            if process.is_outdated:
                process.find_new(self._looker, self._changed)

    def sweep(self) -> None:
        """Look at everything."""
        self._sweep_at = self._now() + SWEEP_SECONDS
        for process in self._processes.values():
            process.find_new(self._looker, self._changed)
            self._changed.update(dict.fromkeys(process.hosted, process))
        self._look()

    def _look(self) -> None:
        changed = dict(self._changed)
        look = self._looker.look
        self._changed.clear()
        self.look_count += len(changed)
        for partition, process in changed.items():
            if process.is_alive:
                look(process.node, partition)  # type: ignore[arg-type]  # a Waiter knows what it waits for by less than it is
        self._looker.looked()


def watch_tree(tree: "Tree", stored: Callable[[str, bytes | None], None]) -> None:
    """Tell `stored(path, data)` of every node of the metadata store that is written, or (None) gone."""
    write = tree.write
    end_session = tree.end_session

    def tell(changed: "list[WatchKey]") -> None:
        for kind, path in changed:
            if kind == "data":
                stored(path, None if tree.stat(path) is None else tree.get(path)[0])

    def watched_write(item: "Item", session_id: int) -> "tuple[Outcome, list[WatchKey]]":
        outcome, changed = write(item, session_id)
        tell(changed)
        return outcome, changed

    def watched_end(session_id: int) -> "list[WatchKey]":
        changed = end_session(session_id)
        tell(changed)
        return changed

    tree.write = watched_write  # type: ignore[method-assign]  # watched from outside
    tree.end_session = watched_end  # type: ignore[method-assign]  # the same


def read_new(
    log: "PartitionLog", disk: "MemDisk", shadow: "Shadow", look_into: LookInto | None = None
) -> list[BatchHeader]:
    """The batches behind those that the shadow knows, of which the last one ended where reading stopped."""
    found: list[BatchHeader] = []
    for segment in log.segments.since(shadow.end_offset if shadow.segment_base >= 0 else 0):
        if segment.base_offset != shadow.segment_base:
            shadow.segment_base = segment.base_offset
            shadow.position = 0
        data = disk.peek(segment.path)
        for header in _headers(data, shadow.position, min(segment.size_bytes, len(data))):
            found.append(header)
            if look_into is not None:
                look_into(header, data, shadow.position)
            shadow.position += header.size_bytes
    return found


def read_all(
    log: "PartitionLog", disk: "MemDisk", shadow: "Shadow", look_into: LookInto | None = None
) -> list[BatchHeader]:
    """Every batch of the log, and reading goes on behind them."""
    shadow.segment_base = -1
    return read_new(log, disk, shadow, look_into)


def _headers(data: bytearray, position: int, end: int) -> Iterator[BatchHeader]:
    while position < end:
        header = read_batch_header(data, position)
        # The checksum is computed from the bytes: if they are not those that the leader appended,
        # it is another batch.
        found = checksum(bytes(data[position : position + header.size_bytes]))
        yield header if found == header.crc else header._replace(crc=found)
        position += header.size_bytes
