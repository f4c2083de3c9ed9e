"""What brokers have in memory about transactions, compared with their logs: rules X5, X11, X12 and X13.

`LogTransactions` says what a replica's log means. A broker computes the same in several ways: batch by batch as leader
and follower, from a snapshot and the rest of the log after a start or a truncation, from the index of aborted
transactions. All of these must agree, for each replica, at any moment.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from barnabas.coordinators.runtime.loading import Loading
from barnabas.storage.files import TRANSACTION_INDEX
from barnabas.storage.index import IndexCorrupt
from barnabas.storage.log import PartitionLog
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC, ZERO_TOPIC_ID

if TYPE_CHECKING:
    from barnabas.coordinators.groups.offsets import StoredOffset
    from barnabas.coordinators.groups.replay import Groups
    from barnabas.coordinators.runtime.shard import Shard
    from barnabas.coordinators.transactions.state import TransactionalIds
    from barnabas.replication.partition import Partition
    from barnabas.storage.memdisk import MemDisk
    from barnabas.storage.producers import Producer
    from barnabas.testing.simulation.node import Node
    from barnabas.testing.simulation.observe import WatchedNode
    from barnabas.testing.simulation.truth import Shadow, Truth

Violate = Callable[[str, str], None]


def check_replica(
    violate: Violate, node: "WatchedNode", truth: "Truth", shadow: "Shadow", partition: "Partition"
) -> None:
    """X5 and X11: the last stable offset of a replica; what a coordinator serves. Cheap: at every change."""
    log = partition.log
    if log is None or log.is_being_cut:
        return
    if truth.topic == TRANSACTION_TOPIC:
        _check_ids(violate, node, truth, shadow, partition)
        return
    stable = partition.last_stable_offset
    least, greatest = shadow.transactions.stable_offsets(partition.high_watermark, log.log_start_offset)
    if not least <= stable <= greatest:
        text = f"{truth} at {shadow.broker_id}: last stable offset {stable}, high watermark {partition.high_watermark}"
        violate("X5", f"{text}, it should be {least}; open are {shadow.transactions.open}")


def _check_ids(violate: Violate, node: "WatchedNode", truth: "Truth", shadow: "Shadow", partition: "Partition") -> None:
    if not partition.is_leader or node.broker is None:
        return
    shard = _serving(node.broker.transactions.runtime, truth.partition, partition)
    if shard is None:
        return
    expected: dict[str, tuple[object, int]] = shadow.transactions.ids
    served: dict[str, tuple[object, int]] = {
        name: (known.recorded, known.offset) for name, known in shard.state.by_name.items()
    }
    if served != expected:
        different = {name for name in served.keys() | expected.keys() if served.get(name) != expected.get(name)}
        name = min(different)
        violate(
            "X11",
            f"{truth} at {shadow.broker_id}: {name!r} is {served.get(name)}, its log says {expected.get(name)}",
        )


def _serving(
    shards: "Iterable[Shard[TransactionalIds]]", index: int, partition: "Partition"
) -> "Shard[TransactionalIds] | None":
    for shard in shards:
        if shard.index == index and shard.partition is partition and not shard.refusal:
            return shard
    return None


def check_reread(violate: Violate, node: "WatchedNode", truth: "Truth", shadow: "Shadow", log: PartitionLog) -> None:
    """X13: a log that was opened or truncated has the transactions that its batches say."""
    if log.is_being_cut:
        return
    where = f"{truth} at {shadow.broker_id}"
    view = shadow.transactions
    opened = {each.producer_id: each.first_offset for each in log.producers if each.first_offset != NO_OFFSET}
    expected_open = {producer: first for producer, first in view.open.items() if first >= log.log_start_offset}
    if {producer: first for producer, first in opened.items() if first >= log.log_start_offset} != expected_open:
        violate("X13", f"{where} has the open transactions {opened}, its log {view.open}")
    try:
        aborted = aborted_of(log, node.disk)
    except IndexCorrupt as damage:
        violate("X13", f"{where} cannot read its aborted transactions: {damage}")
        return

    if truth.is_compacted:
        _check_index_of_compacted(violate, where, shadow, aborted)
        return
    start_offset = log.log_start_offset
    indexed = [each for each in aborted if each.last_offset >= start_offset]
    expected = [
        AbortedTransaction(each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in view.ended
        if not each.is_commit and each.last_offset >= start_offset
    ]
    if indexed != expected:
        wrong = [each for each in indexed if each not in expected][:2]
        missing = [each for each in expected if each not in indexed][:2]
        violate("X13", f"{where} has the wrong aborted transactions {wrong} in its index, and lacks {missing}")


def _check_index_of_compacted(
    violate: Violate, where: str, shadow: "Shadow", indexed: Sequence[AbortedTransaction]
) -> None:
    """An entry stays as it was written as long as the log has data of its transaction, whatever is left of that."""
    first_offsets = {each.last_offset: each.first_offset for each in indexed}
    for each in shadow.transactions.ended:
        if not each.is_commit and first_offsets.get(each.last_offset, each.first_offset + 1) > each.first_offset:
            violate("X13", f"{where} has data of {each}, which is aborted, and lacks it in its index")


def aborted_of(log: PartitionLog, disk: "MemDisk") -> list[AbortedTransaction]:
    """The whole index of aborted transactions of a log, without a fault of the disk. IndexCorrupt by a bug."""
    found: list[AbortedTransaction] = []
    for segment in log.segments:
        path = segment.store.path(segment.base_offset, TRANSACTION_INDEX)
        found += segment.transactions.rows(bytes(disk.peek(path)))
    return found


# -- the end


def check_at_rest(violate: Violate, nodes: "Sequence[Node]", truths: "Iterable[Truth]") -> None:
    """X11 to X13, when no client writes any more: replicas, coordinators, queues."""
    by_id = {node.broker_id: node for node in nodes}
    for truth in truths:
        known: dict[int, dict[int, Producer]] = {}
        for shadow in truth.shadows.values():
            node = by_id[shadow.broker_id]
            log = shadow.log
            if shadow.is_gone or shadow.hosted_as is None or log is None or node.broker is None:
                continue

            # A broker that was away when its replica was moved to another one keeps a log that has ended earlier.
            if truth.topic != TRANSACTION_TOPIC and shadow.end_offset == truth.committed_end:
                check_reread(violate, node, truth, shadow, log)

                # The time of the last batch is that of the leader, and is not compared: a snapshot may have another.
                known[shadow.broker_id] = {each.producer_id: each._replace(last_timestamp=0) for each in log.producers}
        _compare_producers(violate, truth, known)

    for node in nodes:
        if node.broker is not None:
            _check_groups(violate, node)
            _check_queues(violate, node)


def _compare_producers(violate: Violate, truth: "Truth", known: "dict[int, dict[int, Producer]]") -> None:
    for (one, states), (other, others) in pairwise(known.items()):
        for producer_id in states.keys() & others.keys():
            mine = tuple(states[producer_id])
            theirs = tuple(others[producer_id])
            if mine != theirs:
                violate("X13", f"{truth}: broker {one} knows of a producer {mine}, broker {other} {theirs}")


def _check_queues(violate: Violate, node: "Node") -> None:
    assert node.broker is not None
    sender = node.broker.transactions._sender
    verification = node.broker.verification
    later = [debt for _, _, debt, _ in sender._later if debt.is_open]
    if sender._owed or later:
        violate("X12", f"{node.name} still owes markers: {[each.known for each in later] or 'at once'}")
    if any(verification._waiting.values()):
        violate("X12", f"{node.name} still has questions to coordinators")


def _check_groups(violate: Violate, node: "Node") -> None:
    """X11 of the group coordinator: offsets, also pending ones, as a loader finds them."""
    assert node.broker is not None
    for shard in node.broker.groups.runtime.serving():
        log = shard.partition.log
        if not isinstance(log, PartitionLog):
            continue
        loading: Loading[Groups] = Loading(node.broker.groups._groups.new_loader())
        for segment in log.segments:
            loading.load_batches(bytes(node.disk.peek(segment.path)[: segment.size_bytes]))
        expected = _offsets_of(loading.finish())
        served = _offsets_of(shard.state)
        if expected != served:
            violate("X11", f"{GROUP_TOPIC}-{shard.index} at {node.name}: {served} is served, its log says {expected}")


def _offsets_of(groups: "Groups") -> dict[object, object]:
    found: dict[object, object] = {}
    for group_id, group in groups.by_id.items():
        recorded = group.recorded
        for key, stored in recorded.offsets.items():
            found[group_id, key] = _as_logged(stored)
        for key, pending in recorded.pending.items():
            if pending:
                found[group_id, key, "pending"] = {
                    producer_id: _as_logged(stored) for producer_id, stored in pending.items()
                }
    return found


def _as_logged(stored: "StoredOffset") -> "StoredOffset":
    # No record has the id of the topic.
    return stored._replace(commit=stored.commit._replace(topic_id=ZERO_TOPIC_ID))
