"""Samples of connections, of the event loop and of the process."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from barnabas import __version__
from barnabas.broker.call import Broker
from barnabas.broker.tally import ListenerTally, OpenConnections
from barnabas.console.process_facts import ProcessFacts
from barnabas.console.samples import Samples, labels_of
from barnabas.replication.fetcher import Fetcher
from barnabas.world.pacing import paced
from barnabas.world.tally import RecentRate

NANOSECONDS = 1_000_000_000
PROCESSOR = "0"  # Kafka's number of a network thread: there is one event loop
UNKNOWN_SOFTWARE = ("unknown", "unknown")  # Kafka's words for a client that has not said
STEP_WINDOW_SECONDS = 60.0
# The requests that wait in Kafka's purgatories, by API key.
DELAYED_OPERATIONS = {
    **{1: "Fetch", 11: "Rebalance", 14: "Rebalance", 19: "topic", 20: "topic"},
    **{21: "DeleteRecords", 37: "topic", 43: "ElectLeader"},
}


class Rates:
    """How fast the counters of connections, fetchers and the event loop have grown, from scrape to scrape."""

    def __init__(self, now: float, busy_seconds: float) -> None:
        self.began = now
        self.busy_before = busy_seconds  # of the loop's thread, when this began
        self._busy = RecentRate(now, busy_seconds)
        self._accepted: dict[str, RecentRate] = {}
        self._closed: dict[str, RecentRate] = {}
        self._fetches: dict[Fetcher, RecentRate] = {}

    def busy_share(self, now: float, busy_seconds: float) -> float:
        """The share of the last one to two minutes in which the loop's thread had the processor, 0 to 1."""
        return min(1.0, max(0.0, self._busy.per_second(now, busy_seconds)))

    def of_listener(self, name: str, counted: ListenerTally, now: float) -> tuple[float, float]:
        """(new connections a second, ended ones a second)."""
        # Connections from before the first scrape are in no rate, because the time in which they came is not known.
        accepted = self._accepted.setdefault(name, RecentRate(now, counted.accepted))
        closed = self._closed.setdefault(name, RecentRate(now, counted.closed))
        return accepted.per_second(now, counted.accepted), closed.per_second(now, counted.closed)

    def of_fetchers(self, fetchers: Iterable[Fetcher], now: float) -> list[float]:
        """Requests a second of each fetcher."""
        # A fetcher that has ended is forgotten; its successor begins at the scrape that finds it.
        self._fetches = {each: self._fetches.get(each) or RecentRate(now, each.fetches) for each in fetchers}
        return [rate.per_second(now, each.fetches) for each, rate in self._fetches.items()]


class _Seen(NamedTuple):
    """What a look at every connection has found."""

    open: Counter[str]  # by listener
    software: Counter[tuple[str, str, str]]  # name, version, listener
    waiting: Counter[str]  # requests that wait, by Kafka's name of the purgatory
    at_work: int
    sending: int


async def add_network(broker: Broker, rates: Rates, samples: Samples) -> None:
    """Connections by listener, what clients hold, and the load of the event loop."""
    now = trio.current_time()
    connections = broker.tally.connections
    seen = await _look(connections)
    for endpoint in broker.config.listener_endpoints:
        _add_listener(broker.tally.listeners[endpoint.listener], endpoint.listener, seen, rates, now, samples)

    # These show which clients would notice an upgrade, and which library an odd request comes from.
    for (name, version, listener), count in sorted(seen.software.items()):
        labels = labels_of(
            clientSoftwareName=name, clientSoftwareVersion=version, listener=listener, networkProcessor=PROCESSOR
        )
        samples.add("kafka_server_socket_server_metrics_connections_software", count, labels)

    # Kafka's queues stand between its threads. Here the requests at work count, which wait for nothing but their turn.
    samples.add("kafka_network_requestchannel_requestqueuesize", seen.at_work)
    samples.add("kafka_network_requestchannel_responsequeuesize", seen.sending)

    for operation in sorted({"Produce", *DELAYED_OPERATIONS.values()}):
        labels = labels_of(delayedOperation=operation)
        samples.add("kafka_server_delayedoperationpurgatory_purgatorysize", seen.waiting[operation], labels)

    if connections is not None:
        held_bytes = connections.held_bytes()
        samples.add("kafka_network_socketserver_memorypoolused", held_bytes)
        samples.add("kafka_network_socketserver_memorypoolavailable", max(0, connections.limit_bytes() - held_bytes))

    sessions = broker.fetch_sessions
    samples.add("kafka_server_fetchsessioncache_numincrementalfetchsessions", len(sessions))
    samples.add("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", sessions.partition_count)
    samples.add("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", sessions.evictions)
    _add_load(broker, rates, now, samples)


def _add_listener(counted: ListenerTally, name: str, seen: _Seen, rates: Rates, now: float, samples: Samples) -> None:
    # The names of the listeners are those of the configuration, so that one without a connection is
    # shown as well.
    labels = labels_of(listener=name, networkProcessor=PROCESSOR)
    created, closed = rates.of_listener(name, counted, now)
    for metric, value in (
        ("connection_count", seen.open[name]),
        ("connection_creation_rate", round(created, 6)),
        ("connection_close_rate", round(closed, 6)),
        ("connection_creation_total", counted.accepted),
        ("connection_close_total", counted.closed),
        ("successful_authentication_total", counted.logins),
        ("failed_authentication_total", counted.failed_logins),
    ):
        samples.add(f"kafka_server_socket_server_metrics_{metric}", value, labels)
    samples.add("barnabas_connections_refused_total", counted.refused, labels_of(listener=name))


async def _look(connections: OpenConnections | None) -> _Seen:
    seen = _Seen(Counter(), Counter(), Counter(), 0, 0)
    at_work = 0
    sending = 0

    # There may be tens of thousands of connections, and each look is a fraction of a microsecond.
    async for each in paced(list(connections or ())):
        seen.open[each.listener] += 1
        seen.software[*(each.software or UNKNOWN_SOFTWARE), each.listener] += 1
        if each.pipelined_count:
            seen.waiting["Produce"] += each.pipelined_count
        if each.rests and each.api_key in DELAYED_OPERATIONS:
            seen.waiting[DELAYED_OPERATIONS[each.api_key]] += 1
        at_work += each.is_at_work
        sending += each.sending
    return seen._replace(at_work=at_work, sending=sending)


def _add_load(broker: Broker, rates: Rates, now: float, samples: Samples) -> None:
    # The processor time of the thread that asks, which is the event loop's. To time its steps instead
    # would cost each of them something, and would leave out Trio's own work and the system calls.
    busy_seconds = broker.world.processor_seconds()
    idle_share = round(1.0 - rates.busy_share(now, busy_seconds), 6)
    for name in (
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    ):
        samples.add(name, idle_share)

    # This is the idle time since the first scrape, when `rates` began, not since the start of the loop.
    idle_seconds = max(0.0, (now - rates.began) - (busy_seconds - rates.busy_before))
    handlers = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
    samples.lines[handlers].append(f"{handlers}_count {int(idle_seconds * NANOSECONDS)}")

    samples.add("barnabas_loop_busy_seconds_total", round(busy_seconds, 6))

    # Only the steps that are too long are remembered, so a quiet minute shows 0.
    watchdog = broker.tally.watchdog
    if watchdog is not None:
        longest_seconds = watchdog.longest_within(STEP_WINDOW_SECONDS)
        samples.add("barnabas_loop_step_seconds_max", round(longest_seconds, 6))
        samples.add("barnabas_loop_long_steps_total", watchdog.long_steps)


async def add_process(broker: Broker, read_facts: Callable[[], ProcessFacts], samples: Samples) -> None:
    """The process, and what it runs."""
    # The descriptors are counted by a list of them, which takes milliseconds if there are many.
    facts = await broker.world.in_thread(read_facts)
    for name, value in zip(ProcessFacts._fields, facts, strict=True):
        if value is not None:
            samples.add(f"process_{name}", value)
    labels = labels_of(version=__version__, broker_id=broker.broker_id, cluster_id=broker.cluster_id)
    samples.add("barnabas_build_info", 1, labels)
