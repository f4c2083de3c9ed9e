"""What a reader got, compared with the numbers that were written (pure).

Number n is written to partition n modulo the count of partitions, in ascending order; a copier keeps the partition.
A `Finding` is a kind of broken guarantee, with its first cases:

    lost         a number was not read
    doubled      a number was read more than once
    disordered   a number was read behind a higher one of its partition
    moved        a number was read from another partition than the one that it was written to
    unknown      a value was read that was not written
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compat_tests.cluster.checker import Finding

SHOWN = 5
STATUS_AT = 2 + 8 + 2 + 4  # in a value of `__transaction_state`: behind version, producer id, epoch and timeout
PREPARE_COMMIT, PREPARE_ABORT = 2, 3


class Read(NamedTuple):
    """A record that a reader got."""

    partition: int
    offset: int
    value: bytes | None


def check(reads: Sequence[Read], numbers: int, partitions: int) -> list[Finding]:
    """All differences between what was written and these reads, which are in the order of reading."""
    found: dict[int, list[Read]] = defaultdict(list)
    unknown = []
    for read in reads:
        if read.value is not None and read.value.isdigit() and int(read.value) < numbers:
            found[int(read.value)].append(read)
        else:
            unknown.append(read)
    moved = (each for number, places in found.items() for each in places if each.partition != number % partitions)
    wrong = {
        "lost": [str(number) for number in range(numbers) if number not in found],
        "doubled": [", ".join(map(_name, places)) for _, places in sorted(found.items()) if len(places) > 1],
        "disordered": list(_disordered(reads, found)),
        "moved": [_name(read) for read in moved],
        "unknown": [_name(read) for read in unknown],
    }
    return [Finding(kind, _few(texts)) for kind, texts in wrong.items() if texts]


def count_transactions(states: Sequence[Read]) -> tuple[int, int]:
    """How many transactions were committed and aborted, by all records of `__transaction_state`."""
    statuses = Counter(read.value[STATUS_AT] for read in states if read.value is not None)
    return statuses[PREPARE_COMMIT], statuses[PREPARE_ABORT]


def _disordered(reads: Sequence[Read], known: dict[int, list[Read]]) -> Iterator[str]:
    """Each number below the highest that its partition had before."""
    number_of = {read: number for number, places in known.items() for read in places}
    highest: dict[int, int] = {}
    for read in reads:
        number = number_of.get(read)
        if number is None:
            continue
        before = highest.get(read.partition, -1)
        if number < before:
            yield f"{_name(read)} behind {before}"
        highest[read.partition] = max(before, number)


def _name(read: Read) -> str:
    return f"{read.value!r} at {read.partition}:{read.offset}"


def _few(texts: list[str]) -> str:
    """The first few, and how many there are: one broken log must not fill the report."""
    more = f"; ... {len(texts)} in all" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more
