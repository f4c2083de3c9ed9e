"""Reads the cluster from the metadata store (shell): everything at a fail-over, single nodes when their watches fire.

A node that cannot be parsed is logged and treated as absent: one malformed node must not leave the cluster without a
controller. All functions raise StoreError when the store fails.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

import trio

from barnabas.controller.image.state import Leadership, LiveBroker, PartitionAppeared
from barnabas.controller.store import paths
from barnabas.controller.store.node_json import is_int32
from barnabas.controller.store.paths import (
    BrokerRegistration,
    ConfigEntity,
    PartitionList,
    PartitionState,
    TopicAssignment,
)
from barnabas.controller.store.store import ANY_VERSION, Check, MetadataStore, NoNode, Stat, StoreError, Watch
from barnabas.wire.topics import TopicPartition

# A new controller reads a node for every topic and every partition. One at a time, each read would
# take a round trip; with this many in flight the round trips overlap. More would only queue in
# kazoo and ZooKeeper.
READS_IN_FLIGHT = 64

SORTED_A_STEP = 1000  # nodes, before other tasks get a turn: less than a millisecond

logger = logging.getLogger(__name__)

Key = TypeVar("Key")
Value = TypeVar("Value")
Watches = Callable[[Key], Watch]


class FoundState(NamedTuple):
    """A partition's state node, and the zxid of its last write (mzxid)."""

    leadership: Leadership
    written_zxid: int


class FoundTopic(NamedTuple):
    """A topic's node and the version at which it was read, for a conditional write."""

    assignment: TopicAssignment
    version: int


async def read_brokers(
    store: MetadataStore, watch_ids: Watch, watches: Watches[int], known: Mapping[int, LiveBroker]
) -> dict[int, LiveBroker]:
    """The registered brokers by id, ascending. A registration that is not in `known` is watched from now on."""
    names = await store.children(paths.BROKER_IDS, watch_ids)
    broker_ids = sorted(broker_ids_of(names))
    # A known registration is still watched, and is read without a watch. If its czxid differs, the
    # broker has registered again: the watch fired when the former node was deleted, and the new
    # node needs one of its own.
    found = await read_nodes(store, [each for each in broker_ids if each in known], paths.broker, _data_and_stat)
    fresh = [each for each in broker_ids if each not in found or found[each][1].czxid != known[each].epoch]
    found |= await read_nodes(store, fresh, paths.broker, _data_and_stat, watches)
    brokers = {each: live_broker(each, *found[each]) for each in broker_ids if each in found}
    return {broker_id: broker for broker_id, broker in brokers.items() if broker is not None}


def broker_ids_of(names: Iterable[str]) -> list[int]:
    """The broker ids among the names of the children of /brokers/ids; other names are ignored."""
    # The length is checked first, because `int` of a very long number takes its time. Requests
    # carry ids as int32, so other numbers are ignored, too.
    found = (int(name) for name in names if name.isdecimal() and len(name) <= paths.SEQUENCE_DIGITS)
    return [broker_id for broker_id in found if is_int32(broker_id)]


def _data_and_stat(data: bytes | None, stat: Stat, path: str) -> tuple[bytes | None, Stat]:
    return data, stat


def live_broker(broker_id: int, data: bytes | None, stat: Stat) -> LiveBroker | None:
    """A broker from the data and stat of its registration; None if that cannot be parsed."""
    registration = parse(BrokerRegistration.decode, data, paths.broker(broker_id))
    return None if registration is None else LiveBroker(broker_id, stat.czxid, registration)


async def read_topics(
    store: MetadataStore, names: Iterable[str], watches: Watches[str] | None
) -> dict[str, FoundTopic]:
    """The topics among these that exist, by name."""
    return await read_nodes(store, names, paths.topic, _found_topic, watches)


def _found_topic(data: bytes | None, stat: Stat, path: str) -> FoundTopic | None:
    assignment = parse(TopicAssignment.decode, data, path)
    return None if assignment is None else FoundTopic(assignment, stat.version)


async def partition_count(store: MetadataStore, topic: str) -> int:
    """The number of partitions of a topic; 0 when there is no such topic."""
    found = await read_topics(store, [topic], None)
    return len(found[topic].assignment.partitions) if topic in found else 0


def appeared_partitions(topic: str, assignment: TopicAssignment) -> list[PartitionAppeared]:
    """The records of a topic's partitions."""
    return [
        PartitionAppeared(
            TopicPartition(topic, index),
            # A replica that is named twice counts once: it has one status.
            tuple(dict.fromkeys(replicas)),
            tuple(assignment.adding.get(index, ())),
            tuple(assignment.removing.get(index, ())),
        )
        for index, replicas in assignment.partitions.items()
    ]


async def read_states(
    store: MetadataStore, topic_partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, FoundState]:
    """The state nodes of these partitions; a partition that never had a leader has none and is left out."""
    return await read_nodes(store, topic_partitions, lambda each: paths.partition_state(*each), _found_state)


def _found_state(data: bytes | None, stat: Stat, path: str) -> FoundState | None:
    state = parse(PartitionState.decode, data, path)
    return None if state is None else FoundState(Leadership(state, stat.version), stat.mzxid)


async def read_topic_configs(store: MetadataStore, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """The configuration overrides of these topics; a topic without a node is left out."""
    take = _parsed(ConfigEntity.decode)
    found = await read_nodes(store, topics, lambda topic: paths.config_entity("topics", topic), take)
    return {topic: entity.config for topic, entity in found.items()}


async def read_log_dir_events(store: MetadataStore, names: Iterable[str]) -> list[int]:
    """The ids of the brokers that lost a log directory, as these notification nodes say."""
    found = await read_nodes(
        store, names, lambda name: f"{paths.LOG_DIR_EVENTS}/{name}", _parsed(paths.LogDirEvent.decode)
    )
    return [event.broker_id for event in found.values()]


async def read_isr_change_notifications(store: MetadataStore, names: Iterable[str]) -> dict[TopicPartition, None]:
    """The partitions whose leaders have written another ISR, as these notification nodes say."""
    found = await read_nodes(store, names, lambda name: f"{paths.ISR_CHANGES}/{name}", _parsed(PartitionList.decode))
    return {each: None for named in found.values() for each in named.partitions}


async def catch_up(store: MetadataStore) -> None:
    """Wait until this session's server has applied every write, of any session, that was answered before the call."""
    # A server of ZooKeeper may be behind the others, and answers reads from its own state. A write, even one that
    # changes nothing, is ordered after all earlier writes, and is answered when this server has applied them.
    await store.multi([Check(paths.TOPICS, ANY_VERSION)])


async def subtree(store: MetadataStore, path: str) -> list[str]:
    """The paths of all nodes below a node, children before their parents; none when the node is gone."""
    try:
        names = await store.children(path)
    except NoNode:
        return []
    found = []
    for name in names:
        child = f"{path}/{name}"
        found += [*await subtree(store, child), child]
    return found


async def read_nodes(
    store: MetadataStore,
    keys: Iterable[Key],
    path_of: Callable[[Key], str],
    take: Callable[[bytes | None, Stat, str], Value | None],
    watches: Watches[Key] | None = None,
) -> dict[Key, Value]:
    """Read many nodes at a time, and pass each to `take`.

    The values by key, in the order of `keys`. Nodes that do not exist, or for which `take` returns None, are left out.
    """
    wanted = list(keys)
    found: dict[Key, Value] = {}

    async def read(key: Key) -> None:
        path = path_of(key)
        try:
            data, stat = await store.get(path, None if watches is None else watches(key))
        except NoNode:
            return
        value = take(data, stat, path)
        if value is not None:
            found[key] = value

    await read_each(wanted, read)

    # The results are put into the order of `wanted`: what is decided must not depend on the timing
    # of reads.
    ordered: dict[Key, Value] = {}
    for index, key in enumerate(wanted):
        if key in found:
            ordered[key] = found[key]
        if index % SORTED_A_STEP == SORTED_A_STEP - 1:
            await trio.lowlevel.checkpoint()

    return ordered


async def read_each(keys: Collection[Key], read: Callable[[Key], Awaitable[None]]) -> None:
    """Call `read` for each of these, READS_IN_FLIGHT at a time. Raises the first StoreError, after the other calls."""
    # All the tasks below share this iterator: each takes the next key when it has finished one.
    remaining = iter(keys)
    failures: list[StoreError] = []

    async def read_some() -> None:
        for key in remaining:
            try:
                await read(key)
            # The error is not raised here: the nursery would wrap it in an exception group, which
            # no caller catches.
            except StoreError as error:
                failures.append(error)
                return

    async with trio.open_nursery() as nursery:
        for _ in range(min(READS_IN_FLIGHT, len(keys))):
            nursery.start_soon(read_some)
    if failures:
        raise failures[0]


def numbered(names: Iterable[str], prefix: str) -> dict[int, str]:
    """The sequential nodes among these children: number -> name. Other names are logged and left out."""
    found = {}
    for name in names:
        digits = name.removeprefix(prefix)
        if len(digits) == paths.SEQUENCE_DIGITS and digits.isascii() and digits.isdigit():
            found[int(digits)] = name
        else:
            logger.error("ignoring the node %s, which should be called %s and a number", name, prefix)
    return found


def _parsed(decode: Callable[[bytes | None, str], Value]) -> Callable[[bytes | None, Stat, str], Value | None]:
    """A `take` for nodes of which only the decoded value matters."""
    return lambda data, stat, path: parse(decode, data, path)


def parse(decode: Callable[[bytes | None, str], Value], data: bytes | None, path: str) -> Value | None:
    """A node's decoded value, or None, which is logged, if it is malformed."""
    try:
        return decode(data, path)
    except ValueError as error:
        logger.error("ignoring a node that cannot be read: %s", error)
        return None
