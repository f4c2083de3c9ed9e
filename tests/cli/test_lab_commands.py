"""`barnabas lab` and `barnabas monitor`: where they are, what they print, and how they end."""

import json
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from barnabas.client.blocking import BlockingConnection
from barnabas.wire import messages as m
from tests.cli.running import READY_SECONDS_MAX, barnabas


def test_the_laboratory_says_where_it_is_and_ends_quietly(tmp_path):
    command = [sys.executable, "-m", "barnabas", "lab", "--brokers", "1", "--http", "127.0.0.1:0", "--topic", "t:2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    bootstrap = process.stdout.readline().split()
    control = process.stdout.readline().split()
    with urlopen(f"{control[1]}brokers", timeout=10) as answer:
        assert json.loads(answer.read())["bootstrap_servers"] == bootstrap[1]
    page = process.stdout.readline().split()
    with urlopen(f"{page[1]}readyz", timeout=10) as answer:
        assert json.loads(answer.read())["ok"]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("", "")
    assert (bootstrap[0], control[0], process.returncode) == ("bootstrap", "control", 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--http", "0.0.0.0:0"], "barnabas: 0.0.0.0:0: the laboratory listens on loopback only"),
        (["--topic", "t:many"], "barnabas: --topic t:many: a name, or a name with a number of partitions"),
        (["--set", "num.partitions"], "barnabas: --set num.partitions: a property and its value"),
        (["--set", "num.partition=1"], "num.partition"),
    ],
)
def test_a_laboratory_that_cannot_start_says_why(tmp_path, options, text):
    shown = barnabas("lab", "--brokers", "1", *options, cwd=tmp_path)
    assert shown.returncode == 1
    assert text in shown.stderr
    assert "Traceback" not in shown.stderr


def test_requests_are_printed_as_they_come(tmp_path):
    with running_lab("lab", "--brokers", "1", "--http", "127.0.0.1:0", "--topic", "t", cwd=tmp_path) as (_, lines):
        url = lines["control"].removesuffix("v1/")
        command = [sys.executable, "-m", "barnabas", "monitor", "--lab", url, "--api", "Metadata"]
        monitor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            # It prints what comes after its start, so requests go on until it has printed one.
            with selectors.DefaultSelector() as selector:
                selector.register(monitor.stdout, selectors.EVENT_READ)
                deadline = time.monotonic() + READY_SECONDS_MAX
                while not selector.select(0.1):
                    assert time.monotonic() < deadline, "nothing is printed"
                    ask_metadata(lines["bootstrap"])
            assert re.search(r"monitored#\d+ +1 Metadata v8 topic 't' -> ok", monitor.stdout.readline())
            monitor.send_signal(signal.SIGINT)
            assert monitor.wait(10) == 0
        finally:
            monitor.kill()
            monitor.communicate()


def test_a_kafka_is_monitored_through_a_proxy(tmp_path):
    with (
        running_lab("lab", "--brokers", "1", "--http", "127.0.0.1:0", "--topic", "t", cwd=tmp_path) as (_, lines),
        running_lab("lab", "--upstream", lines["bootstrap"], "--http", "127.0.0.1:0", cwd=tmp_path) as (_, outer),
    ):
        ask_metadata(outer["bootstrap"])
        with urlopen(f"{outer['control']}requests?api=Metadata&wait=10", timeout=20) as answer:
            (request,) = json.loads(answer.read())["requests"]
    assert (request["client_id"], request["errors"]) == ("monitored", [])


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["lab", "--upstream", "127.0.0.1:1"], "barnabas: upstream 127.0.0.1:1: it cannot be reached"),
        (["lab", "--upstream", "castle:9092", "--topic", "t"], "barnabas: --upstream: the brokers are others'"),
        (
            ["monitor", "--lab", "http://127.0.0.1:1/"],
            "no laboratory answers at http://127.0.0.1:1/: Connection refused\n",
        ),
        (["monitor", "--lab", "ftp://castle"], "barnabas: 'ftp://castle' is no http://HOST:PORT/"),
    ],
)
def test_a_kafka_or_laboratory_that_is_away_is_said_in_one_line(command, text):
    shown = barnabas(*command)
    assert shown.returncode == 1
    assert text in shown.stderr
    assert shown.stderr.count("\n") == 1


@contextmanager
def running_lab(*arguments, cwd):
    """A laboratory as a process, and its two lines."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    try:
        yield process, dict(process.stdout.readline().split() for _ in range(2))
    finally:
        process.kill()
        process.communicate()


def ask_metadata(bootstrap):
    host, _, port = bootstrap.rpartition(":")
    connected = socket.create_connection((host, int(port)), timeout=10)
    with BlockingConnection(connected, "monitored") as connection:
        asked = m.MetadataRequest.MetadataRequestTopic(name="t")
        connection.ask(m.MetadataRequest(topics=[asked]), 8, m.MetadataResponse)
