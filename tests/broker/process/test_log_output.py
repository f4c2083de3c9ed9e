"""Log lines never wait for standard error, and one peer does not fill the log."""

import datetime
import io
import json
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


def logged_as_json(message, *arguments, **options):
    output = io.StringIO()
    with logging_to(output, log_format="json"):
        logging.getLogger("barnabas.test").warning(message, *arguments, **options)
    (line,) = output.getvalue().splitlines()
    return json.loads(line)


def test_a_line_of_json_has_time_level_logger_and_message():
    entry = logged_as_json("no topic %s", "größe\n\u2028 {}")
    logged_at = datetime.datetime.fromisoformat(entry.pop("time"))
    assert abs(datetime.datetime.now(datetime.UTC) - logged_at) < datetime.timedelta(minutes=1)
    assert entry == {"level": "WARNING", "logger": "barnabas.test", "message": "no topic größe\n\u2028 {}"}


def test_a_line_of_json_has_the_traceback_too():
    try:
        raise RuntimeError("the castle is closed")
    except RuntimeError:
        entry = logged_as_json("a bug", exc_info=True)
    assert entry["message"] == "a bug"
    assert entry["traceback"].startswith("Traceback (most recent call last):\n")
    assert entry["traceback"].endswith("RuntimeError: the castle is closed")


@pytest.mark.parametrize("text", ["k" * 100_000, "\x00" * 100_000])
def test_a_long_line_of_json_is_cut_and_stays_json(text):
    entry = logged_as_json("%s", text)
    assert 1000 < len(entry["message"]) < len(text)
    assert len(json.dumps(entry)) <= LINE_CHARACTERS_MAX


def test_lost_lines_are_counted_in_json_too():
    output = HangingOutput()
    with logging_to(output, log_format="json") as handler:
        handler.dropped = 2
        logging.getLogger("barnabas.test").warning("first")
        output.let_go.set()
    first, lost = map(json.loads, output.getvalue().splitlines())
    assert first["message"] == "first"
    assert lost["message"] == "2 log lines were dropped: standard error was not read in time"


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
    with logging_to(output):
        logging.getLogger("barnabas.test").info("x" * 100_000)
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


def test_a_line_that_passes_is_replaced_by_the_next_one():
    output = io.StringIO()
    with logging_to(output) as handler:
        handler.show("1 of 3 logs")
        handler.show("2 of 3 logs")
        logging.getLogger("barnabas.test").info("loaded")
        logging.getLogger("barnabas.test").info("served")
    first, second, _ = output.getvalue().split("\n")
    assert first.startswith("1 of 3 logs\r\x1b[K2 of 3 logs\r\x1b[K2")
    assert first.endswith(" loaded")
    assert "\x1b" not in second


def test_a_line_that_passes_waits_for_no_reader():
    output = HangingOutput()
    with logging_to(output) as handler:
        handler.show("0 of 3 logs")
        assert output.is_hanging.wait(10)
        handler.show("1 of 3 logs")
        assert output.getvalue() == ""
        output.let_go.set()
    assert output.getvalue() == "0 of 3 logs\r\x1b[K1 of 3 logs"
