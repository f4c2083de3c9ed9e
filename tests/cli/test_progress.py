"""How far a command is, on a terminal of 80 columns, and nowhere else."""

import os
import pty
import re
import subprocess
import sys
import termios
import threading

import pytest

from barnabas.cli.serve import show_loading
from barnabas.testing import LocalBroker
from tests.cli.running import Commands

COLUMNS = 80
LINES = b"".join(b"%06d\n" % number for number in range(3_000))
# What takes less than a second shows nothing, so the test shortens the second.
AT_ONCE = """
import barnabas.progress
barnabas.progress.DELAY_SECONDS = 0
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


def drawn(run, *arguments, code=AT_ONCE, both=False, **given):
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
        [sys.executable, "-c", code, *arguments],
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


def test_the_transfer_of_a_store_says_how_many_nodes_there_are(run, tmp_path):
    nodes = [f'{{"path": "/n{number}", "text": "x"}}' for number in range(2_000)]
    export = tmp_path / "nodes.json"
    export.write_text('{"format": 1, "nodes": [' + ",\n".join(nodes) + "]}")
    text, printed = drawn(run, "store", "import", "--data-dir", str(tmp_path / "data"), str(export))
    assert (printed, "store import: " in text, "/2.00k" in text) == (b"2000 nodes written\n", True, True)
    text, printed = drawn(run, "store", "export", "--data-dir", str(tmp_path / "data"))
    assert ("store export: " in text, printed.count(b"\n")) == (True, 2_002)


IN_LINES = """
import sys
import barnabas.progress
barnabas.progress.LINE_SECONDS = 0
with barnabas.progress.progress("run", 3, " seeds", lines=True) as advance:
    for seed in range(3):
        advance(1)
        barnabas.progress.print_beside(f"seed {seed}")
print("tqdm" in sys.modules)
"""


def test_work_of_minutes_is_a_line_now_and_then_where_no_terminal_is():
    ended = subprocess.run([sys.executable, "-c", IN_LINES], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "seed 0\nseed 1\nseed 2\nFalse\n"
    first, *_, last = ended.stderr.splitlines()
    assert re.fullmatch(r"run: 1 of 3 seeds(, 0:00:00 left)?", first)
    assert re.fullmatch(r"run: 3 of 3 seeds(, 0:00:00 left)?", last)


def test_what_is_printed_beside_a_drawn_line_is_a_line_of_its_own(run):
    text, _ = drawn(run, code=IN_LINES.replace("LINE_SECONDS", "DELAY_SECONDS"), both=True)
    lines = [re.sub(r".*\r", "", line) for line in text.replace("\r\n", "\n").split("\n")]
    assert [line for line in lines if re.fullmatch(r"seed \d|True", line)] == ["seed 0", "seed 1", "seed 2", "True"]


def test_the_start_of_a_broker_says_how_many_logs_are_loaded_and_how_long_it_takes():
    lines = []
    show_loading(lines.append, 0, 1_000, 1.0)
    show_loading(lines.append, 250, 1_000, 10.0)
    assert lines == ["0 of 1,000 logs are loaded", "250 of 1,000 logs are loaded, 0:00:30 left"]
