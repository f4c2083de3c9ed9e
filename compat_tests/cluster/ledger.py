"""Responses to clients, as JSON lines: one event per line, written as soon as the client reports it.

    acked      a record was acknowledged with this offset; `null` if the client derived the acknowledgement from that of
               a later batch, or of a duplicate
    failed     the client reported that a record could not be delivered: the log has it once, or not at all
    read       a consumer got this record
    committed  a group member's commit was acknowledged: `offset` is the next one to read
    resumed    a new owner read the committed offset: `asked` is when, `offset` the response (-1: none committed)
    revoked    a group member lost the partition
    sent       at its end, how many records a producer has passed to its client
    fault, healed, note    what the test did, and when
    hung       the reader `member` did not end, and another one took its place

and of transactions, whose records have the transaction as their producer:

    begun      a producer with the transactional id `id` began `transaction`
    fenced     a successor of the same id was initialized while the transaction was open
    ending     EndTxn is asked for next, with `wish` commit or abort; without this event it never was. `records` are all
               that are in the transaction: topic, partition, number and the input (partition and offset) or null.
               `offsets` are those of the group, by partition of the input topic
    ended      the answer to EndTxn: `outcome` is committed, aborted, or unknown to the client

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
        self._file = path.open("a", buffering=1)  # by lines: a killed client's events are kept
        self._lock = threading.Lock()

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps({"event": kind, "time": round(time.time(), 4), **values}, separators=(",", ":"))
        with self._lock:
            self._file.write(line + "\n")

    def close(self) -> None:
        self._file.close()


def read_ledger(paths: Iterable[pathlib.Path], kinds: Iterable[str] = ()) -> list[Event]:
    """The events of these files, or those of some kinds, in the order of time; a last line that was cut short is left
    out."""
    wanted = tuple(f'{{"event":"{kind}"' for kind in kinds) or (
        "",
    )  # as `Ledger` writes them; other lines are not parsed
    return sorted((event for path in paths for event in _events_in(path, wanted)), key=lambda event: event["time"])


def _events_in(path: pathlib.Path, wanted: tuple[str, ...]) -> Iterator[Event]:
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n") and line.startswith(wanted):
            yield json.loads(line)
