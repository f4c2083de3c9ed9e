"""Limits that count no bytes, beside Apache Kafka 3.9.1: time of requests, topics created, connections.

Both brokers get the same at the same time. What is counted is what clients see: answers, and how long they must wait.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from barnabas.security.sasl.client import Credentials
from barnabas.testing.running.processes import cpu_seconds_of
from barnabas.wire import messages as m
from compat_tests.differential.asking import metadata, new_topic
from compat_tests.differential.asking_clusters import create, delete, more_partitions
from compat_tests.differential.sasl_brokers import OPEN, SaslBrokers
from compat_tests.differential.sasl_side import LOGIN
from compat_tests.kafka import SINGLE_BROKER
from compat_tests.raw import BROKER, RawClient, alter_config, ask
from compat_tests.secured import PASSWORD, create_scram_user, log_in
from compat_tests.security.quota_clients import set_quota

pytestmark = pytest.mark.security

MECHANISM = "SCRAM-SHA-256"
KINDS = ("kafka", "barnabas")
THROTTLING_QUOTA_EXCEEDED = 89
MUTATIONS_PER_SECOND = 4
THROTTLE_TOLERANCE_MS = 50
CONNECTIONS_PER_SECOND = 20
CONNECTING_SECONDS = 30
CONNECTING_CLIENTS = 4
STRANGER = "127.0.0.2"  # the address of clients that are limited by address
RATE_TOLERANCE = 0.1
BUSY_PERCENT = 20.0  # of one thread's time
IDLE_SECONDS, BURST_SECONDS, BUSY_SECONDS = 5, 15, 40
BUSY_TOLERANCE = 0.2
ASKED_TOPICS = 1000


class Step(NamedTuple):
    """A request, when it is sent, and in which version."""

    at_seconds: float
    request: m.Message
    version: int


class Outcome(NamedTuple):
    """The response to a request."""

    codes: list[int]
    throttle_ms: int
    answered_at_ms: float  # since the first request

    @property
    def throttled_until_ms(self) -> float:
        """When the client may go on, since the first request; 0 if it may at once."""
        return self.answered_at_ms + self.throttle_ms if self.throttle_ms else 0.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBrokers]:
    made = SaslBrokers(tmp_path_factory.mktemp("rates"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def of_both(brokers: SaslBrokers, act: Callable[[dict[str, int]], Any]) -> tuple[Any, Any]:
    """What comes of it at Kafka and at Barnabas, both at once."""
    with ThreadPoolExecutor() as threads:
        theirs, ours = threads.map(act, [brokers.ports(kind) for kind in KINDS])
    return theirs, ours


# Topics and partitions: a full bucket holds 11 seconds' worth, 44 partitions.
SPENDS_ALL = [
    Step(0.0, create(new_topic("m1", 20), new_topic("m2", 20)), 7),
    Step(0.5, create(new_topic("m3", 1), new_topic("m4", 12), new_topic("m5", 1)), 7),  # the third one is refused
    Step(1.0, delete("m1"), 6),
    Step(1.5, more_partitions("m2", 21), 3),
    Step(2.0, create(new_topic("m6", 2)), 5),  # this version is made to wait, and not refused
    Step(2.5, m.DeleteTopicsRequest(topic_names=["m3"], timeout_ms=15_000), 4),
    Step(2.75, create(new_topic("m7", 1)), 6),
    Step(6.5, create(new_topic("m8", 3)), 7),
    Step(7.0, create(new_topic("m9", 1)), 7),
]


def test_topics_are_created_and_refused_at_the_rate_of_kafka(brokers: SaslBrokers) -> None:
    user = "creator"

    def act(ports: dict[str, int]) -> list[Outcome]:
        create_scram_user(ports[OPEN], MECHANISM, user, PASSWORD)
        with RawClient(ports[OPEN]) as client:
            ask(client, create(new_topic("warm", 10)), 7)  # what a JVM does for the first time takes its time
            ask(client, delete("warm"), 6)
        set_quota(ports[OPEN], (("user", user),), "controller_mutation_rate", MUTATIONS_PER_SECOND)
        return play(ports[LOGIN], user, SPENDS_ALL)

    theirs, ours = of_both(brokers, act)
    assert [each.codes for each in ours] == [each.codes for each in theirs]
    assert any(THROTTLING_QUOTA_EXCEEDED in each.codes for each in ours)
    assert max(each.throttle_ms for each in ours) > 1000
    # The throttle time is what is left when the response leaves: a broker that takes longer to create topics says less.
    differences = [mine.throttled_until_ms - other.throttled_until_ms for mine, other in zip(ours, theirs, strict=True)]
    assert max(map(abs, differences)) <= THROTTLE_TOLERANCE_MS, (ours, theirs)


def play(port: int, user: str, steps: Sequence[Step]) -> list[Outcome]:
    """What comes of each. Each request has a connection of its own, because the one before may be held."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port)) for _ in steps]
        for client in clients:
            log_in(client, Credentials(MECHANISM, {"username": user, "password": PASSWORD}))
        began = time.monotonic()
        outcomes = []
        for client, step in zip(clients, steps, strict=True):
            time.sleep(max(0.0, began + step.at_seconds - time.monotonic()))
            answer = ask(client, step.request, step.version)
            outcomes.append(Outcome(codes_of(answer), answer.throttle_time_ms, 1000 * (time.monotonic() - began)))
        return outcomes


def codes_of(answer: Any) -> list[int]:
    rows = answer.topics if isinstance(answer, m.CreateTopicsResponse) else getattr(answer, "results", None)
    return [row.error_code for row in rows or answer.responses]


def test_a_listener_accepts_connections_at_the_rate_of_kafka(brokers: SaslBrokers) -> None:
    def act(ports: dict[str, int]) -> int:
        set_listener_rate(ports[OPEN], CONNECTIONS_PER_SECOND)
        try:
            return connect_again_and_again(ports[LOGIN], "127.0.0.1")
        finally:
            set_listener_rate(ports[OPEN], None)

    theirs, ours = of_both(brokers, act)
    assert ours == pytest.approx(theirs, rel=RATE_TOLERANCE)
    assert ours < 2 * CONNECTIONS_PER_SECOND * CONNECTING_SECONDS


def test_connections_of_an_address_are_accepted_at_the_rate_of_kafka(brokers: SaslBrokers) -> None:
    def act(ports: dict[str, int]) -> int:
        entity = (("ip", STRANGER),)
        set_quota(ports[OPEN], entity, "connection_creation_rate", CONNECTIONS_PER_SECOND)
        try:
            return connect_again_and_again(ports[LOGIN], STRANGER)
        finally:
            set_quota(ports[OPEN], entity, "connection_creation_rate", None)

    theirs, ours = of_both(brokers, act)
    assert ours == pytest.approx(theirs, rel=RATE_TOLERANCE)
    assert ours < 2 * CONNECTIONS_PER_SECOND * CONNECTING_SECONDS


def set_listener_rate(port: int, rate: int | None) -> None:
    name = f"listener.name.{LOGIN.lower()}.max.connection.creation.rate"
    with RawClient(port) as client:
        alter_config(client, BROKER, SINGLE_BROKER["broker.id"], name, None if rate is None else str(rate))


def connect_again_and_again(port: int, address: str) -> int:
    """How many connections were answered; a client opens one after the other."""

    def client(_: int) -> int:
        answered = 0
        while time.monotonic() < until:
            answered += is_answered(port, address)
        return answered

    until = time.monotonic() + CONNECTING_SECONDS
    with ThreadPoolExecutor(CONNECTING_CLIENTS) as threads:
        return sum(threads.map(client, range(CONNECTING_CLIENTS)))


def is_answered(port: int, address: str) -> bool:
    with RawClient(port, source=address) as client:
        try:
            ask(client, m.ApiVersionsRequest(client_software_name="rate", client_software_version="1"), 3)
        except (ConnectionError, TimeoutError):
            return False
        return True


def test_requests_take_their_share_of_time_and_no_more_than_with_kafka(brokers: SaslBrokers) -> None:
    """Processor time of a broker, beyond that of an idle one, while a user with a request_percentage asks and asks.

    Neither broker counts all of it: waking up for a request belongs to no request. So each request is a long one.
    """
    user = "busy"

    def limit(ports: dict[str, int]) -> None:
        create_scram_user(ports[OPEN], MECHANISM, user, PASSWORD)
        set_quota(ports[OPEN], (("user", user),), "request_percentage", BUSY_PERCENT)

    of_both(brokers, limit)
    found = {}
    for kind, process in (("kafka", brokers.kafka.pid), ("barnabas", brokers.barnabas.pid)):
        found[kind] = busy_percent(brokers.ports(kind)[LOGIN], user, process)
    assert found["barnabas"] == pytest.approx(BUSY_PERCENT, rel=BUSY_TOLERANCE), found
    assert found["barnabas"] <= found["kafka"] * (1 + BUSY_TOLERANCE), found


def busy_percent(port: int, user: str, process: int) -> float:
    """Of one thread, beyond what the idle broker takes; after the first burst."""
    ended = threading.Event()

    def client() -> None:
        with RawClient(port) as busy:
            log_in(busy, Credentials(MECHANISM, {"username": user, "password": PASSWORD}))
            while not ended.is_set():
                ask(busy, request, 9)

    request = metadata(*(f"topic-{number}" for number in range(ASKED_TOPICS)), create=False)
    idle = percent_of(process, IDLE_SECONDS)
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(client) for _ in range(2)]
        try:
            time.sleep(BURST_SECONDS)  # the credit of a client that has asked for nothing yet
            return percent_of(process, BUSY_SECONDS) - idle
        finally:
            ended.set()
            for each in running:
                each.result()


def percent_of(process: int, seconds: float) -> float:
    before = cpu_seconds_of(process)
    time.sleep(seconds)
    return (cpu_seconds_of(process) - before) / seconds * 100
