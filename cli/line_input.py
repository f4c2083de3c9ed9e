"""Lines of a file, a pipe or a terminal (edge).

A thread reads, so that the command does other things while it waits for a line. At most two pieces are in memory, and
a line whose end has not come.
"""

import math
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from typing import IO

import trio

from barnabas.client.errors import ClientError
from barnabas.progress import progress

LINE_BYTES_MAX = 64 << 20
PIECE_BYTES = 256 << 10
QUIET_SECONDS = 0.1
# After a signal: a command at the other end of the pipe may have got it, too, and writes its last lines.
LAST_QUIET_SECONDS = 0.5
LAST_SECONDS_MAX = 3.0


class LineInput:
    """The lines of a file. `read` has to run while they are taken from `groups`."""

    def __init__(self, file: IO[bytes]) -> None:
        about = os.fstat(file.fileno())
        self._is_regular = stat.S_ISREG(about.st_mode)
        self._size_bytes = about.st_size
        self._fd = file.fileno()
        self._send, self._receive = trio.open_memory_channel[bytes](0)
        self._begun: list[bytes] = []  # pieces of a line whose end has not come
        self._begun_bytes = 0
        self._ended_count = 0  # of lines
        self._quiet_seconds = QUIET_SECONDS
        self._ends_at = math.inf
        self._failure: OSError | None = None

    @property
    def unfinished_bytes(self) -> int:
        """What has come of a line whose end has not come."""
        return self._begun_bytes

    def stop(self) -> None:
        """End soon: after what a pipe holds, and what still comes in quick succession."""
        self._quiet_seconds = LAST_QUIET_SECONDS
        self._ends_at = trio.current_time() + (0 if self._is_regular else LAST_SECONDS_MAX)

    async def read(self, _scope: trio.CancelScope) -> None:
        """Read until the end of the file; of one that is no pipe a person sees how much of it is read."""
        # A pipe has no length, and the command at its other end may draw a line of its own.
        drawn = progress("produce", self._size_bytes, "B") if self._is_regular else nullcontext(_ignore)
        with drawn as advance, self._send:
            try:
                while piece := await trio.to_thread.run_sync(os.read, self._fd, PIECE_BYTES, abandon_on_cancel=True):
                    advance(len(piece))
                    await self._send.send(piece)
            except OSError as error:
                self._failure = error

    async def groups(self) -> AsyncGenerator[list[bytes], None]:
        """Lines that came together, without their ends; an empty group whenever nothing came for a moment.

        ClientError for a line that is too long, and where the file cannot be read.
        """
        while trio.current_time() < self._ends_at:
            piece = None
            with trio.move_on_after(self._quiet_seconds):
                try:
                    piece = await self._receive.receive()
                except trio.EndOfChannel:
                    break
            if piece is not None:
                yield self._lines(piece)
            elif self._ends_at < math.inf:
                return
            else:
                yield []
        else:
            return

        if self._failure is not None:
            raise ClientError(f"the input cannot be read: {self._failure.strerror}")
        if self._begun:
            yield [self._ended(b"")]

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        first, *others = piece.split(b"\n")
        if self._begun_bytes + len(first) > LINE_BYTES_MAX:
            raise ClientError(f"line {self._ended_count + 1} has more than {LINE_BYTES_MAX} bytes")
        if not others:
            self._begin(first)
            return []
        first = self._ended(first)
        self._begin(others.pop())
        self._ended_count += len(others) + 1
        return [first, *others]

    def _begin(self, piece: bytes) -> None:
        if piece:
            self._begun.append(piece)
            self._begun_bytes += len(piece)

    def _ended(self, last: bytes) -> bytes:
        line = b"".join([*self._begun, last]) if self._begun else last
        self._begun.clear()
        self._begun_bytes = 0
        return line


def _ignore(_amount: int) -> None:
    """What is done is not shown."""
