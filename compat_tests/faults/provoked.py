"""The cells of the table that can be provoked on Apache Kafka 3.9.1, which has no faults to ask for.

A proxy before each broker (`proxy.py`) harms a request on its way, or holds it back while a broker is killed (SIGKILL),
stopped (SIGSTOP), or hands its leadership over. The programs and the judge are those of `matrix.py`.

A killed broker is noticed when its session at ZooKeeper expires; deleting its node there does so at once.
"""

import json
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from kazoo.exceptions import NoNodeError

from barnabas.testing.asking import create_topic, elect_preferred, find_coordinator, prefer
from barnabas.wire import messages as m
from barnabas.wire.apis import response_header_version
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frame import read_request_header
from compat_tests.clients.client import Session
from compat_tests.faults.changes import AWAY_SECONDS, BEGIN_SECONDS
from compat_tests.faults.matrix import Cell, judged, write_and_read
from compat_tests.faults.proxy import HOST, LENGTH, Frame, Harm, Proxy, half, nothing
from compat_tests.kafka import KafkaProcess, free_port
from compat_tests.raw import RawClient, ask, eventually
from compat_tests.small_cluster import SmallCluster
from compat_tests.zookeeper_sessions import client_of

PRODUCE, FETCH, OFFSET_COMMIT, JOIN_GROUP = 0, 1, 8, 11
SLOW_SECONDS = 3.0
BATCH_LENGTH_END = 12  # of a batch; behind it comes as much as the length says
GROUP_KEY = 0


class ProxiedKafka(SmallCluster):
    """So many brokers of Apache Kafka, which clients reach through proxies, and each other directly."""

    def __init__(self, directory: pathlib.Path, count: int) -> None:
        super().__init__("kafka", directory, count, min_insync_replicas=min(count, 2))
        self.proxies: dict[int, Proxy] = {}
        self._topics = 0
        self._open = ExitStack()
        for broker, process in self.brokers.items():
            assert isinstance(process, KafkaProcess)
            process.port = free_port()
            proxy = self._open.enter_context(Proxy(process.port))
            inner = f"INNER://{HOST}:{free_port()}"
            process.settings |= {
                "listeners": f"PLAINTEXT://{HOST}:{process.port},{inner}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port},{inner}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
                "inter.broker.listener.name": "INNER",
            }
            self.proxies[broker] = proxy

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies.values())

    def close(self) -> None:
        super().close()
        self._open.close()

    def __enter__(self) -> Self:
        super().__enter__()
        # Kafka makes the topic of the groups when the first one comes.
        eventually(lambda: find_coordinator(self._any_port(), "readers", GROUP_KEY)[1], lambda code: not code)
        return self

    def arm(self, harm: Harm | None) -> None:
        """This is what comes to the next requests of clients, to any broker."""
        for proxy in self.proxies.values():
            proxy.harm = harm

    def controller_port(self) -> int:
        """Of the broker that is the controller, without its proxy."""

        def controller() -> int:
            with RawClient(self._any_port()) as client:
                return int(ask(client, m.MetadataRequest(topics=[]), 8).controller_id)

        return self.brokers[eventually(controller, lambda broker: broker in self.brokers.keys() - self.down)].port

    def fresh_topic(self) -> str:
        """A topic of one partition, with all replicas in sync."""
        self._topics += 1
        topic = f"letters-{self._topics}"
        create_topic(self.controller_port(), topic, 1, {}, len(self.brokers))
        eventually(lambda: self._partition(topic), lambda row: row and len(row.isr_nodes) == len(self.brokers))
        return topic

    def leader(self, topic: str) -> int:
        return int(eventually(lambda: self._partition(topic), bool).leader_id)

    def coordinator(self, group: str) -> int:
        return find_coordinator(self._any_port(), group, GROUP_KEY)[0]

    def await_replicas(self, topic: str) -> None:
        """Wait until all replicas have the first records: the high watermark has passed them."""
        port = self.brokers[self.leader(topic)].port
        eventually(lambda: high_watermark(port, topic), lambda offset: offset > 0)

    def kill_at_once(self, broker: int, *, is_noticed: bool) -> None:
        """SIGKILL; with `is_noticed` the others know it now, and otherwise when its session has expired."""
        self.brokers[broker].kill()
        self.proxies[broker].shut()
        self.down.add(broker)
        if is_noticed:
            self.forget(broker)

    def forget(self, broker: int) -> None:
        """End what a killed broker has in ZooKeeper."""
        # Its session may have expired.
        with client_of(self.zookeeper.bootstrap) as store, suppress(NoNodeError):
            controller = json.loads(store.get("/controller")[0])["brokerid"]
            if controller == broker:
                store.delete("/controller")
            store.delete(f"/brokers/ids/{broker}")

    def heal(self) -> None:
        """Start what was killed, and wait until its replicas are in sync."""
        self.arm(None)
        for broker in sorted(self.down):
            self.forget(broker)
            self.restart(broker)
            self.proxies[broker].open()

    def _any_port(self) -> int:
        return next(process.port for broker, process in self.brokers.items() if broker not in self.down)

    def _partition(self, topic: str) -> m.MetadataResponse.MetadataResponsePartition | None:
        """The partition as the brokers that run have it, as soon as they agree on a leader that runs."""
        seen = []
        for broker in self.brokers.keys() - self.down:
            with RawClient(self.brokers[broker].port) as client:
                rows = ask(client, m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)]), 8)
            seen += rows.topics[0].partitions or [None]
        first = seen[0]
        if first is None or any(row is None or row.leader_id != first.leader_id for row in seen):
            return None
        return None if first.error_code or first.leader_id in self.down else first


def high_watermark(port: int, topic: str) -> int:
    """Of the topic's one partition, at its leader."""
    partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    with RawClient(port) as client:
        answer = ask(client, m.ListOffsetsRequest(topics=topics), 2)
    return int(answer.topics[0].partitions[0].offset)


# -- one broker


def late(frame: Frame) -> bytes:
    """It waits."""
    time.sleep(SLOW_SECONDS)
    return frame.data


def turned_in_request(frame: Frame) -> bytes:
    """One bit of the batch of a Produce is changed."""
    data = bytearray(frame.data)
    message = memoryview(data)[LENGTH.size :]
    request = m.decode(m.ProduceRequest, frame.version, message[read_request_header(message).position :])
    request.topic_data[0].partition_data[0].records[-1] ^= 1
    return bytes(data)


def turned_in_response(frame: Frame) -> bytes:
    """One bit of the first batch of a Fetch is changed."""
    start = 2 * LENGTH.size + response_header_version(FETCH, frame.version)
    response = m.decode(m.FetchResponse, frame.version, memoryview(frame.data)[start:])
    records = bytes(response.responses[0].partitions[0].records)
    (size_bytes,) = LENGTH.unpack_from(records, BATCH_LENGTH_END - LENGTH.size)
    data = bytearray(frame.data)
    data[frame.data.index(records) + BATCH_LENGTH_END + size_bytes - 1] ^= 1
    return bytes(data)


HARMS: dict[str, Callable[[], Harm]] = {
    "acknowledgement lost": lambda: Harm(PRODUCE, response=nothing),
    "request lost": lambda: Harm(PRODUCE, request=nothing),
    "half an acknowledgement": lambda: Harm(PRODUCE, response=half),
    "corrupt on the way in": lambda: Harm(PRODUCE, request=turned_in_request),
    "slow acknowledgement": lambda: Harm(PRODUCE, response=late),
    "corrupt on the way out": lambda: Harm(FETCH, response=turned_in_response),
    "half a Fetch": lambda: Harm(FETCH, response=half),
    "commit lost": lambda: Harm(OFFSET_COMMIT, response=nothing),
}


# -- three brokers


class Held:
    """A harm that only holds a request back; or holds a response back, of a broker that is killed, and loses it."""

    def __init__(self, api_key: int, *, after: bool) -> None:
        self.has_come = threading.Event()
        self._may_go = threading.Event()
        self.harm = Harm(api_key, response=self._hold_and_lose) if after else Harm(api_key, request=self._hold)

    def go_on(self) -> None:
        self._may_go.set()

    def _hold(self, frame: Frame) -> bytes:
        self.has_come.set()
        self._may_go.wait()
        return frame.data

    def _hold_and_lose(self, frame: Frame) -> bytes:
        self._hold(frame)
        return nothing(frame)


class Provoked(NamedTuple):
    """A change, as `changes.py` has it."""

    api_key: int
    after: bool
    happen: Callable[[ProxiedKafka, str, str], None]  # with topic and group


def _kill_leader(*, is_noticed: bool) -> Callable[[ProxiedKafka, str, str], None]:
    def happen(kafka: ProxiedKafka, topic: str, group: str) -> None:
        kafka.await_replicas(topic)
        kafka.kill_at_once(kafka.leader(topic), is_noticed=is_noticed)

    return happen


def _move_leader(kafka: ProxiedKafka, topic: str, group: str) -> None:
    leader = kafka.leader(topic)
    others = sorted(kafka.brokers.keys() - {leader})
    eventually(
        lambda: prefer(kafka.controller_port(), topic, 0, [*others, leader]), lambda code: code == ErrorCode.NONE
    )
    eventually(lambda: _elect(kafka, topic), lambda moved: moved == others[0])


def _elect(kafka: ProxiedKafka, topic: str) -> int:
    elect_preferred(kafka.controller_port(), topic, 0)
    return kafka.leader(topic)


def _stop_leader(kafka: ProxiedKafka, topic: str, group: str) -> None:
    leader = kafka.leader(topic)
    kafka.pause(leader)
    threading.Timer(AWAY_SECONDS, kafka.resume, [leader]).start()


def _kill_coordinator(kafka: ProxiedKafka, topic: str, group: str) -> None:
    kafka.kill_at_once(kafka.coordinator(group), is_noticed=True)


PROVOKED: dict[str, Provoked] = {
    "leader killed": Provoked(PRODUCE, after=True, happen=_kill_leader(is_noticed=True)),
    "leader killed, unnoticed": Provoked(PRODUCE, after=True, happen=_kill_leader(is_noticed=False)),
    "leader handed over": Provoked(PRODUCE, after=False, happen=_move_leader),
    "leader frozen": Provoked(PRODUCE, after=False, happen=_stop_leader),
    "coordinator killed": Provoked(JOIN_GROUP, after=False, happen=_kill_coordinator),
}


# -- a cell


def kafka_cell(kafka: ProxiedKafka, session: Session, command: Sequence[str], name: str) -> Cell:
    """One harm or change, one program, a topic and a group of its own."""
    topic = kafka.fresh_topic()
    group = f"readers-of-{topic}"
    run = _changed if name in PROVOKED else _harmed
    return run(kafka, session, command, name, topic, group)


def _harmed(kafka: ProxiedKafka, session: Session, command: Sequence[str], name: str, topic: str, group: str) -> Cell:
    harm = HARMS[name]()
    kafka.arm(harm)
    ended = write_and_read(session, command, kafka.bootstrap, topic, group)
    kafka.arm(None)
    return judged(ended, harm.done, kafka.bootstrap, topic)


def _changed(kafka: ProxiedKafka, session: Session, command: Sequence[str], name: str, topic: str, group: str) -> Cell:
    provoked = PROVOKED[name]
    held = Held(provoked.api_key, after=provoked.after)
    kafka.arm(held.harm)

    def happen() -> None:
        if held.has_come.wait(BEGIN_SECONDS):
            provoked.happen(kafka, topic, group)
        held.go_on()

    with ThreadPoolExecutor(1) as beside:
        happening = beside.submit(happen)
        ended = write_and_read(session, command, kafka.bootstrap, topic, group)
        happening.result()
    kafka.heal()
    return judged(ended, held.harm.done, kafka.bootstrap, topic)
