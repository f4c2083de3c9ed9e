"""`LocalCluster`: several brokers for a test, with replication and elections, reached over TCP like any others (edge).

    with LocalCluster(3, topics={"orders": (6, 3)}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader("orders", 0))

All brokers run on one thread and one trio loop, and have one metadata store with a session for each (`sessions.py`).
They have a listener for clients and one for each other (`network.py`). Each has a disk in memory, or a directory.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from barnabas.testing.arguments import DEFAULTS, check_count, is_number, properties_of, texts
from barnabas.testing.asking import create_topic, elect_preferred, find_coordinator, prefer
from barnabas.testing.cluster.cluster_loop import ClusterLoop
from barnabas.testing.cluster.member import ClusterBroker
from barnabas.testing.cluster.network import CLIENTS, STORE, Party
from barnabas.testing.errors import LocalBrokerError, NotThere, TopicRefused
from barnabas.testing.faults.interceptor import Interceptor
from barnabas.testing.looking.live import PACE_SECONDS, SECONDS, wait_until
from barnabas.testing.looking.records import StoredRecord, records_of
from barnabas.testing.running.local_kafka import LocalKafka, secured_listeners
from barnabas.testing.running.page import BrokerPage
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.world.metadata import PartitionInfo

if TYPE_CHECKING:
    from barnabas.broker.call import Broker

OURS = {
    "broker.id",
    "node.id",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "log.dir",
    "log.dirs",
    "zookeeper.connect",
}
# All brokers share one thread, so a test with more of them would mostly wait.
SIZE_MAX = 100
GROUP = 0
TRANSACTION = 1

Seen = TypeVar("Seen")
TopicPartitions = Mapping[tuple[str, int], int]
Replicas = Mapping[tuple[str, int], Iterable[int]]


class LocalCluster(LocalKafka):
    """`size` brokers with the ids 1, 2, 3 …, on free ports of 127.0.0.1.

    `size`       how many brokers
    `topics`     names with (number of partitions, number of replicas); what does not exist in `data_dir` is created
    `config`     Kafka's broker properties, by their names, over the defaults below, for all brokers
    `data_dir`   where the data are, one directory for each broker; None: in memory
    `security`, `mechanism`, `client_certificate`    how clients reach all brokers, as of `LocalBroker`
    `http`       serve a page, metrics and health of each broker on another free port: `brokers[1].page_url`

    The defaults are those of `LocalBroker`, and as many replicas of the internal topics, and of topics that are created
    without a number, as there are brokers, but at most three. Everything may be called from any thread, but only one
    thread may start, stop and kill. Every failure raises a LocalBrokerError with the reason.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        topics: Mapping[str, tuple[int, int]] | None = None,
        config: Mapping[str, str] | None = None,
        data_dir: str | PathLike[str] | None = None,
        security: str = "PLAINTEXT",
        mechanism: str = "PLAIN",
        client_certificate: str | None = None,
        http: bool = False,
    ) -> None:
        if not is_number(size) or not 1 <= size <= SIZE_MAX:
            raise LocalBrokerError(f"size: a number of brokers from 1 to {SIZE_MAX}, not {size!r}")
        properties = properties_of(config, {**DEFAULTS, **_replicated(min(size, 3))}, OURS, "LocalCluster")
        self._topics = _sizes(topics, size)
        directory = None if data_dir is None else Path(fspath(data_dir)).absolute()
        self._secured = secured_listeners(security, mechanism, client_certificate, properties, "LocalCluster")
        # Nothing runs before `start`: a cluster that is only constructed needs no thread, and no
        # end.
        self._loop = ClusterLoop(size, properties, directory, self._secured)
        if http:
            for broker in self._loop.brokers.values():
                broker.page = BrokerPage()
        self.clock = self._loop.clock
        self._started = False
        self._closed = False
        self._is_changed = False  # whether anything was changed since the cluster was whole

    @property
    def brokers(self) -> Mapping[int, ClusterBroker]:
        """The brokers by their ids, also those that do not run."""
        return MappingProxyType(self._loop.brokers)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, for clients."""
        self._check_open()
        return ",".join(broker.bootstrap_servers for broker in self._loop.brokers.values())

    # -- start and end

    def start(self, broker_id: int | None = None) -> Self:
        """Start all brokers and wait until they serve and know each other (`with` does this).

        With an id, start one broker again on its ports and data, after `stop` or `kill`, and wait until it serves.
        """
        self._check_not_closed()
        if broker_id is not None:
            self._start(self._broker(broker_id))
            return self
        if self._started:
            raise LocalBrokerError("the cluster runs already")
        self._started = True
        try:
            self._loop.begin()
            with self.clock.running():
                self._loop.run(self._loop.brokers.values())
                self._await_acquaintance()
                # The internal topics are created while all brokers run: as in Kafka, that fails
                # once one is down, and a group that first appears after a kill would wait for that
                # broker.
                self.coordinator("")
                self.coordinator(transactional_id="")
                self._await_topic(GROUP_TOPIC, [0])
                self._await_topic(TRANSACTION_TOPIC, [0])
            # The topics come last: creating them needs the controller, and waiting for their
            # replicas needs all brokers.
            self._add_user()
            for name, (partitions, replicas) in self._topics.items():
                try:
                    self.create_topic(name, partitions, replicas)
                except TopicRefused as refused:
                    if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all brokers, and drop data that are not in `data_dir` (the end of `with` does this)."""
        if not self._closed:
            # The mark is set first, so that a second `close`, after an error in this one, does
            # nothing.
            self._closed = True
            try:
                self._loop.close()
            finally:
                self._secured.close()

    # -- what is so

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int | None = None, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until all its replicas are in sync; without `replicas` as the brokers' default."""
        given = texts(config)
        self._at_controller(
            lambda port: create_topic(port, name, partitions, given, -1 if replicas is None else replicas)
        )
        self._await_topic(name, range(partitions))

    def leader(self, topic: str, partition: int = 0, *, seconds: float = SECONDS) -> int:
        """The broker that leads a partition, as soon as the brokers agree on one."""
        self._check_topic(topic, partition)
        found: list[int] = []

        def look() -> bool:
            found[:] = [each for each in [self._leader(topic, partition)] if each is not None]
            return bool(found)

        # One look may fall between two leaders, when no broker can be named, so this looks until
        # the time is over.
        wait_until(look, seconds, f"no broker leads partition {partition} of {topic!r}")
        return found[0]

    def isr(self, topic: str, partition: int = 0, *, seconds: float = SECONDS) -> set[int]:
        """The in-sync replicas of a partition, as its leader has them."""
        # The leader may resign before the next line. Then it has no in-sync replicas to show, and
        # the set is empty.
        leader = self.leader(topic, partition, seconds=seconds)
        return self._loop.call(lambda: self._isr_at(leader, topic, partition))

    def coordinator(
        self, group: str | None = None, *, transactional_id: str | None = None, seconds: float = SECONDS
    ) -> int:
        """The broker that coordinates a group, or the transactions of an id, which need not exist."""
        key, key_type = _one_of(group, transactional_id)
        found: list[int] = []

        def look() -> bool:
            with suppress(OSError):
                broker_id, error = find_coordinator(self._reachable().port, key, key_type)
                # Until the controller has sent its successor, brokers name a coordinator that has
                # died.
                if error == ErrorCode.NONE and self._broker(broker_id).is_running:
                    found.append(broker_id)
            return bool(found)

        wait_until(look, seconds, f"{key!r} has no coordinator")
        return found[0]

    def wait_for(
        self, *, isr: Replicas | None = None, leader: TopicPartitions | None = None, seconds: float = SECONDS
    ) -> None:
        """Wait until partitions have these in-sync replicas and leaders, such as `isr={("orders", 0): {1, 3}}`."""
        in_sync = {key: set(replicas) for key, replicas in (isr or {}).items()}
        leaders = dict(leader or {})
        for topic, partition in (*in_sync, *leaders):
            self._check_topic(topic, partition)
        state: dict[tuple[str, int], object] = {}

        def look() -> bool:
            # The error message describes the last look alone.
            state.clear()
            for key, wanted in leaders.items():
                found = self._leader(*key)
                if found != wanted:
                    state[key] = f"leader {found}"
            for key, replicas in in_sync.items():
                at = self._leader(*key)
                seen = None if at is None else self._loop.call(partial(self._isr_at, at, *key))
                if seen != replicas:
                    state[key] = f"leader {at}, in sync {seen}"
            return not state

        wait_until(look, seconds, lambda: "; ".join(f"{key[0]}-{key[1]}: {seen}" for key, seen in state.items()))

    def records(self, topic: str) -> list[StoredRecord]:
        """What is in a topic, by partition and offset, with what became of transactions."""
        return records_of(self._reachable().port, topic)

    # -- changes

    def kill(self, broker_id: int, failover: Literal["now", "session"] = "now") -> None:
        """End a broker like `kill -9`: what it has written is there at its next start.

        The others notice it now, or with "session" when its session with the store has timed out, as in production;
        `clock.advance` shortens that.
        """
        broker = self._running(broker_id)
        if failover not in {"now", "session"}:
            raise LocalBrokerError(f"failover: 'now' or 'session', not {failover!r}")
        self._is_changed = True
        # The store must know before the broker dies, because otherwise it ends the session of a
        # dead broker at once.
        if failover == "session":
            self._loop.call(lambda: self._loop.store.linger(broker_id))
        # The broker dies on its own loop, between two steps of its tasks, as a signal would stop a
        # process between two instructions.
        self._loop.call(broker.life.die)
        broker.await_end()

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly: it hands its partitions over before."""
        broker = self._running(broker_id)
        self._is_changed = True
        # A clean stop waits for other brokers with timeouts of virtual time, so a stopped clock
        # would never let it end.
        with self.clock.running():
            self._loop.call(broker.life.stop)
            broker.await_end()

    def restart(self, broker_id: int) -> None:
        """Start a broker again; stops a running one first."""
        if self._broker(broker_id).is_running:
            self.stop(broker_id)
        self.start(broker_id)

    def _start(self, broker: ClusterBroker) -> None:
        if broker.is_running:
            raise LocalBrokerError(f"broker {broker.id} runs already")
        with self.clock.running():
            self._loop.run([broker])

    def freeze(self, broker_id: int) -> None:
        """Let nothing reach or leave a broker, as if its process were stopped, until `thaw`."""
        self._running(broker_id)
        self._is_changed = True
        self._loop.call(lambda: self._loop.links.freeze(broker_id))

    def thaw(self, broker_id: int) -> None:
        """Undo `freeze`."""
        if not self._broker(broker_id).is_frozen:
            raise LocalBrokerError(f"broker {broker_id} is not frozen")
        self._loop.call(lambda: self._loop.links.thaw(broker_id))

    def cut(self, sender: Party, receiver: Party, *, both: bool = True) -> None:
        """Let nothing that one party sends reach the other, nor, with `both`, the other way round, until `heal`.

        A party is the id of a broker, "clients" or "store".
        """
        parties = (sender, receiver)
        for each in parties:
            if each not in (CLIENTS, STORE):
                self._broker(each)
        if sender == receiver or not any(is_number(each) for each in parties):
            raise LocalBrokerError(f"cut: there is no link between {sender!r} and {receiver!r}")
        self._is_changed = True

        def cut() -> None:
            self._loop.links.cut(sender, receiver)
            if both:
                self._loop.links.cut(receiver, sender)

        self._loop.call(cut)

    @property
    def cuts(self) -> list[tuple[Party, Party]]:
        """Sender and receiver of each link that `cut` has cut."""
        return self._loop.call(lambda: self._loop.links.cuts)

    @property
    def is_in_memory(self) -> bool:
        """Whether the data are in memory, on disks that can be harmed."""
        return self._loop.is_in_memory

    def heal(self) -> None:
        """Undo every `cut`."""
        self._check_open()
        self._loop.call(self._loop.links.heal)

    def recover(self, *, seconds: float = 30.0) -> None:
        """Undo cuts, frozen brokers, harmed disks and a stopped clock, and wait until all run and are in sync."""
        self._check_open()
        self.clock.resume()
        # Most tests of a shared cluster change nothing, and `recover` after each of them must cost
        # nothing.
        if not self._is_changed and all(broker.is_running for broker in self.brokers.values()):
            return
        for broker in self.brokers.values():
            if broker.is_frozen:
                self.thaw(broker.id)
        # The links are mended before brokers start, because a broker that cannot reach the store
        # does not become ready.
        self.heal()
        for broker in self.brokers.values():
            if self._loop.is_in_memory:
                broker.disk.heal()
            if not broker.is_running:
                self._start(broker)
        self._await_acquaintance(seconds)
        view = self._reachable().parts.metadata
        keys = self._loop.call(lambda: [(key.topic, key.partition) for key in view.partitions()])
        self.wait_for(isr={key: self._replicas(*key) for key in keys}, seconds=seconds)
        # The mark stays if the wait above fails, so that the next call tries again.
        self._is_changed = False

    def lose(self, broker_id: int, topic: str, partition: int = 0, *, records: int) -> int:
        """Let a broker die, and its log of a partition lose its last batches, with so many records or a few more.

        So a disk loses what it has confirmed. A broker that ran is started again, and follows the new leader. Returns
        how many records were lost.
        """
        broker = self._broker(broker_id)
        check_count("records", records)
        ran = broker.is_running
        if ran:
            self.kill(broker_id)
        try:
            # The broker starts again even if its log has too few records, so that an error of the
            # test leaves the cluster whole.
            return broker.lose(topic, partition, records)
        finally:
            if ran:
                self._start(broker)

    def move_leader(self, topic: str, partition: int = 0, *, to: int, seconds: float = SECONDS) -> None:
        """Make another in-sync replica the leader, and the preferred one."""
        self._running(to)
        replicas = self._replicas(topic, partition)
        if to not in replicas:
            raise LocalBrokerError(f"broker {to} has no replica of {topic}-{partition}, only {sorted(replicas)} have")
        in_sync = f"broker {to} is not in sync with {topic}-{partition}"
        # The election below would be refused for a broker that is not in sync, so this waits for it
        # first.
        wait_until(lambda: to in self.isr(topic, partition, seconds=seconds), seconds, in_sync)
        # The first replica of the list is the preferred leader, and the rest keeps its order.
        order = [to, *(each for each in replicas if each != to)]
        self._demand(lambda port: prefer(port, topic, partition, order), f"{topic}-{partition} keeps its replicas")
        wait_until(lambda: self._replicas(topic, partition) == order, seconds, f"broker {to} is not preferred")
        self._demand(lambda port: elect_preferred(port, topic, partition), f"broker {to} is not elected")
        self.wait_for(leader={(topic, partition): to}, seconds=seconds)

    def move_coordinator(
        self,
        group: str | None = None,
        *,
        transactional_id: str | None = None,
        to: int,
        seconds: float = SECONDS,
    ) -> None:
        """Make another broker the coordinator of a group, or of the transactions of an id."""
        key, key_type = _one_of(group, transactional_id)
        # The first question creates the internal topic, whose partitions the next lines need.
        self.coordinator(group, transactional_id=transactional_id, seconds=seconds)
        parts = self._reachable().parts
        placement = parts.groups.placement if key_type == GROUP else parts.transactions.placement
        topic = GROUP_TOPIC if key_type == GROUP else TRANSACTION_TOPIC
        partition = self._loop.call(lambda: placement.partition_of(key))
        self._await_topic(topic, [partition])
        self.move_leader(topic, partition, to=to, seconds=seconds)

    # -- looking

    def look(self, function: "Callable[[Mapping[int, Broker]], Seen]") -> Seen:
        """What the function makes of the live parts of all brokers that run, by their ids, at one moment."""
        self._check_open()
        # The parts of a broker that has ended do not change any more, and would show an old state.
        running = [each for each in self._loop.brokers.values() if each.is_running]
        return self._loop.call(lambda: function({each.id: each.parts for each in running}))

    def _broker(self, broker_id: object) -> ClusterBroker:
        self._check_open()
        broker = self._loop.brokers.get(broker_id) if is_number(broker_id) else None
        if broker is None:
            raise NotThere(f"there is no broker {broker_id!r}, only {sorted(self._loop.brokers)}")
        return broker

    def _running(self, broker_id: object) -> ClusterBroker:
        broker = self._broker(broker_id)
        if not broker.is_running:
            raise LocalBrokerError(f"broker {broker_id} does not run")
        return broker

    def _reachable(self) -> ClusterBroker:
        """A broker that runs and can be reached by all."""
        whole = self._whole()
        if not whole:
            raise LocalBrokerError("no broker runs that is neither frozen nor cut off")
        return whole[0]

    def _whole(self) -> list[ClusterBroker]:
        self._check_open()
        links = self._loop.links
        return [each for each in self._loop.brokers.values() if each.is_running and not links.is_cut_off(each.id)]

    def _leader(self, topic: str, partition: int) -> int | None:
        """The leader on which all brokers that can be reached agree, if it runs."""
        brokers = self._whole()
        seen = self._loop.call(lambda: {each.parts.metadata.leader_of(topic, partition) for each in brokers})
        # During an election some brokers know the old leader and some the new one. Only one answer
        # of all is stable.
        if len(seen) != 1:
            return None
        (leader,) = seen
        if leader is None or leader not in self._loop.brokers or not self._loop.brokers[leader].is_running:
            return None
        return leader if self._loop.call(lambda: self._isr_at(leader, topic, partition)) else None

    def _isr_at(self, leader: int, topic: str, partition: int) -> set[int]:
        """The in-sync replicas as this broker has them; none if it does not lead. On the loop."""
        replica = self._loop.brokers[leader].parts.replicas.get(topic, partition)
        return set() if isinstance(replica, ErrorCode) or not replica.is_leader else set(replica.in_sync_replicas)

    def _info(self, topic: str, partition: int) -> PartitionInfo | None:
        """What the brokers know of a partition; None if one of them knows nothing."""
        brokers = self._whole()
        found = self._loop.call(lambda: [each.parts.metadata.partition(topic, partition) for each in brokers])
        return found[0] if found and None not in found else None

    def _replicas(self, topic: str, partition: int) -> list[int]:
        self._check_topic(topic, partition)
        info = self._info(topic, partition)
        return [] if info is None else list(info.replicas)

    def _await_topic(self, topic: str, partitions: Iterable[int], seconds: float = 30.0) -> None:
        """Wait until all brokers know these partitions, and all replicas are in sync."""
        keys = [(topic, each) for each in partitions]
        wait_until(lambda: all(map(self._is_known, keys)), seconds, f"topic {topic!r} is not there")
        self.wait_for(isr={key: self._replicas(*key) for key in keys}, seconds=seconds)

    def _is_known(self, key: tuple[str, int]) -> bool:
        return self._info(*key) is not None

    def _check_topic(self, topic: str, partition: int) -> None:
        """LocalBrokerError for a partition that no broker knows."""
        brokers = self._whole()
        known = self._loop.call(lambda: [each.parts.metadata.partition(topic, partition) for each in brokers])
        if not any(known):
            raise NotThere(f"there is no partition {partition!r} of a topic {topic!r}")

    def _add_user(self) -> None:
        """Add the user of SCRAM, if there is one, and wait until all brokers know it."""
        secured = self._secured
        self._demand(secured.add_user, f"user {secured.user!r} cannot be added")
        brokers = self._whole()
        wait_until(
            lambda: self._loop.call(lambda: all(secured.is_user_known(each.parts) for each in brokers)),
            SECONDS,
            f"the brokers do not all know user {secured.user!r}",
        )

    def _await_acquaintance(self, seconds: float = 30.0) -> None:
        def look() -> bool:
            running = {each.id for each in self._loop.brokers.values() if each.is_running}
            known = [self._loop.brokers[each].parts.metadata.brokers.keys() for each in running]
            return all(each == running for each in known)

        wait_until(lambda: self._loop.call(look), seconds, "the brokers do not all know each other")

    # -- asking

    def _at_controller(self, act: Callable[[int], None]) -> None:
        """Call this with the port of the controller; again if there is another one meanwhile."""
        # This is the time of the operating system: the clock of the brokers may stand still.
        deadline = time.monotonic() + SECONDS
        while True:
            reachable = self._reachable()
            controller = self._loop.brokers.get(self._loop.call(partial(_controller_id, reachable)))
            # Until they know its successor, brokers name a controller that has died.
            if controller is None or controller.is_running:
                try:
                    return act((controller or reachable).port)
                except TopicRefused as refused:
                    if refused.code != ErrorCode.NOT_CONTROLLER or time.monotonic() > deadline:
                        raise
            elif time.monotonic() > deadline:
                raise LocalBrokerError(f"broker {controller.id} was the controller, and has no successor")
            time.sleep(PACE_SECONDS)

    def _demand(self, act: Callable[[int], ErrorCode], what: str) -> None:
        """Have the controller do something; LocalBrokerError with its reason if it refuses."""
        answers: list[ErrorCode] = []

        def demand() -> bool:
            with suppress(OSError):
                self._at_controller(lambda port: answers.append(act(port)))
            return bool(answers) and answers[-1] != ErrorCode.NOT_CONTROLLER

        wait_until(demand, SECONDS, what)
        if answers[-1] not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            raise LocalBrokerError(f"{what}: {answers[-1].name}")

    @property
    def _has_begun(self) -> bool:
        return self._started

    def _interceptors(self) -> Sequence[Interceptor]:
        self._check_open()
        return [broker.interceptor for broker in self._loop.brokers.values()]

    def _check_open(self) -> None:
        self._check_not_closed()
        if not self._started:
            raise LocalBrokerError("the cluster was not started: use `with`")

    def _check_not_closed(self) -> None:
        if self._closed:
            raise LocalBrokerError("the cluster was closed: its `with` block is over")


def _replicated(replicas: int) -> Mapping[str, str]:
    names = ("default.replication.factor", "offsets.topic.replication.factor")
    return dict.fromkeys((*names, "transaction.state.log.replication.factor"), str(replicas)) | {
        "transaction.state.log.min.isr": str(min(replicas, 2))
    }


def _sizes(topics: object, size: int) -> Mapping[str, tuple[int, int]]:
    """Topic -> (partitions, replicas). LocalBrokerError for anything else."""
    if topics is not None and not isinstance(topics, Mapping):
        raise LocalBrokerError(f"topics: names with sizes, such as {{'orders': (6, 3)}}; not {topics!r}")
    sizes = dict(topics or {})
    for name, given in sizes.items():
        is_pair = isinstance(given, tuple) and len(given) == 2 and all(map(is_number, given))
        if not isinstance(name, str) or not is_pair:
            raise LocalBrokerError(f"topics: (number of partitions, number of replicas) of {name!r}, not {given!r}")
        if given[1] > size:
            raise LocalBrokerError(f"topics: {name!r} cannot have {given[1]} replicas on {size} brokers")
    return sizes


def _controller_id(broker: ClusterBroker) -> int:
    """Whom a broker takes for the controller. On the loop."""
    return broker.parts.metadata.controller_id


def _one_of(group: str | None, transactional_id: str | None) -> tuple[str, int]:
    """What is coordinated, and its kind. LocalBrokerError unless exactly one is given."""
    if group is not None and transactional_id is None:
        return group, GROUP
    if transactional_id is not None and group is None:
        return transactional_id, TRANSACTION
    raise LocalBrokerError("either a group or a transactional_id has a coordinator")
