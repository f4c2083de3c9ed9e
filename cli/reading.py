"""Reading records and printing them, alone or as a member of a group (edge)."""

import select
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from barnabas.cli.record_lines import Form
    from barnabas.client.cluster import Cluster
    from barnabas.client.reading import Reader, Taken
    from barnabas.wire.record_reader import Record
    from barnabas.wire.topics import TopicPartition


class Wanted(NamedTuple):
    """What of a topic is read: from where, until where, how many, and whether to wait for more."""

    begin: str
    until: str | None
    count_max: int | None
    follows: bool
    partitions: Sequence[int]
    filters: Mapping[str, str]
    committed: bool

    @property
    def end(self) -> str | None:
        """The place where reading ends; None: it goes on."""
        return self.until or (None if self.follows else "latest")


class Output:
    """Prints records of one topic, as many as are wanted. `positions` is where each partition goes on."""

    def __init__(self, topic: str, wanted: Wanted, form: "Form") -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._topic = topic
        self._left = wanted.count_max
        self._filters = wanted.filters
        self._form = form

    @property
    def is_full(self) -> bool:
        """Whether enough records are printed."""
        return self._left == 0

    def lines(self, all_taken: "Sequence[Taken]") -> bytes:
        """The lines of these records; the positions go behind the last one that is printed or left out."""
        return b"".join(line for taken in all_taken for line in self._lines(taken))

    def _lines(self, taken: "Taken") -> "Iterator[bytes]":
        for record in taken.records:
            if self.is_full:
                return
            self.positions[taken.partition] = record.offset + 1
            if _matches(record.key, record.headers, self._filters):
                self._left = None if self._left is None else self._left - 1
                yield self._line(taken.partition.partition, record)
        # Behind the last record there may be markers, or what compaction has left out.
        if not self.is_full:
            self.positions[taken.partition] = taken.next_offset

    def pieces(self, taken: "Taken") -> "Iterator[tuple[bytes, int]]":
        """The lines of these records, a few whole ones at a time, each with where its partition goes on behind them."""
        key = taken.partition
        piece = b""
        behind = self.positions.get(key, -1)
        for line in self._lines(taken):
            # A pipe takes so much as a whole or not at all. A longer line comes alone.
            if piece and len(piece) + len(line) > select.PIPE_BUF:
                yield piece, behind
                piece = b""
            piece += line
            behind = self.positions[key]
        if key in self.positions:
            yield piece, self.positions[key]

    def write(self, lines: bytes) -> None:
        """Print lines, and return when the reader of the pipe can have them. BrokenPipeError."""
        # With PYTHONUNBUFFERED a write may end early, and what it has written is all that it says.
        left = memoryview(lines)
        while left:
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()

    def _line(self, partition: int, record: "Record") -> bytes:
        about = (self._topic, partition, record.offset, record.timestamp)
        return self._form(*about, record.key, record.value, record.headers)


def _matches(key: bytes | None, headers: Sequence[tuple[str, bytes | None]], filters: Mapping[str, str]) -> bool:
    return all(
        key == value.encode() if name == "key" else (name.removeprefix("header."), value.encode()) in headers
        for name, value in filters.items()
    )


async def rounds(
    cluster: "Cluster",
    positions: "Mapping[TopicPartition, int]",
    ends: "Mapping[TopicPartition, int] | None",
    *,
    committed: bool,
    topic: str | None = None,
) -> "AsyncGenerator[list[Taken], None]":
    """What is read from these positions on, up to these ends; a round without records is empty.

    Where there are ends, a person sees how far it is. Without them, new partitions of `topic` are read as well.
    """
    from barnabas.client.reading import Reader, check_positions
    from barnabas.progress import progress

    if ends is None:
        reader = Reader(cluster, positions, committed=committed)
        async with aclosing(_endless_rounds(cluster, reader, topic)) as reading:
            async for all_taken in reading:
                yield all_taken
        return

    await check_positions(cluster, {key: offset for key, offset in positions.items() if offset > ends[key]})
    left = {key: ends[key] - offset for key, offset in positions.items() if offset < ends[key]}
    reader = Reader(cluster, {key: positions[key] for key in left}, committed=committed)
    with progress("consume", sum(left.values()), " offsets", beside_output=True) as advance:
        while reader.positions:
            all_taken = [_until(taken, ends[taken.partition]) for taken in await reader.round()]
            # Behind the end no record of a partition is wanted, so its leader is not asked again.
            for taken in all_taken:
                key = taken.partition
                if taken.next_offset == ends[key]:
                    del reader.positions[key]
                before, left[key] = left[key], ends[key] - taken.next_offset
                advance(before - left[key])
            _say_lost(all_taken)
            yield all_taken


async def _endless_rounds(
    cluster: "Cluster", reader: "Reader", topic: str | None
) -> "AsyncGenerator[list[Taken], None]":
    import trio

    from barnabas.client.cluster import METADATA_SECONDS
    from barnabas.client.offsets import partitions_of

    look_at = trio.current_time() + METADATA_SECONDS
    is_late = False
    while reader.positions:
        all_taken = await reader.round()
        _say_lost(all_taken)
        if reader.late is not None and not is_late:
            click.echo(f"barnabas: {reader.late}; the other partitions are read meanwhile", err=True)
        is_late = reader.late is not None
        yield all_taken
        if topic is not None and trio.current_time() >= look_at:
            found = (await cluster.topics([topic], leader_seconds=0))[topic]
            for key in partitions_of(found):
                reader.positions.setdefault(key, 0)
            look_at = trio.current_time() + METADATA_SECONDS


def _say_lost(all_taken: "Sequence[Taken]") -> None:
    for taken in all_taken:
        if taken.lost_count:
            what = f"partition {taken.partition}: {taken.lost_count} records were deleted before they were read"
            click.echo(f"barnabas: {what}; it goes on at offset {taken.next_offset}", err=True)


def _until(taken: "Taken", end: int) -> "Taken":
    if taken.next_offset <= end:
        return taken
    return taken._replace(
        records=[record for record in taken.records if record.offset < end],
        next_offset=end,
        lost_count=max(0, taken.lost_count - (taken.next_offset - end)),
    )
