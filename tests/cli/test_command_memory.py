"""How much memory `produce` and `consume` need for what comes from a pipe, and goes into one."""

import os
import re
import subprocess
import sys
import threading

import pytest

from barnabas.testing import LocalBroker
from tests.cli.running import Commands

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")

MEGABYTE = 1_000_000
LINE = b"x" * 99 + b"\n"
WIDE_LINE = b"y" * (20 * MEGABYTE - 1) + b"\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with LocalBroker() as broker:
        yield Commands(broker, tmp_path_factory.mktemp("memory"))


# The rusage of a child would count what its parent had before it became another program.
MEASURED = """
import atexit, re, sys
from barnabas.cli.commands import main

def say_peak():
    with open("/proc/self/status") as file:
        sys.stderr.write(re.search(r"VmHWM: *\\d+ kB", file.read().replace("\\t", " "))[0])

atexit.register(say_peak)
main()
"""


def peak_mb(run, arguments, given=()):
    """The most memory that a command has had, in MB, and how many bytes it has printed."""
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": run.broker.bootstrap_servers}
    command = [sys.executable, "-c", MEASURED, *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    counted = []
    reading = threading.Thread(target=lambda: counted.extend(map(len, iter(lambda: process.stdout.read(1 << 20), b""))))
    reading.start()
    with process.stdin:
        for data in given:
            process.stdin.write(data)

    with process:
        said = process.stderr.read().decode()
        reading.join()
    assert process.returncode == 0, said
    return int(re.search(r"VmHWM: *(\d+) kB", said)[1]) * 1024 / MEGABYTE, sum(counted)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("size_mb", [20, pytest.param(300, marks=pytest.mark.thorough)])
def test_many_records_need_no_more_memory_than_a_few(run, size_mb, codec):
    topic = f"many-{size_mb}-{codec}"
    run("topics", "create", topic, "--partitions", "4")
    peak, _ = peak_mb(run, ["produce", topic, "--codec", codec], (LINE * 10_000 for _ in range(size_mb)))
    assert peak <= 64
    for options in ([], ["--json"]):
        peak, printed_bytes = peak_mb(run, ["consume", topic, *options])
        assert peak <= 64
        assert printed_bytes >= size_mb * MEGABYTE


def test_lines_of_20_mb_need_the_memory_of_a_few_of_them(run):
    run("topics", "create", "wide", "--partitions", "1", "--set", "max.message.bytes=30000000")
    peak, _ = peak_mb(run, ["produce", "wide"], [WIDE_LINE] * 5)
    assert peak <= 200
    for options in ([], ["--json"]):
        peak, printed_bytes = peak_mb(run, ["consume", "wide", *options])
        assert peak <= 200
        assert printed_bytes >= 100 * MEGABYTE
