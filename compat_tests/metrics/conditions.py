"""The conditions of docs/alerts.yaml, each brought about on real brokers: a `LocalCluster` of three, and a process."""

import pathlib
import shutil
import time
import uuid
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.testing.asking import ask
from barnabas.testing.cluster.cluster import LocalCluster
from barnabas.wire import messages as m
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import free_port
from compat_tests.raw import TOPIC, RawClient, alter_config, create_topic, eventually

GROUP = "clerks"
TOPICS = {"orders": (3, 3), "letters": (1, 3), "flushed": (1, 1)}
CONFIG = {
    "replica.lag.time.max.ms": "2000",
    "transaction.max.timeout.ms": "7200000",
    "connection.failed.authentication.delay.ms": "10",
}
OLD_MS = 600_000
LOGINS = 20
SLOW_SECONDS = 0.6  # of a flush; most requests wait for two. A scrape, which also uses a thread, needs less than 1 s.
SLOW_REQUESTS = 5
SLOW_CONNECTIONS = 10
DIRECTORIES = ("a", "b")


class Place:
    """A cluster that asks for logins, and a broker with two log directories."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.cluster = LocalCluster(3, topics=TOPICS, config=CONFIG, security="SASL_PLAINTEXT", http=True)
        self.process_metrics_port = free_port()
        self.open_transaction: Producer | None = None
        self.log_dirs = [directory / name for name in DIRECTORIES]
        self.process = BrokerProcess(
            directory,
            log_dirs=",".join(map(str, self.log_dirs)),
            barnabas_http_listener=f"127.0.0.1:{self.process_metrics_port}",
        )

    def __enter__(self) -> "Place":
        self.cluster.__enter__()
        try:
            self.process.start()
        except BaseException:
            self.cluster.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.cluster.close()

    @property
    def metrics_ports(self) -> list[int]:
        """Those of the cluster."""
        urls = [broker.page_url for broker in self.cluster.brokers.values()]
        return [int(url.rstrip("/").rpartition(":")[2]) for url in urls]

    def client(self, **config: object) -> dict[str, object]:
        """Settings of a client that logs in; underscores are dots."""
        return self.cluster.client_config("confluent-kafka") | {
            name.replace("_", "."): value for name, value in config.items()
        }

    def produce(self, topic: str, count: int = 1, *, value: bytes = b"to the castle", **fields: object) -> None:
        producer = Producer(self.client())
        for _ in range(count):
            producer.produce(topic, value, **fields)
        assert producer.flush(30) == 0


def under_replicated(place: Place) -> None:
    cluster = place.cluster
    victim = next(each for each in (1, 2, 3) if each != cluster.leader("orders", 0))
    leader = cluster.leader("orders", 0)
    cluster.kill(victim)
    cluster.wait_for(isr={("orders", 0): {1, 2, 3} - {victim}}, leader={("orders", 0): leader})


def offline(place: Place) -> None:
    cluster = place.cluster
    leader = cluster.leader("flushed", 0)
    cluster.kill(leader)
    # The controller itself may have died.
    eventually(
        lambda: cluster.look(lambda brokers: {each.metadata.leader_of("flushed", 0) for each in brokers.values()}),
        lambda leaders: leaders == {None},
    )


def no_controller(place: Place) -> None:
    """The controller dies, and its session outlasts it: nothing else may become the controller meanwhile."""
    place.cluster.kill(active_controller(place.cluster), failover="session")


def active_controller(cluster: LocalCluster) -> int:
    def find() -> list[int]:
        return cluster.look(lambda brokers: [key for key, each in brokers.items() if each.candidate.controller])

    return eventually(find, lambda found: len(found) == 1)[0]


def behind(place: Place) -> None:
    # The coordinator reads the leader's log at each scrape if both are one broker, and else every 5 s.
    place.cluster.move_coordinator(GROUP, to=place.cluster.leader("letters", 0))
    place.produce("letters", 3, timestamp=int(time.time() * 1000) - OLD_MS)
    commit(place, 0)


def caught_up(place: Place) -> None:
    commit(place, 3)


def commit(place: Place, offset: int) -> None:
    consumer = Consumer(place.client(group_id=GROUP))
    consumer.commit(offsets=[TopicPartition("letters", 0, offset)], asynchronous=False)
    consumer.close()


def failed_logins(place: Place) -> None:
    def failed() -> int:
        return place.cluster.look(
            lambda brokers: sum(
                counted.failed_logins for each in brokers.values() for counted in each.tally.listeners.values()
            )
        )

    stranger = Producer(place.client(sasl_password="wrong", reconnect_backoff_ms=10, reconnect_backoff_max_ms=20))
    before = failed()

    def poll() -> int:
        stranger.poll(0.05)
        return failed() - before

    eventually(poll, lambda count: count >= LOGINS)


def throttled(place: Place) -> None:
    set_quota(place, 1000.0)
    place.produce("orders", 3, value=bytes(20_000), partition=0)


def no_quota(place: Place) -> None:
    set_quota(place, None)


def set_quota(place: Place, bytes_per_second: float | None) -> None:
    """The quota of all users that have none of their own."""
    Request = m.AlterClientQuotasRequest
    operation = Request.OpData(key="producer_byte_rate", value=bytes_per_second or 0.0, remove=bytes_per_second is None)
    entry = Request.EntryData(entity=[Request.EntityData(entity_type="user", entity_name=None)], ops=[operation])
    port = place.cluster.brokers[active_controller(place.cluster)].port
    (answer,) = ask(port, Request(entries=[entry]), 0, m.AlterClientQuotasResponse).entries
    assert answer.error_code == 0, answer


def shrunk(place: Place) -> None:
    cluster = place.cluster
    leader = cluster.leader("orders", 0)
    follower = next(each for each in (1, 2, 3) if each not in (leader, active_controller(cluster)))
    # Only what the two say to each other is lost: the follower keeps its session, and falls behind.
    cluster.cut(follower, leader)
    place.produce("orders", 1, partition=0, value=b"first")
    cluster.wait_for(isr={("orders", 0): {1, 2, 3} - {follower}})


def directory_failed(place: Place) -> None:
    """A file stands where a log directory of the process was; a partition that should be made in it cannot be."""
    gone = place.log_dirs[1]
    shutil.rmtree(gone)
    gone.write_text("")
    for _ in DIRECTORIES:
        create_topic(place.process.port, f"topic-{uuid.uuid4().hex}")
    eventually(lambda: f"log directory {gone} is offline" in place.process.log_path.read_text(), bool)


def transaction_too_old(place: Place) -> None:
    producer = Producer(place.client(transactional_id="bookkeeper", transaction_timeout_ms=7_200_000))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"42 gulden", partition=0)
    producer.flush(30)
    place.open_transaction = producer
    place.cluster.clock.advance(minutes=20)


def abort(place: Place) -> None:
    try:
        place.open_transaction.abort_transaction(30)
    # Its connections have been idle for twenty minutes: once more.
    except KafkaException:
        place.open_transaction.abort_transaction(30)


def slow(place: Place) -> None:
    cluster = place.cluster
    leader = cluster.leader("flushed", 0)
    with RawClient(cluster.brokers[leader].port) as client:
        alter_config(client, TOPIC, "flushed", "flush.messages", "1")
    cluster.brokers[leader].disk.slow(SLOW_SECONDS)
    # So many requests that they are more than one in a hundred of the last minutes. A connection has five at a time.
    producers = [Producer(place.client(linger_ms=0, batch_num_messages=1)) for _ in range(SLOW_CONNECTIONS)]
    for producer in producers:
        for _ in range(SLOW_REQUESTS):
            producer.produce("flushed", b"to the castle")
    assert [producer.flush(60) for producer in producers] == [0] * SLOW_CONNECTIONS


def recover(place: Place) -> None:
    place.cluster.recover()


def nothing(place: Place) -> None:
    """What has happened stays so."""


Act = Callable[[Place], None]

# The name of a rule -> what brings its condition about in the cluster, and what ends it. Time jumps last.
CONDITIONS: Mapping[str, tuple[Act, Act]] = {
    "GroupTooFarBehind": (behind, caught_up),
    "ClientsThrottled": (throttled, no_quota),
    "FailedLogins": (failed_logins, nothing),
    "UnderReplicatedPartitions": (under_replicated, recover),
    "IsrShrinks": (shrunk, recover),
    "OfflinePartitions": (offline, recover),
    "RequestsTooSlow": (slow, recover),
    "NoController": (no_controller, recover),
    "TransactionTooOld": (transaction_too_old, abort),
}
# … of those that concern the process.
CONDITIONS_OF_PROCESS: Mapping[str, tuple[Act, Act]] = {"LogDirectoryFailed": (directory_failed, nothing)}
