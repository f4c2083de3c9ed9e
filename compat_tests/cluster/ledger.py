"""What clients were told, as JSON lines: one event a line, written when it was told.

    acked      a producer was told that its record lies at this offset; `null` where its client was told of a later
               batch, or of a duplicate, and concluded that this one is there as well
    failed     a producer was told that its record could not be delivered: it lies there once, or not at all
    read       a consumer was handed this record
    committed  a group member was told that its commit was taken: `offset` is what will be read next
    resumed    a new owner asked for the committed offset: `asked` is when, `offset` what it was told (-1: nothing yet)
    revoked    a group member owns the partition no more
    sent       at its end, how many records a producer has handed to its client
    fault, healed, note    what the test did, and when

All carry `time`, in seconds. A record's value begins with its producer's name, a dot and its number in the order of
sending ("p0.17 ..."), and VerifiableProducer's values do so by themselves; the digest is of the whole value.
"""

import hashlib
import json
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Event = dict[str, Any]


class Stamp(NamedTuple):
    """What a value says of itself."""

    producer: str
    sequence: int
    digest: str


def make_value(producer: str, sequence: int, size_bytes: int) -> bytes:
    """A value of this size (or a little more) that tells its producer and number."""
    head = f"{producer}.{sequence} "
    filling = hashlib.sha256(head.encode()).hexdigest()
    return (head + filling * (size_bytes // len(filling) + 1))[: max(size_bytes, len(head))].encode()


def read_stamp(value: bytes) -> Stamp:
    """What this value says of itself; ValueError if it is none of ours."""
    producer, _, sequence = value.partition(b" ")[0].decode().rpartition(".")
    return Stamp(producer, int(sequence), digest_of(value))


def digest_of(value: bytes) -> str:
    return hashlib.sha1(value, usedforsecurity=False).hexdigest()[:12]


class Ledger:
    """A file of events; several threads may write, and several processes, each to a file of its own."""

    def __init__(self, path: pathlib.Path) -> None:
        self._file = path.open("a", buffering=1)  # by lines: what a killed client was told is kept
        self._lock = threading.Lock()

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps({"event": kind, "time": round(time.time(), 4), **values}, separators=(",", ":"))
        with self._lock:
            self._file.write(line + "\n")

    def close(self) -> None:
        self._file.close()


def read_ledger(paths: Iterable[pathlib.Path]) -> list[Event]:
    """The events of these files, in the order of time; a last line that was cut short is left out."""
    return sorted((event for path in paths for event in _events_in(path)), key=lambda event: event["time"])


def _events_in(path: pathlib.Path) -> Iterator[Event]:
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
