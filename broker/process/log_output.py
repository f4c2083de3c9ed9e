"""Log lines to standard error, without ever waiting for it (edge).

A terminal that was stopped, or a pipe whose reader hangs, must not stop the broker. So a record is formatted where it
is logged and put into a bounded queue; one thread writes. When the queue is full, lines are dropped and counted, and
the count is written as soon as the writer moves again. At the end the writer gets a moment to finish, no more.

A peer that fails over and over says the same line over and over. A record logged with `extra={"peer": name}` appears
at most once in `REPEAT_INTERVAL_SECONDS` for each peer and message; the next one tells how many were held back.
"""

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

QUEUE_LINES_MAX = 10_000  # a burst of a few seconds; with the next limit, some tens of MiB at the very worst
LINE_CHARACTERS_MAX = 8_192  # a traceback fits; a dump of a request does not
CLOSE_SECONDS_MAX = 1.0  # how long the end of the process waits for a slow reader
REPEAT_INTERVAL_SECONDS = 10.0
REPEATS_KEPT_MAX = 1_000  # peers and messages remembered; beyond it all are forgotten, at the price of some more lines

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Output(Protocol):
    """Where lines go: standard error."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class QueueingHandler(logging.Handler):
    """Formats records and hands them to a writer thread; never waits."""

    def __init__(self, output: Output, *, lines_max: int = QUEUE_LINES_MAX) -> None:
        super().__init__()
        self.dropped = 0  # lines lost so far
        self._output = output
        self._lines: queue.Queue[str | None] = queue.Queue(lines_max)
        self._writer = threading.Thread(target=self._write_lines, name="log writer", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record)[:LINE_CHARACTERS_MAX])
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Let the writer finish, for a moment."""
        super().close()
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return  # the reader hangs: the rest would not be seen
        self._writer.join(CLOSE_SECONDS_MAX)

    @property
    def is_stuck(self) -> bool:
        """Whether, after `close`, the writer still waits for a reader that does not read."""
        return self._writer.is_alive()

    def _write_lines(self) -> None:
        reported = 0
        while (line := self._lines.get()) is not None:
            dropped = self.dropped
            lost, reported = dropped - reported, dropped
            try:
                self._output.write(f"{line}\n")
                if lost:
                    self._output.write(f"{lost} log lines were dropped: standard error was not read in time\n")
                self._output.flush()
            except (OSError, ValueError):  # closed: there is nowhere left to say so
                return


class RepeatFilter(logging.Filter):
    """Holds back what was said about the same peer a moment ago, and counts it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[str, str, object], tuple[float, int]] = {}  # -> when it was last let through, held back

    def filter(self, record: logging.LogRecord) -> bool:
        peer: object = getattr(record, "peer", None)
        if peer is None:
            return True
        key, now = (record.name, str(record.msg), peer), self._clock()
        said_at, held_back = self._said.get(key, (float("-inf"), 0))
        if now - said_at < REPEAT_INTERVAL_SECONDS:
            self._said[key] = said_at, held_back + 1
            return False
        if len(self._said) >= REPEATS_KEPT_MAX:
            self._said.clear()
        self._said[key] = now, 0
        if held_back:
            record.msg, record.args = f"{record.getMessage()} (and {held_back} times more)", ()
        return True


@contextmanager
def logging_to(output: Output, level: str = "INFO") -> Iterator[QueueingHandler]:
    """Send what the program logs to `output` while inside, and Python's warnings: they must not wait either."""
    handler = QueueingHandler(output)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)
    try:
        yield handler
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        root.setLevel(before)
        handler.close()


def standard_error() -> Output:
    """The process's own."""
    return sys.stderr
