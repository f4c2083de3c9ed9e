"""A reader of a whole topic that runs beside what is tested, on a thread of its own."""

import pathlib
import threading
import time
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from compat_tests.cluster.worker import QUICK_RETRIES
from compat_tests.copier.checker import Read

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
JOIN_SECONDS = 30.0


class Reader:
    """Reads these partitions from their first records until it is closed; `reads` is in the order of reading.

    It begins at offset 0 and never again: an offset that is out of range ends the reading, and is among the errors.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, isolation: str = READ_COMMITTED) -> None:
        self.reads: list[Read] = []
        self.errors: list[str] = []
        self.latest_at = time.monotonic()  # when something was read
        self._ends = dict.fromkeys(range(partitions), 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "log_level": 2,  # what it says of brokers that are gone by design
                **QUICK_RETRIES,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(JOIN_SECONDS)

    def what_is_unread(self, ends: Mapping[int, int]) -> list[str]:
        """The partitions that were not read to these ends."""
        return [
            f"partition {partition} was read to {self._ends[partition]} of {end}"
            for partition, end in ends.items()
            if self._ends[partition] < end
        ]

    def write(self, path: pathlib.Path) -> None:
        """Keep the reads, a line each, and the errors at the end."""
        lines = [f"{read.partition}:{read.offset} {read.value!r}" for read in self.reads]
        path.write_text("\n".join([*lines, *self.errors, ""]))

    def _read(self) -> None:
        while not self._closed.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is None:
                    self.reads.append(Read(partition, offset, message.value()))
                    self._ends[partition] = offset + 1
                    self.latest_at = time.monotonic()
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._ends[partition] = offset  # behind markers as well
                else:
                    self.errors.append(f"partition {partition}: {error}")
        self._consumer.close()
