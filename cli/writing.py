"""`barnabas produce`, after its options are read: lines to records of one or several topics (edge).

Records are sent when a batch is full, and when no line came for a moment. What was read is written before the command
ends, also after a bad line, after a failure of another topic, and after a signal.
"""

import signal
import time
from collections.abc import Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import IO, NamedTuple

import click
import trio

from barnabas.cli.beside import beside, end_by
from barnabas.cli.line_input import LineInput
from barnabas.cli.record_lines import Line, from_json
from barnabas.client.cluster import METADATA_SECONDS, NEW_LEADER_SECONDS, Cluster
from barnabas.client.errors import ClientError, Refused, Unreachable
from barnabas.client.writing import RecordRefused, Writer
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode

HELD_BYTES_MAX = 16 << 20  # of all topics together, before they are sent
HELD_SECONDS_MAX = 1.0  # where lines never pause
FAREWELL_SECONDS = 10.0  # after a signal, to write what was read


class Given(NamedTuple):
    """What the command line says of all records."""

    topic: str | None
    key: bytes | None
    key_separator: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    to_header: str | None
    is_json: bool
    is_tombstone: bool
    acks: int
    codec: str


class Topics:
    """The topics that are written to, each with its writer, and what they have in memory together."""

    def __init__(self, cluster: Cluster, given: Given) -> None:
        self.writers: dict[str, Writer] = {}
        self._cluster = cluster
        self._acks = given.acks
        self._codec = Codec[given.codec.upper()]
        self._held_bytes = 0
        self._refresh_at = trio.current_time() + METADATA_SECONDS

    async def writer(self, name: str) -> Writer:
        """The writer of a topic. ClientError if there is none; Unreachable."""
        if name not in self.writers:
            count = len((await self._topic(name)).partitions)
            self.writers[name] = Writer(self._cluster, name, count, acks=self._acks, codec=self._codec)
        return self.writers[name]

    async def _topic(self, name: str) -> m.MetadataResponse.MetadataResponseTopic:
        try:
            return (await self._cluster.topics([name], leader_seconds=NEW_LEADER_SECONDS))[name]
        except Refused as refused:
            if refused.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise ClientError(f"{refused}; to create it: `barnabas topics create {name}`") from None

    async def refresh(self, names: Iterable[str]) -> None:
        """Look for new partitions. ClientError for a topic that is gone; Unreachable."""
        for name, topic in (await self._cluster.topics(names, leader_seconds=0)).items():
            # A topic only grows, and a broker may hear of it late.
            self.writers[name].partition_count = max(self.writers[name].partition_count, len(topic.partitions))

    async def refresh_in_time(self) -> None:
        """Look for new partitions of all topics if that was long ago."""
        if trio.current_time() < self._refresh_at:
            return

        self._refresh_at = trio.current_time() + METADATA_SECONDS
        # What is wrong with a topic is said when it is written to.
        with suppress(ClientError):
            await self.refresh(self.writers)

    async def hold(self, size_bytes: int) -> None:
        """Count what a writer has taken: many topics with a little each are sent before they are too much."""
        self._held_bytes += size_bytes
        if self._held_bytes >= HELD_BYTES_MAX:
            await self.flush()

    async def flush(self, failure: ClientError | None = None) -> None:
        """Send everything. The first failure, which may be an earlier one, is raised when all topics had their turn."""
        self._held_bytes = 0
        with trio.CancelScope() as scope:
            for writer in self.writers.values():
                # A cluster that is away would be waited for once for each topic.
                if isinstance(failure, Unreachable):
                    scope.deadline = min(scope.deadline, trio.current_time() + self._cluster.timeout_seconds)
                try:
                    await writer.flush()
                except ClientError as error:
                    failure = failure or error
        if failure is not None:
            raise failure


class _Session:
    """One run of the command."""

    def __init__(self, cluster: Cluster, given: Given, file: IO[bytes]) -> None:
        self.signal_number: int | None = None
        self._given = given
        self._topics = Topics(cluster, given)
        self._input = LineInput(file)

    async def run(self) -> None:
        """Write all lines, or those that came before a signal. ClientError."""
        # A misspelled name is said before anything is read.
        if self._given.topic is not None:
            await self._topics.writer(self._given.topic)
        try:
            await beside(self._await_signal, partial(beside, self._input.read, self._write))
        finally:
            self._say_counts()

    async def _await_signal(self, scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                # The second signal of an impatient person ends the command at once.
                if self.signal_number is not None:
                    scope.cancel()
                self.signal_number = number
                self._input.stop()
                scope.deadline = trio.current_time() + FAREWELL_SECONDS

    def _say_counts(self) -> None:
        for name, writer in self._topics.writers.items():
            left = writer.taken - writer.written
            also = f", {left} are not acknowledged" if left else ""
            click.echo(f"{writer.written} records written to {name}{also}", err=True)
        if self.signal_number is not None and self._input.unfinished_bytes:
            click.echo("barnabas: the end of the last line had not come: it is left out", err=True)

    async def _write(self) -> None:
        failure: ClientError | None = None
        try:
            if self._given.is_tombstone:
                await self._add(0, Line(self._given.key, None))
            else:
                await self._take_lines()
        except ClientError as error:
            failure = error
        try:
            await self._topics.flush(failure)
        except RecordRefused as refused:
            about = f"line {refused.number}: " if refused.number else ""
            raise ClientError(f"{about}{refused}") from None

    async def _take_lines(self) -> None:
        number = 0
        flushed_at = trio.current_time()
        async with aclosing(self._input.groups()) as groups:
            async for lines in groups:
                if lines:
                    await self._topics.refresh_in_time()
                for text in lines:
                    number += 1
                    await self._take(number, text)
                if not lines or trio.current_time() >= flushed_at + HELD_SECONDS_MAX:
                    await self._topics.flush()
                    flushed_at = trio.current_time()

    async def _take(self, number: int, text: bytes) -> None:
        """Make a line a record. ClientError names the line."""
        given = self._given
        if given.is_json:
            # An editor may leave an empty line at the end of a file.
            if not text.strip():
                return
            try:
                line = from_json(text.decode())
            except ValueError as error:
                raise ClientError(f"line {number}: {error}") from None
            # What the command line says holds for each record, also for those of JSON that have a key.
            await self._add(number, line if given.key is None else line._replace(key=given.key))
        elif given.key_separator is not None:
            first, found, rest = text.partition(given.key_separator)
            if not found:
                raise ClientError(f"line {number} has no key separator {given.key_separator.decode()!r}")
            await self._add(number, Line(first, rest))
        else:
            await self._add(number, Line(given.key, text))

    async def _add(self, number: int, line: Line) -> None:
        """Give one record to the writer of its topic."""
        given = self._given
        topic = given.topic if given.to_header is None else self._topic_of(number, line, given.to_header)
        assert topic is not None
        try:
            writer = await self._topics.writer(topic)
        # This line is not to blame.
        except Unreachable:
            raise
        except ClientError as error:
            raise ClientError(f"line {number}: {error}") from None
        where = line.partition if given.partition is None else given.partition
        # The record had this partition in the other topic.
        if given.to_header is not None:
            where = None
        if where is not None and where >= writer.partition_count:
            await self._topics.refresh([topic])

        count = writer.partition_count
        if where is not None and not 0 <= where < count:
            about = f"line {number}: " if given.partition is None else ""
            raise ClientError(f"{about}topic {topic!r} has the partitions 0 to {count - 1}, and no partition {where}")
        at_ms = time.time_ns() // 1_000_000 if line.timestamp_ms is None else line.timestamp_ms
        await writer.add(line.key, line.value, [*given.headers, *line.headers], at_ms, where, number=number)
        await self._topics.hold(len(line.key or b"") + len(line.value or b""))

    def _topic_of(self, number: int, line: Line, header: str) -> str:
        """The topic that a header of the record names, or that of the command line."""
        named = dict(line.headers).get(header)
        if named is None:
            if self._given.topic is None:
                raise ClientError(f"line {number}: the record has no header {header!r}, and no TOPIC is given")
            return self._given.topic
        try:
            return named.decode()
        except UnicodeDecodeError:
            raise ClientError(f"line {number}: the header names no topic: {named!r}") from None


async def write_lines(cluster: Cluster, given: Given, file: IO[bytes]) -> None:
    """Write the lines of a file. After a signal the program ends with the status of that signal. ClientError."""
    session = _Session(cluster, given, file)
    await session.run()
    end_by(session.signal_number)
