"""A disk that fills up under load: nothing acknowledged is lost, nothing torn is served, and freed space is enough.

The disks are small tmpfs mounts, so these tests need root. A tmpfs gives out its space page by page and fails in the
middle of a write, which is what a full disk does.
"""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from compat_tests.beside import Beside
from compat_tests.brokers import BrokerProcess, run_barnabas
from compat_tests.raw import RawClient, create_topic, produce_request

MIB = 1 << 20
VALUE_BYTES = 1000
UNDER_WAY = 500  # records that wait to be acknowledged: a bound for what comes after space was freed
MountDisk = Callable[[str, int], pathlib.Path]
StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def mount_disk(tmp_path: pathlib.Path) -> Iterator[MountDisk]:
    """Mount disks by name and size in bytes; all are unmounted at the end, whatever happened."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a tmpfs")
    mounted: list[pathlib.Path] = []

    def mount(name: str, size_bytes: int) -> pathlib.Path:
        path = tmp_path / name
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "barnabas-test", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            give_up = pytest.fail if "CI" in os.environ else pytest.skip
            give_up(f"cannot mount a tmpfs: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in reversed(mounted):
        if subprocess.run(["umount", str(path)], capture_output=True, check=False).returncode:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


class Load(Beside):
    """An idempotent producer with acks=all that never stops; it notes what was acknowledged, by partition."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: list[int]) -> None:
        self.sent = 0
        super().__init__()
        self.acknowledged: dict[int, list[tuple[int, int]]] = {partition: [] for partition in partitions}
        self.failures: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "queue.buffering.max.messages": UNDER_WAY,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 0,  # that brokers die is the point
            }
        )

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def await_acknowledged(self, more: int) -> None:
        """Return when so many more records were acknowledged."""
        wanted = self.acknowledged_count + more
        wait_until(lambda: self.acknowledged_count >= wanted, f"{more} more records are acknowledged")

    def finish(self) -> None:
        """Send no more, and wait until all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert (left, self.failures) == (0, [])
        assert self.acknowledged_count == self.sent

    def _run(self) -> None:
        while not self._stop.is_set():
            partition = self._partitions[self.sent % len(self._partitions)]
            try:
                self._producer.produce(
                    self._topic, value_of(self.sent), partition=partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.01)
            else:
                self.sent += 1
                self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        self.acknowledged[message.partition()].append((message.offset(), number_of(message.value())))  # type: ignore[attr-defined]


class Reader(Beside):
    """A consumer that reads along, checksums and all, from the first record on, through every failure."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: list[int]) -> None:
        super().__init__()
        self.seen: dict[int, list[tuple[int, int]]] = {partition: [] for partition in partitions}
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "without-commits",
                "enable.auto.commit": False,
                "check.crcs": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._consumer.close()

    def await_all_of(self, load: Load) -> None:
        """Return when everything that this load got acknowledged was read, or could have been."""
        wanted = {partition: max(acknowledged)[0] for partition, acknowledged in load.acknowledged.items()}
        wait_until(
            lambda: all(self.seen[partition][-1:] >= [(last, 0)] for partition, last in wanted.items()),
            "the reader is at the end",
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    place = message.offset(), number_of(message.value())
                    self.seen[message.partition()].append(place)


def value_of(number: int) -> bytes:
    return b"%d:" % number + b"x" * VALUE_BYTES


def number_of(value: bytes) -> int:
    number, _, padding = value.partition(b":")
    assert padding == b"x" * VALUE_BYTES
    return int(number)


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


def everything(broker: BrokerProcess, topic: str, partitions: list[int]) -> dict[int, list[tuple[int, int]]]:
    """(offset, number) of every record, by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "audit", "enable.auto.commit": False, "check.crcs": True}
    )
    for partition in partitions:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, start)])
        found[partition] = []
        deadline = time.monotonic() + 60
        while len(found[partition]) < end - start and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                found[partition].append((message.offset(), number_of(message.value())))
    consumer.close()
    return found


def assert_exactly_once_in_order(found: dict[int, list[tuple[int, int]]], load: Load) -> None:
    """Acknowledged records are at the acknowledged offsets, once, in the order of sending; nothing else is there."""
    for partition, acknowledged in load.acknowledged.items():
        assert found[partition] == sorted(acknowledged)
        assert [offset for offset, _ in found[partition]] == list(range(len(acknowledged)))
        numbers = [number for _, number in found[partition]]
        assert numbers == sorted(set(numbers))


def assert_sound(directory: pathlib.Path) -> None:
    checked = run_barnabas("log", "check", str(directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_full_disk_ends_the_broker_with_one_message_and_freed_space_lets_it_go_on(
    mount_disk: MountDisk, start_broker: StartBroker, topic: str
) -> None:
    disk = mount_disk("disk", 24 * MIB)
    (disk / "ballast").write_bytes(bytes(8 * MIB))
    broker = start_broker(log_dirs=disk / "data", log_segment_bytes=4 * MIB)
    create_topic(broker.port, topic, partitions=3)

    with Load(broker, topic, [0, 1, 2]) as load, Reader(broker, topic, [0, 1, 2]) as reader:
        assert broker.wait(60) == 1, broker.log_text()
        said = [line for line in broker.log_text().splitlines() if line.startswith("barnabas: ")]
        assert len(said) == 1
        assert f"no log directory can be used: {disk / 'data'} (" in said[0]
        assert "ENOSPC" in said[0]
        assert "Traceback" not in broker.log_text()
        assert_sound(disk / "data")
        assert load.acknowledged_count * VALUE_BYTES > 10 * MIB, "it was filled by this load"

        (disk / "ballast").unlink()
        broker.restart()
        load.await_acknowledged(UNDER_WAY)
        load.finish()
        reader.await_all_of(load)

    found = everything(broker, topic, [0, 1, 2])
    assert_exactly_once_in_order(found, load)
    assert reader.seen == found, "what was served before the disk was full is what is there now"
    assert broker.stop() == 0
    assert_sound(disk / "data")


@pytest.mark.parametrize("full", ["first", "second"])
def test_of_two_log_directories_one_fills_and_the_other_goes_on(
    mount_disk: MountDisk, start_broker: StartBroker, topic: str, full: str
) -> None:
    first, second = mount_disk("first", 12 * MIB), mount_disk("second", 12 * MIB)
    small, large = (first, second) if full == "first" else (second, first)
    subprocess.run(["mount", "-o", f"remount,size={96 * MIB}", str(large)], check=True)
    (small / "ballast").write_bytes(bytes(4 * MIB))
    broker = start_broker(log_dirs=f"{first / 'data'},{second / 'data'}", log_segment_bytes=4 * MIB)
    create_topic(broker.port, topic, partitions=4)
    on_small = sorted(int(path.name.rpartition("-")[2]) for path in (small / "data").glob(f"{topic}-*"))
    on_large = sorted({0, 1, 2, 3} - set(on_small))
    assert len(on_small) == len(on_large) == 2

    with Load(broker, topic, on_small) as stopped, Reader(broker, topic, [0, 1, 2, 3]) as reader:
        wait_until(lambda: f"log directory {small / 'data'} is offline" in broker.log_text(), "the small disk is full")
        with Load(broker, topic, on_large) as unharmed:
            unharmed.await_acknowledged(5_000)
            assert produced_to(broker, topic, on_small[0]) == ErrorCode.KAFKA_STORAGE_ERROR
            unharmed.finish()
        assert broker.is_running()

        if full == "second":  # with the first, the store cannot write down that its disk is full
            wait_until(lambda: offline_partitions(broker, topic) == on_small, "Metadata shows the offline partitions")
            assert produced_to(broker, topic, on_small[0]) == ErrorCode.KAFKA_STORAGE_ERROR
        (small / "ballast").unlink()
        assert broker.stop() == 0
        broker.restart()
        stopped.await_acknowledged(UNDER_WAY)
        stopped.finish()
        reader.await_all_of(stopped)
        reader.await_all_of(unharmed)

    found = everything(broker, topic, [0, 1, 2, 3])
    assert_exactly_once_in_order(found, stopped)
    assert_exactly_once_in_order(found, unharmed)
    assert reader.seen == found
    assert "Traceback" not in broker.log_text()
    assert broker.stop() == 0
    assert_sound(small / "data")
    assert_sound(large / "data")


def produced_to(broker: BrokerProcess, topic: str, partition: int) -> int:
    """The error code that one more record is answered with."""
    batch = build_batch([(None, b"one more")], timestamp_ms=1000)
    with RawClient(broker.port) as client:
        (answered,) = client.ask(
            produce_request(topic, bytes(batch.data), partition=partition), 9, m.ProduceResponse
        ).responses
    return answered.partition_responses[0].error_code


def offline_partitions(broker: BrokerProcess, topic: str) -> list[int]:
    """The partitions of which Metadata says that they have no leader, and their replica is offline."""
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
    with RawClient(broker.port) as client:
        (found,) = client.ask(asked, 9, m.MetadataResponse).topics
    return sorted(
        row.partition_index
        for row in found.partitions
        if (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1) and row.offline_replicas
    )
