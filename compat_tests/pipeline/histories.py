"""Made-up histories of any size for the audit: ledgers, and the data directories of three replicas, with faults.

    python -m compat_tests.pipeline.histories DIRECTORY RECORDS [FAULT]...

Two producers write batches of a hundred records to four partitions in turn, in every codec; one member reads it all.
Every fault is planted where it does not touch another one:

    lost        at the offset of an acknowledged record lies, on every replica, one that was reported as failed
    doubled     an offset that was not acknowledged has a second copy of a record
    swapped     two neighbours have changed places on every replica
    flipped     one byte in one replica's segment
    phantom     a member got a record that never was there
    diverging   one replica has another value at one offset, and its checksum is right
    cut         a batch is missing on every replica, and no response reported it
"""

import json
import os
import pathlib
import sys
from collections.abc import Callable, Collection
from typing import NamedTuple, TextIO

from barnabas.wire.compression import Codec
from barnabas.wire.records import build_batch
from compat_tests.cluster.ledger import digest_of, make_value

TOPIC = "letters"
PARTITIONS = 4
REPLICAS = (1, 2, 3)
PRODUCERS = ("p0", "p1")
FAILED = "p9"  # its one record was reported as failed
BATCH_RECORDS = 100
SEGMENT_BATCHES = 2500
VALUE_BYTES = 48
START_MS = 1_790_000_000_000
RATE = 5000  # records a second, for the ledgers' times
FAULTS = {  # each with the findings that it must come to
    "lost": {"lost": 1},
    "doubled": {"duplicated": 1},
    "swapped": {"reordered": 2},
    "flipped": {"corrupt": 1},
    "phantom": {"phantom": 1},
    "diverging": {"diverging": 1},
    "cut": {"gap": 1},
}


class Who(NamedTuple):
    """A record: what its value says of itself."""

    producer: str
    sequence: int

    def value(self) -> bytes:
        return make_value(self.producer, self.sequence, VALUE_BYTES)


class History:
    """The records of the replicas, and the responses about them."""

    def __init__(self, directory: pathlib.Path, records: int, faults: Collection[str] = ()) -> None:
        assert not set(faults) - FAULTS.keys(), f"faults are {', '.join(FAULTS)}"
        assert records >= PARTITIONS * BATCH_RECORDS * 20, "too few records to plant faults apart from each other"
        self.directory = directory
        self.faults = faults
        self.batches = records // PARTITIONS // BATCH_RECORDS
        self.replicas = [directory / f"broker-{broker}" for broker in REPLICAS]
        self.moved: dict[tuple[int, int], Who] = {}  # partition, offset: what lies there instead
        self.unacknowledged: set[tuple[int, int]] = set()  # partition, offset
        self._plant_in_place()

    def place(self, share: float) -> int:
        """The first offset of the batch that lies at this share of every partition."""
        return int(self.batches * share) * BATCH_RECORDS

    def _plant_in_place(self) -> None:
        if "lost" in self.faults:
            self.moved[0, self.place(0.3) + 7] = Who(FAILED, 0)
        if "doubled" in self.faults:
            at = self.place(0.5) + 9
            self.moved[1, at] = self.sent(1, self.place(0.2) + 3)
            self.unacknowledged.add((1, at))
        if "swapped" in self.faults:
            at = self.place(0.6) + 40
            self.moved |= {(2, at): self.sent(2, at + 1), (2, at + 1): self.sent(2, at)}

    def sent(self, partition: int, offset: int) -> Who:
        """The record that was acknowledged at this offset."""
        batch, index = divmod(offset, BATCH_RECORDS)
        number = batch // len(PRODUCERS) * BATCH_RECORDS + index
        return Who(PRODUCERS[batch % len(PRODUCERS)], number * PARTITIONS + partition)

    def lying(self, partition: int, offset: int) -> Who:
        """The record that lies at this offset."""
        return self.moved.get((partition, offset)) or self.sent(partition, offset)

    def is_cut(self, partition: int, batch: int) -> bool:
        return "cut" in self.faults and partition == 3 and batch * BATCH_RECORDS == self.place(0.4)

    def write(self) -> "History":
        """Everything: the ledgers, one replica, its copies, and the faults of single replicas."""
        self.directory.mkdir(parents=True)
        names = ("p0", "p1", "p9", "c0")
        ledgers = {name: (self.directory / f"ledger-{name}.jsonl").open("w", buffering=1 << 20) for name in names}
        for partition in range(PARTITIONS):
            self._write_partition(partition, ledgers)
        ledgers[FAILED].write(_line("failed", 0.0, topic=TOPIC, partition=0, **_stamp(Who(FAILED, 0))))
        count = -(-self.batches // len(PRODUCERS)) * BATCH_RECORDS * PARTITIONS
        for name in PRODUCERS:
            ledgers[name].write(_line("sent", 0.0, producer=name, count=count, undecided=0))
        if "phantom" in self.faults:
            never = Who(PRODUCERS[0], count + 5)
            where = {"topic": TOPIC, "partition": 3, "offset": self.place(0.7) + 1}
            ledgers["c0"].write(_line("read", 1.0, member="c0", group="readers", **where, **_stamp(never)))
        for file in ledgers.values():
            file.close()
        self._finish_replicas()
        return self

    def _write_partition(self, partition: int, ledgers: dict[str, TextIO]) -> None:
        folder = self.replicas[0] / f"{TOPIC}-{partition}"
        folder.mkdir(parents=True)
        for first in range(0, self.batches, SEGMENT_BATCHES):
            with (folder / f"{first * BATCH_RECORDS:020}.log").open("wb") as segment:
                for batch in range(first, min(first + SEGMENT_BATCHES, self.batches)):
                    if not self.is_cut(partition, batch):
                        segment.write(self._write_batch(partition, batch, ledgers))

    def _write_batch(self, partition: int, batch: int, ledgers: dict[str, TextIO]) -> bytes:
        start = batch * BATCH_RECORDS
        pairs = []
        for offset in range(start, start + BATCH_RECORDS):
            sent, there = self.sent(partition, offset), self.lying(partition, offset)
            value = there.value()
            pairs.append((b"%d" % offset, value))
            time = offset * PARTITIONS / RATE
            digest = digest_of(value)
            ledgers["c0"].write(
                f'{{"event":"read","time":{time:.4f},"member":"c0","group":"readers","topic":"{TOPIC}",'
                f'"partition":{partition},"offset":{offset},"producer":"{there.producer}",'
                f'"sequence":{there.sequence},"digest":"{digest}"}}\n'
            )
            if (partition, offset) in self.unacknowledged:
                continue
            if sent != there:
                digest = digest_of(sent.value())
            ledgers[sent.producer].write(
                f'{{"event":"acked","time":{time:.4f},"offset":{offset},"topic":"{TOPIC}","partition":{partition},'
                f'"producer":"{sent.producer}","sequence":{sent.sequence},"digest":"{digest}"}}\n'
            )
        return encoded(pairs, batch)

    def _finish_replicas(self) -> None:
        end = self.batches * BATCH_RECORDS
        for replica in self.replicas:
            for source in sorted(self.replicas[0].glob("*/*.log")):
                copy = replica / source.parent.name / source.name
                if copy != source:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    os.link(source, copy)  # a fault writes a new file
            marks = "".join(f"{TOPIC} {partition} {end}\n" for partition in range(PARTITIONS))
            (replica / "replication-offset-checkpoint").write_text(f"0\n{PARTITIONS}\n{marks}")
            number = replica.name.removeprefix("broker-")
            (replica / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=made-up\n")
        if "flipped" in self.faults:
            self._rewrite(self.replicas[1], 0, self.place(0.8), flipped)
        if "diverging" in self.faults:
            self._rewrite(self.replicas[2], 1, self.place(0.9), self._with_another_value)

    def _with_another_value(self, batch: bytes) -> bytes:
        start = self.place(0.9)
        pairs = [(b"%d" % at, self.lying(1, at).value()) for at in range(start, start + BATCH_RECORDS)]
        pairs[5] = (pairs[5][0], pairs[5][1][:-1] + b"?")
        return encoded(pairs, start // BATCH_RECORDS)

    def _rewrite(self, replica: pathlib.Path, partition: int, offset: int, change: Callable[[bytes], bytes]) -> None:
        """Put a changed batch in the place of the one that begins with this offset."""
        first = offset // BATCH_RECORDS // SEGMENT_BATCHES * SEGMENT_BATCHES * BATCH_RECORDS
        path = replica / f"{TOPIC}-{partition}" / f"{first:020}.log"
        data = path.read_bytes()
        at = data.index(offset.to_bytes(8, "big"))
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        path.unlink()
        path.write_bytes(data[:at] + change(data[at:end]) + data[end:])


def encoded(pairs: list[tuple[bytes, bytes]], batch: int) -> bytes:
    """The batch of this number, as a leader wrote it."""
    built = build_batch(
        pairs,
        timestamp_ms=START_MS + batch,
        base_offset=batch * BATCH_RECORDS,
        codec=Codec(batch % 5),
        producer_id=1000 + batch % len(PRODUCERS),
        producer_epoch=0,
        base_sequence=batch // len(PRODUCERS) * BATCH_RECORDS,
        leader_epoch=0,
    )
    return bytes(built.data)


def flipped(batch: bytes) -> bytes:
    """With one bit of its records changed."""
    middle = (61 + len(batch)) // 2
    return batch[:middle] + bytes([batch[middle] ^ 0x10]) + batch[middle + 1 :]


def expected(faults: Collection[str]) -> dict[str, int]:
    """What an audit must find."""
    found: dict[str, int] = {}
    for fault in faults:
        for kind, count in FAULTS[fault].items():
            found[kind] = found.get(kind, 0) + count
    return found


def _stamp(who: Who) -> dict[str, object]:
    return {"producer": who.producer, "sequence": who.sequence, "digest": digest_of(who.value())}


def _line(event: str, time: float, **values: object) -> str:
    return json.dumps({"event": event, "time": time, **values}) + "\n"


def main() -> None:
    directory, records, *faults = sys.argv[1:]
    History(pathlib.Path(directory), int(records), faults).write()


if __name__ == "__main__":
    main()
