"""`barnabas consume --group`: reading as a member of a group (edge).

What is printed is committed: every few seconds, before the partitions may go to other members, and at the end, also
that by Ctrl-C. A command that is killed between print and commit leaves records that are printed once more.
"""

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import click
import trio

from barnabas.cli.beside import beside, end_by
from barnabas.cli.places import offsets_at
from barnabas.cli.reading import Output, Wanted, rounds
from barnabas.client.cluster import NEW_LEADER_SECONDS
from barnabas.client.errors import ClientError
from barnabas.client.membership import HEARTBEAT_SECONDS, Member
from barnabas.client.offsets import committed_offsets

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.client.reading import Taken
    from barnabas.wire.topics import TopicPartition

COMMIT_SECONDS = 5.0
LAST_LINE_SECONDS = 5.0  # for the rest of a line of which the pipe has a part
LOOK_SECONDS = 0.1  # how often a thread that waits for the pipe looks whether the command ends
FAREWELL_SECONDS = 10.0  # for the last commit, and to leave the group


class _Session:
    """One member, from its first join until it leaves."""

    def __init__(self, cluster: "Cluster", group: str, topic: str, wanted: Wanted, output: Output) -> None:
        self.signal_number: int | None = None
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._wanted = wanted
        self._output = output
        self._member = Member(cluster, group, [topic])
        self._first_count = 0  # of partitions
        self._printed: dict[TopicPartition, int] = {}  # what is printed, and not committed yet
        self._failure: ClientError | None = None  # of a heartbeat

    async def run(self) -> None:
        """Read until everything wanted is printed, or until a signal."""
        # A misspelled name is said before the group hears of this member.
        found = await self._cluster.topics([self._topic], leader_seconds=NEW_LEADER_SECONDS)
        self._first_count = len(found[self._topic].partitions)
        try:
            await beside(self._await_signal, self._read)
        finally:
            with trio.move_on_after(FAREWELL_SECONDS, shield=True):
                await self._end()

    async def _await_signal(self, scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                self.signal_number = number
                scope.cancel()

    async def _read(self) -> None:
        is_done = False
        while not is_done:
            partitions = await self._member.join()
            is_done = await beside(self._keep_alive, partial(self._generation, partitions)) or False
            if self._failure is not None:
                raise self._failure

    async def _keep_alive(self, scope: trio.CancelScope) -> None:
        """Send heartbeats, also while the reader of the pipe lets this command wait."""
        try:
            while not self._member.must_rejoin:
                await trio.sleep(HEARTBEAT_SECONDS)
                await self._member.heartbeat()
        except ClientError as error:
            self._failure = error
            scope.cancel()

    async def _generation(self, partitions: "list[TopicPartition]") -> bool:
        """Read these partitions as long as they belong to this member. Whether everything wanted is printed."""
        positions = await self._positions(partitions)
        ends = None
        if self._wanted.end is not None:
            ends = await offsets_at(self._cluster, partitions, self._wanted.end, committed=self._wanted.committed)
        # The others have all partitions, and one comes here when one of them leaves.
        if not partitions:
            click.echo(f"barnabas: group {self._group!r} has more members than partitions to read", err=True)
            while ends is None and not self._member.must_rejoin:
                await trio.sleep(HEARTBEAT_SECONDS / 2)
            return not self._member.must_rejoin

        commit_at = trio.current_time() + COMMIT_SECONDS
        reading = rounds(self._cluster, positions, ends, committed=self._wanted.committed)
        async with aclosing(reading):
            async for taken in reading:
                await trio.to_thread.run_sync(self._print, taken)
                if trio.current_time() >= commit_at:
                    await self._commit()
                    commit_at = trio.current_time() + COMMIT_SECONDS
                if self._output.is_full or self._member.must_rejoin:
                    break

        await self._commit()
        return self._output.is_full or not self._member.must_rejoin

    def _print(self, all_taken: "Sequence[Taken]") -> None:
        """Print these records, in a thread: the reader of the pipe may be slow, and heartbeats go on meanwhile."""
        for taken in all_taken:
            for lines, behind in self._output.pieces(taken):
                self._write(lines)
                # It is noted here, because a signal may come before the next piece is written.
                self._printed[taken.partition] = behind

    def _write(self, lines: bytes) -> None:
        """Write whole lines. Cancelled, before the first byte; after it the rest of a long line has to follow."""
        fd = sys.stdout.fileno()
        left = memoryview(lines)
        while left:
            self._await_room(fd, LAST_LINE_SECONDS if len(left) < len(lines) else 0)
            left = left[os.write(fd, left[: select.PIPE_BUF]) :]

    def _await_room(self, fd: int, seconds: float) -> None:
        """Wait until the pipe takes a piece. Cancelled, when so long has passed since the end of this command began."""
        while True:
            _, ready, _ = select.select([], [fd], [], LOOK_SECONDS)
            if ready and seconds:
                return
            try:
                trio.from_thread.check_cancelled()
            except trio.Cancelled:
                seconds -= LOOK_SECONDS
                if seconds <= 0:
                    raise
            if ready:
                return

    async def _positions(self, partitions: "list[TopicPartition]") -> "dict[TopicPartition, int]":
        committed = await committed_offsets(self._cluster, self._group, partitions)
        # Of a partition that has come since, everything is wanted, wherever the others began.
        new = [key for key in partitions if key not in committed and key.partition < self._first_count]
        begin = await offsets_at(self._cluster, new, self._wanted.begin)
        return {key: committed.get(key, begin.get(key, 0)) for key in partitions}

    async def _commit(self) -> None:
        is_taken = await self._member.commit(self._printed)
        # It is only forgotten now: a signal that ends the commit lets `_end` repeat it.
        self._printed = {}
        if not is_taken:
            click.echo("barnabas: the group gave the partitions to others: some records may be printed twice", err=True)

    async def _end(self) -> None:
        try:
            await self._commit()
            await self._member.leave()
        except ClientError as error:
            click.echo(f"barnabas: {error}", err=True)


async def read_as_member(cluster: "Cluster", group: str, topic: str, wanted: Wanted, output: Output) -> None:
    """Print what the group has not read yet. After a signal the program ends with the status of that signal."""
    session = _Session(cluster, group, topic, wanted, output)
    await session.run()
    end_by(session.signal_number)
