"""How far `produce` and `consume` are, on a terminal of 80 columns, and nowhere else."""

import os
import pty
import re
import subprocess
import sys
import termios
import threading

import pytest

from barnabas.testing import LocalBroker
from tests.cli.running import Commands

COLUMNS = 80
LINES = b"".join(b"%06d\n" % number for number in range(3_000))
# What takes less than a second shows nothing, so the test shortens the second.
AT_ONCE = """
import barnabas.cli.progress
barnabas.cli.progress.DELAY_SECONDS = 0
from barnabas.cli.commands import main
main()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with LocalBroker() as broker:
        yield Commands(broker, tmp_path_factory.mktemp("progress"))


@pytest.fixture(scope="module")
def numbers(run, tmp_path_factory):
    file = tmp_path_factory.mktemp("given") / "numbers"
    file.write_bytes(LINES)
    run("topics", "create", "numbers", "--partitions", "1")
    run("produce", "numbers", str(file))
    return file


def drawn(run, *arguments, both=False, **given):
    """What a command draws on standard error, which is a terminal, and what it prints; `both`: that is one, too."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, COLUMNS))
    pieces = []

    def read():
        # When no program holds the terminal any more, to read from it is an error.
        try:
            while data := os.read(ours, 65536):
                pieces.append(data)
        except OSError:
            pass

    reading = threading.Thread(target=read)
    reading.start()
    ended = subprocess.run(
        [sys.executable, "-c", AT_ONCE, *arguments],
        stdout=theirs if both else subprocess.PIPE,
        stderr=theirs,
        check=True,
        timeout=60,
        env={**os.environ, "BARNABAS_BOOTSTRAP": run.broker.bootstrap_servers},
        **given,
    )
    os.close(theirs)
    reading.join()
    os.close(ours)
    return b"".join(pieces).decode(), ended.stdout


def test_produce_says_how_much_of_a_file_is_written(run, numbers):
    text, _ = drawn(run, "produce", "numbers", str(numbers))
    lines = re.split(r"[\r\n]+", text)
    assert any(line.startswith("produce: ") and "/21.0k" in line for line in lines)
    assert max(map(len, lines)) <= COLUMNS
    # The line is gone at the end, and the message is what remains.
    assert text.rstrip().endswith("3000 records written to numbers")


def test_produce_draws_nothing_for_a_pipe(run, numbers):
    assert drawn(run, "produce", "numbers", input=LINES)[0] == "3000 records written to numbers\r\n"


@pytest.mark.parametrize(
    ("options", "count"), [([], None), (["--until", "500"], 500), (["--from", "-7"], 7), (["-n", "5"], 5)]
)
def test_consume_says_how_far_it_is_to_its_end(run, numbers, options, count):
    text, printed = drawn(run, "consume", "numbers", *options)
    assert "consume: " in text
    assert max(map(len, re.split(r"[\r\n]+", text))) <= COLUMNS
    assert count is None or printed.count(b"\n") == count


def test_consume_draws_nothing_into_what_it_prints_on_the_same_terminal(run, numbers):
    text, _ = drawn(run, "consume", "numbers", "-n", "3", both=True)
    assert re.fullmatch(r"(\d{6}\r\n){3}", text)


def test_nothing_is_drawn_where_standard_error_is_no_terminal(run, numbers):
    assert run("consume", "numbers").stderr == b""
    assert run("produce", "numbers", str(numbers)).stderr == b"3000 records written to numbers\n"
