"""Time passes when a test says so, and everything that is due happens within milliseconds."""

import threading
import time
from contextlib import contextmanager

import pytest

from barnabas.testing import LocalBroker, LocalBrokerError
from barnabas.wire import messages as m
from barnabas.wire.records import TRANSACTIONAL, build_batch
from tests.testing.client import EARLIEST, TRANSACTION, Client, eventually

MOMENT_SECONDS = 2.0  # far more than it takes; far less than the time that passes for the broker
READ_COMMITTED = 1


@contextmanager
def running(**config: str):
    """A broker with a topic "t", and a client of it."""
    properties = {"connections.max.idle.ms": "-1", **{name.replace("_", "."): value for name, value in config.items()}}
    with LocalBroker(topics=["t"], config=properties) as broker, Client(broker.bootstrap_servers) as client:
        yield broker, client


def is_closed(client: Client) -> bool:
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1) == b""
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(10)


def test_a_member_that_is_silent_for_its_session_is_removed():
    with running() as (broker, client):
        client.join("g", session_timeout_ms=45_000)
        broker.clock.advance(seconds=44)
        assert client.members("g")
        broker.clock.advance(seconds=2)
        eventually(lambda: not client.members("g"), MOMENT_SECONDS)


def test_after_seven_days_old_segments_are_deleted():
    with running(log_segment_bytes="1000") as (broker, client):
        for _ in range(5):
            client.produce("t", b"x" * 900)
        broker.clock.advance(days=6, hours=23)
        assert client.offset("t", EARLIEST) == 0
        broker.clock.advance(hours=2)
        eventually(lambda: client.offset("t", EARLIEST) > 0, MOMENT_SECONDS)


def test_offsets_of_an_empty_group_expire():
    with running(offsets_retention_minutes="60") as (broker, client):
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        asked = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])

        def committed() -> int:
            found = client(m.OffsetFetchRequest(group_id="g", topics=[asked]))
            return found.topics[0].partitions[0].committed_offset

        client.find_coordinator("g")
        commit = m.OffsetCommitRequest(group_id="g", topics=[topic])
        eventually(lambda: client(commit).topics[0].partitions[0].error_code == 0)
        assert committed() == 5
        broker.clock.advance(minutes=50)
        assert committed() == 5
        broker.clock.advance(minutes=21)
        eventually(lambda: committed() == -1, MOMENT_SECONDS)


def test_a_transaction_that_takes_too_long_is_aborted():
    with running() as (broker, client):
        client.find_coordinator("x", TRANSACTION)
        init = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        producer = eventually(lambda: (found := client(init)).error_code == 0 and found)
        topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        client(
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_topics=[topic],
                **{f"v3_and_below_{name}": value for name, value in identity.items()},
            )
        )
        batch = build_batch(
            [(None, b"v")], timestamp_ms=broker.clock.now_ms(), base_sequence=0, attributes=TRANSACTIONAL, **identity
        )
        assert client.produce_batch("t", bytes(batch.data), name="x").error_code == 0
        assert client.offset("t", isolation_level=READ_COMMITTED) == 0
        broker.clock.advance(seconds=71)
        eventually(lambda: client.offset("t", isolation_level=READ_COMMITTED) == 2, MOMENT_SECONDS)


def test_idle_connections_are_closed():
    with running(connections_max_idle_ms="600000") as (broker, client):
        client.offset("t")
        broker.clock.advance(minutes=9)
        assert not is_closed(client)
        broker.clock.advance(minutes=2)
        eventually(lambda: is_closed(client), MOMENT_SECONDS)


def test_a_long_poll_ends_with_its_time():
    with running() as (broker, client):
        client.send_off(client.fetch("t", max_wait_ms=300_000))
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.response()
        client.socket.settimeout(MOMENT_SECONDS)
        broker.clock.advance(minutes=5)
        assert client.response().responses[0].partitions[0].error_code == 0


def test_time_that_stands_still_moves_only_when_it_is_advanced():
    with running() as (broker, client):
        broker.clock.stop()
        at = broker.clock.now_ms()
        client.send_off(client.fetch("t", max_wait_ms=20))
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.response()
        assert broker.clock.now_ms() == at
        client.socket.settimeout(MOMENT_SECONDS)
        broker.clock.advance(seconds=1)
        client.response()
        assert broker.clock.now_ms() == at + 1000
        broker.clock.resume()
        assert not broker.clock.is_stopped
        client.send_off(client.fetch("t", max_wait_ms=20))
        client.response()
        assert at + 1000 < broker.clock.now_ms() < at + 60_000


def test_records_have_the_time_of_the_clock():
    with running(log_message_timestamp_type="LogAppendTime") as (broker, client):
        broker.clock.advance(days=365)
        row = client.produce("t", b"a")
        assert abs(row.log_append_time_ms - (time.time() + 365 * 86_400) * 1000) < 60_000


def test_the_time_does_not_go_back_when_the_broker_is_restarted():
    with running() as (broker, _):
        broker.clock.advance(days=3)
        broker.clock.stop()
        at = broker.clock.now_ms()
        broker.restart()
        assert broker.clock.is_stopped
        assert at <= broker.clock.now_ms() < at + 60_000
        with Client(broker.bootstrap_servers) as client:
            assert client.produce("t", b"a").error_code == 0


def test_a_broker_stops_while_its_time_stands_still():
    with running() as (broker, client):
        broker.clock.stop()
        client.send_off(client.fetch("t", max_wait_ms=300_000))


def test_after_a_jump_the_loop_sleeps_as_before():
    with running() as (broker, client):
        client.join("g")
        broker.clock.advance(days=30)
        eventually(lambda: not client.members("g"))
        wakes = threading.Event()
        (thread,) = [each for each in threading.enumerate() if each.name == "barnabas broker"]
        before = processor_seconds(thread)
        wakes.wait(0.5)
        assert processor_seconds(thread) - before < 0.25


def processor_seconds(thread: threading.Thread) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


@pytest.mark.parametrize(
    "given",
    [
        {"seconds": -1},
        {"days": float("nan")},
        {"hours": float("inf")},
        {"minutes": "5"},
        {"days": 40_000},
        {"days": 10**400},
    ],
)
def test_time_goes_forward_only(given):
    with running() as (broker, _):
        at = broker.clock.now_ms()
        with pytest.raises(LocalBrokerError):
            broker.clock.advance(**given)
        assert broker.clock.now_ms() < at + 60_000


def test_a_broker_in_a_process_has_no_such_clock():
    with pytest.raises(LocalBrokerError, match="process of its own"):
        LocalBroker(process=True).clock.advance(seconds=1)


def test_the_clock_of_a_broker_that_does_not_run_moves_too():
    broker = LocalBroker()
    before = broker.clock.now_ms()
    broker.clock.advance(hours=1)
    assert broker.clock.now_ms() >= before + 3_600_000
    broker.close()


def test_many_threads_may_advance_at_the_same_time():
    with running() as (broker, _):
        at = broker.clock.now_ms()
        threads = [threading.Thread(target=broker.clock.advance, kwargs={"seconds": 100}) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert broker.clock.now_ms() >= at + 800_000
