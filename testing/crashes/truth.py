"""The records that were written, those that are guaranteed, and the check of a log after a start (pure).

A start may follow one of three ends, each with its guarantee:

    POWER    the machine lost power: the log has everything below the recovery point
    PROCESS  the process was killed at any point: the log has everything that was appended
    STOP     clean stop: the same

In a compacted log "everything" is the last committed value of each key, and a key whose tombstone is guaranteed never
has an older value again. Records that were never written, or were truncated, are never there.

A record of a transaction counts as committed if a COMMIT marker of its producer follows. A marker is a record, too: as
long as there is data of its transaction, it is there.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from barnabas.wire.records import COMMIT
from barnabas.wire.sentinels import NO_PRODUCER_ID


class End(Enum):
    """How the life of a broker before a start ended."""

    POWER = "power failure"
    PROCESS = "end of the process"
    STOP = "stop"


class Written(NamedTuple):
    """A record of the log."""

    key: bytes | None
    value: bytes | None
    epoch: int
    producer_id: int = NO_PRODUCER_ID  # of a transaction's records, and its marker's
    outcome: int | None = None  # of a marker: ABORT or COMMIT


class Found(NamedTuple):
    """A log as a start found it."""

    records: list[tuple[int, Written]]  # with their offsets, as they lie in the log
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: list[tuple[int, int]]


class Violated(Exception):
    """A promise was broken."""


class Truth:
    """The log as it should be."""

    def __init__(self, *, is_compacted: bool, has_retention: bool) -> None:
        self._is_compacted = is_compacted
        self._has_retention = has_retention
        self.records: dict[int, Written] = {}
        self.possible: dict[int, list[Written]] = {}  # under way to the log, or on their way out of it
        self.log_start_offset = 0  # as the broker had it last
        self._epochs_from = 0  # the largest log start that there ever was
        self.promised_start = 0  # clients were answered that earlier records are deleted
        self.log_end_offset = 0
        self.durable_offset = 0
        self.cut_offset: int | None = None  # a truncation to there is under way
        self.high_watermark = 0

    def append(self, offset: int, written: Iterable[Written]) -> None:
        """These records are about to be appended here."""
        for at, record in enumerate(written, offset):
            self.possible.setdefault(at, []).append(record)

    def appended(self, offset: int, written: Iterable[Written], *, has_failed: bool) -> None:
        """The append ended."""
        for at, record in enumerate(written, offset):
            self.possible[at].remove(record)
            if not has_failed:
                self.records[at] = record
                self.log_end_offset = at + 1

    def begin_cut(self, offset: int) -> None:
        """Everything from `offset` on is being cut off; nothing is promised of it any more."""
        self.cut_offset = offset
        self.durable_offset = min(self.durable_offset, offset)

    def end_cut(self) -> None:
        """It is gone for ever."""
        cut_offset = self.log_end_offset if self.cut_offset is None else self.cut_offset
        for offset in [offset for offset in self.records if offset >= cut_offset]:
            del self.records[offset]
        self.log_end_offset = cut_offset
        self.cut_offset = None

    # -- a start

    def check(self, found: Found, end: End) -> None:
        """Violated unless this log keeps the promises."""
        offsets = [offset for offset, _ in found.records]
        if offsets != sorted(set(offsets)):
            raise Violated(f"offsets do not rise: {offsets}")
        for offset, record in found.records:
            if record != self.records.get(offset) and record not in self.possible.get(offset, ()):
                raise Violated(f"{record} at {offset} was never written, or cut off; {self.records.get(offset)} was")
        if found.log_start_offset < self.promised_start:
            raise Violated(f"the log starts at {found.log_start_offset}, but {self.promised_start} was promised")
        self._check_epochs(found)
        bound = self.durable_offset if end is End.POWER else self.log_end_offset
        if self.cut_offset is not None:
            bound = min(bound, self.cut_offset)
        self._check_presence(found, bound, end)

    def _check_presence(self, found: Found, bound: int, end: End) -> None:
        low = self.log_start_offset
        if self._has_retention and found.log_start_offset <= self.high_watermark:
            low = max(low, found.log_start_offset)  # segments that were being deleted
        promised = {offset: record for offset, record in self.records.items() if low <= offset < bound}
        there = dict(found.records)
        if promised and found.log_end_offset < bound:
            raise Violated(f"after a {end.value} the log ends at {found.log_end_offset}, before {bound}")
        if self._is_compacted:
            self._check_keys(promised, there, end)
        elif lost := [offset for offset in promised if offset not in there]:
            raise Violated(f"after a {end.value} {lost} are lost, of {low} to {bound}")

    def _check_keys(self, promised: Mapping[int, Written], there: Mapping[int, Written], end: End) -> None:
        outcomes = outcomes_of(promised)
        found_outcomes = outcomes_of(there)

        # As long as a record of a transaction is there, so is the transaction's outcome.
        for offset, outcome in outcomes.items():
            if offset in there and found_outcomes.get(offset) != outcome:
                raise Violated(f"after a {end.value} the marker of {promised[offset]} at {offset} is lost")
        newest = {promised[offset].key: offset for offset in sorted(promised) if is_visible(promised, outcomes, offset)}
        last = {there[offset].key: offset for offset in sorted(there) if is_visible(there, found_outcomes, offset)}
        for key, offset in newest.items():
            at = last.get(key, -1)
            if at >= offset:
                continue
            if promised[offset].value is not None:
                raise Violated(f"after a {end.value} {key!r} of {offset} is lost; the last one is at {at}")
            if at >= 0 and there[at].value is not None:
                raise Violated(f"after a {end.value} {key!r} of {at} is back, which {offset} had deleted")

    def _check_epochs(self, found: Found) -> None:
        # Epochs are forgotten with their records. If a crash comes before the checkpoint of the log
        # start, records come back without their epochs, as in Kafka.
        self._epochs_from = max(self._epochs_from, self.log_start_offset)
        for offset, record in found.records:
            if offset >= max(found.log_start_offset, self._epochs_from):
                epoch = max((epoch for epoch, start in found.epochs if start <= offset), default=None)
                if epoch != record.epoch:
                    raise Violated(f"{offset} has epoch {record.epoch}, but the log says {found.epochs}")

    def settle(self, found: Found) -> None:
        """From now on the log is what was found."""
        self.records = dict(found.records)
        self.possible = {}
        self.cut_offset = None
        self.log_start_offset = found.log_start_offset
        self.log_end_offset = found.log_end_offset
        self.durable_offset = found.recovery_point
        self.high_watermark = min(self.high_watermark, found.log_end_offset)


def outcomes_of(records: Mapping[int, Written]) -> dict[int, int]:
    """Offset -> ABORT or COMMIT, of the records whose transaction has ended."""
    outcomes: dict[int, int] = {}
    open_records: dict[int, list[int]] = {}
    for offset in sorted(records):
        record = records[offset]
        if record.outcome is not None:
            outcomes |= dict.fromkeys(open_records.pop(record.producer_id, ()), record.outcome)
        elif record.producer_id != NO_PRODUCER_ID:
            open_records.setdefault(record.producer_id, []).append(offset)
    return outcomes


def is_visible(records: Mapping[int, Written], outcomes: Mapping[int, int], offset: int) -> bool:
    """Whether a read_committed consumer sees this record."""
    record = records[offset]
    if record.outcome is not None:
        return False
    return record.producer_id == NO_PRODUCER_ID or outcomes.get(offset) == COMMIT
