"""Clients that write or read as fast as a broker lets them, each under a quota; how many bytes passed, and when."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from barnabas.security.sasl.client import Credentials
from barnabas.wire.records import build_batch, read_batch_header, walk_entries
from compat_tests.differential.asking import alter_quotas, fetch, produce_one
from compat_tests.raw import RawClient, ask, create_topic
from compat_tests.secured import PASSWORD, create_scram_user, log_in

MECHANISM = "SCRAM-SHA-256"
RATE = 500_000  # bytes a second, of every quota
BATCH_BYTES = 50_000
TOPIC_BATCHES = 40  # of the topic that is read again and again
DEADLINE_SECONDS = 60.0  # longer than a broker holds a request of a client above its quota
Entity = tuple[tuple[str, str | None], ...]  # type and name; None is the default


class Driven(NamedTuple):
    """The clients of one case; those of the same case share a quota."""

    name: str
    user: str
    client_ids: tuple[str, ...]
    entity: Entity


class Passed(NamedTuple):
    """At which second, since the first request, so many bytes have passed."""

    seconds: float
    size_bytes: int


PLAIN_CLIENT = "any client"
DRIVEN = [
    Driven("user", "of-a-user", (PLAIN_CLIENT,), (("user", "of-a-user"),)),
    Driven("client id", "of-a-client", ("a-client",), (("client-id", "a-client"),)),
    Driven("user and client id", "of-both", ("both",), (("user", "of-both"), ("client-id", "both"))),
    Driven("two clients of a user", "of-two", ("first", "second"), (("user", "of-two"),)),
    Driven("default client id", "of-a-default", ("another-client",), (("client-id", None),)),
]
# In a round of its own: it would come before quotas of client ids alone.
DRIVEN_BY_DEFAULT = [Driven("default user", "of-nothing", ("unknown",), (("user", None),))]


def alter_quota(port: int, entity: Entity, rate: float | None) -> None:
    """Set both quotas of bytes; None removes them."""
    for name in ("producer_byte_rate", "consumer_byte_rate"):
        set_quota(port, entity, name, rate)


def set_quota(port: int, entity: Entity, name: str, value: float | None) -> None:
    """None removes it."""
    with RawClient(port) as client:
        (entry,) = ask(client, alter_quotas(entity, (name, value)), 1).entries
    assert entry.error_code == 0, entry


def await_quotas(open_port: int, login_port: int, probe: str) -> None:
    """Wait until the quotas that were set act; `probe` is a user that was never used.

    A broker of Kafka answers before it has heard of the change from ZooKeeper. It hears of changes one after the other,
    so the quota of the probe acts last.
    """
    create_scram_user(open_port, MECHANISM, probe, PASSWORD)
    create_topic(open_port, probe)
    set_quota(open_port, (("user", probe),), "producer_byte_rate", 1)
    with RawClient(login_port, timeout=DEADLINE_SECONDS) as client:
        log_in(client, Credentials(MECHANISM, {"username": probe, "password": PASSWORD}))
        while not ask(client, produce_one(probe, batch(), acks=1), 9).throttle_time_ms:
            pass


def prepare(open_port: int, driven: Sequence[Driven]) -> None:
    """Users, a topic to read, and one for each that writes; before the quotas."""
    create_topic(open_port, "read")
    with RawClient(open_port) as client:
        for _ in range(TOPIC_BATCHES):
            row = ask(client, produce_one("read", batch(), acks=1), 9).responses[0].partition_responses[0]
            assert row.error_code == 0, row
    for each in driven:
        create_scram_user(open_port, MECHANISM, each.user, PASSWORD)
        create_topic(open_port, topic_of(each))


def drive(port: int, driven: Sequence[Driven], seconds: float) -> dict[tuple[str, str], list[Passed]]:
    """What passed in each case, written and read; all run at once."""
    found: dict[tuple[str, str], list[Passed]] = {}
    with ThreadPoolExecutor(max_workers=4 * len(driven)) as threads:
        running = [
            ((each.name, kind), threads.submit(act, port, each, client_id, seconds))
            for each in driven
            for client_id in each.client_ids
            for kind, act in ACTS.items()
        ]
        for key, future in running:
            found.setdefault(key, []).extend(future.result())
    return {key: sorted(series) for key, series in found.items()}


def write(port: int, driven: Driven, client_id: str, seconds: float) -> list[Passed]:
    data, topic = batch(), topic_of(driven)

    def once(client: RawClient) -> int:
        row = ask(client, produce_one(topic, data, acks=1), 9).responses[0].partition_responses[0]
        assert row.error_code == 0, row
        return len(data)

    return _repeated(port, driven.user, client_id, seconds, once)


def read(port: int, driven: Driven, client_id: str, seconds: float) -> list[Passed]:
    offset = 0

    def once(client: RawClient) -> int:
        nonlocal offset
        start = [("read", [(0, offset)])]
        request = fetch(start, wait_ms=500, max_bytes=BATCH_BYTES, partition_bytes=BATCH_BYTES)
        found = ask(client, request, 11).responses
        records = bytes(found[0].partitions[0].records or b"") if found else b""
        for position, _ in walk_entries(records):
            offset = read_batch_header(records, position).last_offset + 1
        offset %= TOPIC_BATCHES
        return len(records)

    return _repeated(port, driven.user, client_id, seconds, once)


ACTS = {"written": write, "read": read}


def _repeated(port: int, user: str, client_id: str, seconds: float, once: Callable[[RawClient], int]) -> list[Passed]:
    passed = []
    with RawClient(port, timeout=DEADLINE_SECONDS) as client:
        client.in_flight.client_id = client_id
        log_in(client, Credentials(MECHANISM, {"username": user, "password": PASSWORD}))
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            size_bytes = once(client)
            passed.append(Passed(time.monotonic() - began, size_bytes))
    return passed


def batch() -> bytes:
    """One record, so that an offset is a batch."""
    return bytes(build_batch([(None, bytes(BATCH_BYTES - 100))], timestamp_ms=int(time.time() * 1000)).data)


def topic_of(driven: Driven) -> str:
    return f"written-{driven.user}"


def bytes_until(series: Sequence[Passed], seconds: float) -> int:
    return sum(each.size_bytes for each in series if each.seconds <= seconds)
