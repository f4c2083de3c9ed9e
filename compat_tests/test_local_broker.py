"""`LocalBroker`: a broker on a thread or in a process, in memory or in a directory, as users' tests use it."""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing import LocalBroker, LocalBrokerError

POLL_SECONDS = 20.0


def produce(broker: LocalBroker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(POLL_SECONDS) == 0


def consume(broker: LocalBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, POLL_SECONDS)
    consumer.close()
    return [message.value() for message in messages]


KINDS = {
    "memory": {},
    "directory": {"data_dir": True},
    "process": {"process": True},
    "process on a directory": {"data_dir": True, "process": True},
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def options(request, tmp_path):
    """What makes each kind of LocalBroker."""
    return request.param | ({"data_dir": tmp_path / "data"} if "data_dir" in request.param else {})


@pytest.fixture
def broker(options) -> Iterator[LocalBroker]:
    with LocalBroker(**options, topics=["letters"]) as broker:
        yield broker


def test_clients_produce_and_consume(broker):
    produce(broker, "letters", b"a", b"b")
    assert consume(broker, "letters", 2) == [b"a", b"b"]


def test_a_killed_broker_comes_back_on_its_port_with_what_was_acknowledged(broker):
    produce(broker, "letters", b"a", b"b")
    before = broker.bootstrap_servers
    broker.kill()
    assert not broker.is_running
    broker.restart()
    assert broker.bootstrap_servers == before
    assert consume(broker, "letters", 2) == [b"a", b"b"]


def test_a_restart_keeps_topics_and_records(broker):
    broker.create_topic("more", partitions=3)
    produce(broker, "letters", b"a")
    broker.restart()
    assert consume(broker, "letters", 1) == [b"a"]
    with pytest.raises(LocalBrokerError, match=r"topic 'more' cannot be created: TOPIC_ALREADY_EXISTS \(Topic 'more'"):
        broker.create_topic("more")


def test_a_killed_broker_has_closed_nothing(tmp_path):
    with LocalBroker(data_dir=tmp_path, topics=["letters"]) as broker:
        produce(broker, "letters", b"a")
        broker.kill()
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        broker.restart()
        broker.stop()
        assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_data_in_a_directory_outlive_the_broker(tmp_path):
    with LocalBroker(data_dir=tmp_path, topics=["letters"]) as broker:
        produce(broker, "letters", b"a")
    with LocalBroker(data_dir=tmp_path, topics={"letters": 1, "more": 2}) as broker:
        assert consume(broker, "letters", 1) == [b"a"]


def test_topics_have_the_partitions_and_properties_that_were_asked_for():
    with LocalBroker(topics={"wide": 5}) as broker:
        broker.create_topic("narrow", config={"cleanup.policy": "delete", "retention.ms": "1000"})
        with pytest.raises(LocalBrokerError, match="INVALID_CONFIG"):
            broker.create_topic("wrong", config={"retention.ms": "soon"})
        metadata = Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=POLL_SECONDS)
        assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {"wide": 5, "narrow": 1}


def test_properties_reach_the_broker():
    with LocalBroker(config={"num.partitions": "4", "broker.id": "7"}) as broker:
        produce(broker, "made-by-producing", b"a")
        metadata = Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=POLL_SECONDS)
        assert list(metadata.brokers) == [7]
        assert len(metadata.topics["made-by-producing"].partitions) == 4


def test_several_brokers_live_side_by_side():
    with LocalBroker(topics=["t"]) as one, LocalBroker(topics=["t"]) as other:
        produce(one, "t", b"one")
        produce(other, "t", b"other")
        assert consume(one, "t", 1) == [b"one"]
        assert consume(other, "t", 1) == [b"other"]


async def test_a_broker_starts_inside_a_trio_test():
    with LocalBroker(topics=["t"]) as broker:
        await trio.to_thread.run_sync(produce, broker, "t", b"a")


def test_a_broker_starts_inside_an_asyncio_program():
    async def main() -> None:
        with LocalBroker(topics=["t"]) as broker:
            await asyncio.to_thread(produce, broker, "t", b"a")

    asyncio.run(main())


# -- what goes wrong, and how it is said


@pytest.mark.parametrize("process", [False, True])
def test_a_malformed_property_is_an_error_that_names_it(process):
    with pytest.raises(LocalBrokerError, match=r"num\.partitions"):
        LocalBroker(config={"num.partitions": "many"}, process=process).start()


@pytest.mark.parametrize("process", [False, True])
def test_a_directory_in_use_is_an_error_that_says_so(tmp_path, process):
    with LocalBroker(data_dir=tmp_path), pytest.raises(LocalBrokerError, match="is used by another"):
        LocalBroker(data_dir=tmp_path, process=process).start()


def test_a_port_that_was_taken_meanwhile_is_an_error_that_says_so():
    with LocalBroker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        broker.stop()
        with (
            socket.create_server((host, int(port))),
            pytest.raises(LocalBrokerError, match=f"cannot listen on .*{port}"),
        ):
            broker.restart()
        broker.restart()


def test_a_broker_is_used_only_while_it_runs():
    broker = LocalBroker()
    with pytest.raises(LocalBrokerError, match="not started"):
        broker.bootstrap_servers  # noqa: B018
    with broker:
        broker.stop()
        broker.stop()
        with pytest.raises(LocalBrokerError, match="stopped: restart it"):
            broker.create_topic("t")
        with pytest.raises(LocalBrokerError, match="stopped: restart it"):
            broker.kill()
        broker.restart()
        with pytest.raises(LocalBrokerError, match="runs already"):
            broker.start()
    for use in (broker.start, broker.restart, broker.kill, lambda: broker.create_topic("t")):
        with pytest.raises(LocalBrokerError, match="closed"):
            use()


def test_what_the_broker_sets_itself_cannot_be_configured():
    with pytest.raises(LocalBrokerError, match=r"log\.dirs: LocalBroker sets this itself"):
        LocalBroker(config={"log.dirs": "/elsewhere"})


def test_a_topic_that_cannot_be_made_ends_the_start():
    broker = LocalBroker(topics=["no/such name"])
    with pytest.raises(LocalBrokerError, match="INVALID_TOPIC_EXCEPTION"), broker:
        pass
    assert not broker.is_running


def test_a_property_without_effect_is_warned_about(caplog):
    with caplog.at_level(logging.WARNING), LocalBroker(config={"num.io.threads": "16"}):
        pass
    assert "num.io.threads has no effect" in caplog.text


@pytest.mark.parametrize("process", [False, True])
def test_a_misspelled_property_is_an_error_with_the_nearest_name(process):
    with pytest.raises(
        LocalBrokerError, match=r"num\.partition is not a known property; did you mean num\.partitions\?"
    ):
        LocalBroker(config={"num.partition": "3"}, process=process)
    with pytest.raises(LocalBrokerError, match=r"cleanup\.policy is a property of topics; .* log\.cleanup\.policy"):
        LocalBroker(config={"cleanup.policy": "compact"}, process=process)


# -- what it leaves behind


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_nothing_is_left_behind(options):
    LocalBroker(**options).start().close()  # what is opened once for all, like the byte code of a first import
    threads, descriptors = set(threading.enumerate()), sorted(os.listdir("/proc/self/fd"))
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with LocalBroker(**options, topics=["t"]) as broker:
        assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        broker.kill()
        broker.restart()
    assert set(threading.enumerate()) <= threads  # an idle thread of an earlier test's Trio may have ended by itself
    assert sorted(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("value", [3, False, None])
def test_a_value_that_is_no_text_is_refused_with_its_name(value):
    with pytest.raises(LocalBrokerError, match=rf"num\.partitions: a value is text, .* not {value}"):
        LocalBroker(config={"num.partitions": value})
    with LocalBroker() as broker, pytest.raises(LocalBrokerError, match=r"retention\.ms: a value is text"):
        broker.create_topic("letters", config={"retention.ms": value})


@pytest.mark.parametrize(
    "topics",
    ["letters", b"letters", 3, [b"letters"], [("letters", 3)], [{"name": "letters"}], {"letters": "3"}, {3: 3}],
)
def test_topics_of_another_shape_are_refused_with_an_example_of_a_good_one(topics):
    with pytest.raises(LocalBrokerError) as refused:
        LocalBroker(topics=topics)
    assert "such as ['orders']" in str(refused.value)
    assert "such as {'orders': 3}" in str(refused.value)
    assert str(refused.value).endswith(f"not {topics!r}")


@pytest.mark.parametrize("topics", [["a", "b"], ("a", "b"), {"a", "b"}, iter(["a", "b", "a"]), {"a": 1, "b": 1}])
def test_names_come_in_any_collection(topics):
    with LocalBroker(topics=topics) as broker:
        for name in "ab":
            with pytest.raises(LocalBrokerError, match="TOPIC_ALREADY_EXISTS"):
                broker.create_topic(name)


@pytest.mark.parametrize("process", [False, True])
def test_a_broker_listens_on_the_port_that_was_asked_for(process):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        broker = LocalBroker(port=port, process=process)
        with pytest.raises(LocalBrokerError, match="not started"):
            broker.bootstrap_servers  # noqa: B018
        with pytest.raises(LocalBrokerError, match=f"cannot listen on .*{port}"):
            broker.start()
    with broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"


@pytest.mark.parametrize("port", [-1, 65_536, "9092", 9092.0, True, None])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(LocalBrokerError, match="port: a number from 0"):
        LocalBroker(port=port)


# -- processes that the test forks


@pytest.fixture
def fork() -> Iterator[Callable[[], None]]:
    """Fork this process; the child does nothing until the test is over."""
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)

    yield fork
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_was_forked_keeps_neither_port_nor_connections(fork):
    with LocalBroker() as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        with socket.create_connection((host, int(port)), timeout=POLL_SECONDS) as connection:
            broker.create_topic("t")  # by now that connection is accepted
            fork()
            broker.kill()
            assert connection.recv(1) == b""
        broker.restart()
        broker.create_topic("another")
