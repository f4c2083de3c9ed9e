"""Log lines never wait for standard error, and one peer does not fill the log."""

import io
import logging
import threading
import warnings

import pytest

from barnabas.broker.process.log_output import LINE_CHARACTERS_MAX, QueueingHandler, RepeatFilter, logging_to


class HangingOutput(io.StringIO):
    """Standard error whose reader stops until it is let go."""

    def __init__(self):
        super().__init__()
        self.is_hanging, self.let_go = threading.Event(), threading.Event()

    def write(self, text):
        self.is_hanging.set()
        assert self.let_go.wait(10)
        return super().write(text)


def record(message, *, peer=None):
    made = logging.LogRecord("barnabas.test", logging.WARNING, "file", 1, message, (), None)
    if peer is not None:
        made.peer = peer
    return made


def test_a_clients_text_forges_no_line():
    output = io.StringIO()
    with logging_to(output):
        logging.getLogger("barnabas.test").info("no topic %s", "größe\n2026-01-01 INFO Principal User:admin is Allowed")
    assert output.getvalue().endswith("no topic größe\\n2026-01-01 INFO Principal User:admin is Allowed\n")
    assert output.getvalue().count("\n") == 1


def test_what_is_logged_is_written_before_the_end():
    output = io.StringIO()
    with logging_to(output):
        logging.getLogger("barnabas.test").info("leader of %s", "t-0")
        logging.getLogger("barnabas.test").debug("not shown")
    assert output.getvalue().endswith("INFO barnabas.test: leader of t-0\n")
    assert output.getvalue().count("\n") == 1


def test_a_warning_of_python_goes_the_same_way():
    output = io.StringIO()
    with logging_to(output):
        warnings.warn("old style", stacklevel=1)
    assert "WARNING py.warnings" in output.getvalue()
    assert "UserWarning: old style" in output.getvalue()


def test_lines_that_find_the_queue_full_are_dropped_and_counted():
    output = HangingOutput()
    handler = QueueingHandler(output, lines_max=3)
    handler.emit(record("first"))
    assert output.is_hanging.wait(10)
    for number in range(5):  # three wait in the queue, two find it full
        handler.emit(record(f"line {number}"))
    assert handler.dropped == 2
    output.let_go.set()
    handler._lines.put(None)
    handler._writer.join(10)
    assert output.getvalue().splitlines() == [
        "first",
        "line 0",
        "2 log lines were dropped: standard error was not read in time",
        "line 1",
        "line 2",
    ]


def test_closing_does_not_wait_for_a_reader_that_hangs():
    output = HangingOutput()
    handler = QueueingHandler(output, lines_max=1)
    handler.emit(record("first"))
    assert output.is_hanging.wait(10)
    handler.emit(record("second"))
    handler.close()
    assert handler._writer.is_alive()
    output.let_go.set()


def test_a_closed_output_ends_the_writer_and_nothing_else():
    output = io.StringIO()
    handler = QueueingHandler(output)
    output.close()
    handler.emit(record("no process reads this"))
    handler._writer.join(10)
    assert not handler._writer.is_alive()


def test_an_endless_line_is_cut():
    output = io.StringIO()
    handler = QueueingHandler(output)
    handler.emit(record("x" * 100_000))
    handler.close()
    assert len(output.getvalue()) == LINE_CHARACTERS_MAX + 1


@pytest.fixture
def clock():
    return [0.0]


def test_a_repeated_line_about_one_peer_is_held_back_and_counted(clock):
    repeats = RepeatFilter(lambda: clock[0])
    shown = []
    for second in range(12):
        clock[0] = float(second)
        line = record("the peer is lost", peer="127.0.0.1")
        if repeats.filter(line):
            shown.append((second, line.getMessage()))
    assert shown == [(0, "the peer is lost"), (10, "the peer is lost (and 9 times more)")]


def test_other_peers_and_other_lines_are_not_held_back(clock):
    repeats = RepeatFilter(lambda: clock[0])
    lines = [record("lost", peer="a"), record("lost", peer="b"), record("found", peer="a"), record("x"), record("x")]
    assert all(repeats.filter(line) for line in lines)


def test_the_filter_does_not_grow_with_the_number_of_peers(clock):
    repeats = RepeatFilter(lambda: clock[0])
    for peer in range(5000):
        repeats.filter(record("lost", peer=str(peer)))
    assert len(repeats._said) <= 1000
