"""Writes log lines to standard error without blocking (edge).

A stopped terminal, or a pipe whose reader hangs, must not stop the broker. So a record is formatted where it is logged
and put into a bounded queue, and one thread writes. When the queue is full, lines are dropped and counted.

A peer that keeps failing repeats the same log line. A record logged with `extra={"peer": name}` appears at most once in
`REPEAT_INTERVAL_SECONDS` for each peer and message; the next one has the number of suppressed ones.
"""

import datetime
import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

QUEUE_LINES_MAX = 10_000  # a burst of a few seconds; with the next limit, some tens of MiB at most
LINE_CHARACTERS_MAX = 8_192  # enough for a traceback, not for the dump of a request
CLOSE_SECONDS_MAX = 1.0  # how long the end of the process waits for a slow reader
REPEAT_INTERVAL_SECONDS = 10.0
# Pairs of peer and message that are remembered; above the limit the table is cleared, which lets a few
# lines repeat.
REPEATS_KEPT_MAX = 1_000

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Output(Protocol):
    """The target of the lines: standard error."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


ERASE_LINE = "\r\x1b[K"


class Passing(str):
    """A line that the next one replaces, on a terminal."""

    __slots__ = ()


class QueueingHandler(logging.Handler):
    """Formats records and hands them to a writer thread; never waits."""

    def __init__(self, output: Output, *, lines_max: int = QUEUE_LINES_MAX) -> None:
        super().__init__()
        self.dropped = 0  # lines lost so far
        self._output = output
        self._lines: queue.Queue[Passing | str | None] = queue.Queue(lines_max)
        # The thread is a daemon, so that a reader that hangs does not keep the process from ending.
        self._writer = threading.Thread(target=self._write_lines, name="log writer", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        # The line is formatted here, not in the writer: an argument of the record may change after
        # this call.
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self.dropped += 1

    def show(self, text: str) -> None:
        """Write a line that the next one replaces: only to a terminal. It is lost if many others wait."""
        with suppress(queue.Full):
            self._lines.put_nowait(Passing(text))

    def close(self) -> None:
        """Wait until the writer has written all lines, at most CLOSE_SECONDS_MAX."""
        super().close()
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return  # the reader hangs, so the writer would not finish in time
        self._writer.join(CLOSE_SECONDS_MAX)

    @property
    def is_stuck(self) -> bool:
        """Whether, after `close`, the writer still waits for its reader."""
        return self._writer.is_alive()

    def _write_lines(self) -> None:
        reported = 0
        erase = ""
        while (line := self._lines.get()) is not None:
            # The count is read once: the event loop may drop more meanwhile, and each lost line
            # must be counted in one report.
            dropped = self.dropped
            lost = dropped - reported
            reported = dropped
            try:
                passes = isinstance(line, Passing)
                self._output.write(f"{erase}{line}{'' if passes else chr(10)}")
                erase = ERASE_LINE if passes else ""
                if lost:
                    self._output.write(f"{self.format(_lost_lines(lost))}\n")
                self._output.flush()
            except (OSError, ValueError):  # the output is closed, so the error cannot be logged
                return


def _lost_lines(count: int) -> logging.LogRecord:
    text = "%d log lines were dropped: standard error was not read in time"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)


class TextFormatter(logging.Formatter):
    """Escapes what is not printable in a message: with a line break in a topic name a client would forge a line."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record)[:LINE_CHARACTERS_MAX]

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is logging's
        if not record.message.isprintable():
            record.message = "".join(
                each if each.isprintable() else each.encode("unicode_escape").decode() for each in record.message
            )
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (ISO 8601, UTC), `level`, `logger`, `message`; `traceback` after an exception."""

    def format(self, record: logging.LogRecord) -> str:
        texts = {"message": record.getMessage()}
        if record.exc_info:
            texts["traceback"] = self.formatException(record.exc_info)
        time_logged = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        head = {
            "time": time_logged.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        # The line must stay JSON, so the texts are cut, and not the line; escapes make them longer.
        kept = LINE_CHARACTERS_MAX
        while len(line := json.dumps(head | {name: text[:kept] for name, text in texts.items()})) > LINE_CHARACTERS_MAX:
            kept //= 2
        return line


FORMATTERS: dict[str, Callable[[], logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


class RepeatFilter(logging.Filter):
    """Suppresses and counts repeated lines about the same peer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[str, str, object], tuple[float, int]] = {}  # -> time of the last line, suppressed since

    def filter(self, record: logging.LogRecord) -> bool:
        peer: object = getattr(record, "peer", None)
        if peer is None:
            return True

        # The key has the message without its arguments: lines that differ only in an errno or a port are
        # the same.
        key = (record.name, str(record.msg), peer)
        now = self._clock()
        said_at, held_back = self._said.get(key, (float("-inf"), 0))
        if now - said_at < REPEAT_INTERVAL_SECONDS:
            self._said[key] = said_at, held_back + 1
            return False
        if len(self._said) >= REPEATS_KEPT_MAX:
            self._said.clear()
        self._said[key] = now, 0

        # The line is formatted here, so that the count can be appended; `args` must be empty then,
        # or it would be formatted again.
        if held_back:
            record.msg, record.args = f"{record.getMessage()} (and {held_back} times more)", ()
        return True


@contextmanager
def logging_to(output: Output, level: str = "INFO", log_format: str = "text") -> Iterator[QueueingHandler]:
    """Within the block, write all log records to `output`, and Python's warnings, which must not block either.

    `log_format` is a key of `FORMATTERS`.
    """
    handler = QueueingHandler(output)
    handler.setFormatter(FORMATTERS[log_format]())
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
    """The standard error of this process."""
    return sys.stderr
