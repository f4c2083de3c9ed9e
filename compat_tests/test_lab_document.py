"""docs/lab.md does what it says: its commands and its Python run as written, but for the port of the laboratory."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from compat_tests.clients.client import ROOT
from compat_tests.tools import require_tool

PAGE = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS_OF_PAGE = "127.0.0.1:9645"
SECONDS = 60


@pytest.fixture
def lab() -> Iterator[dict[str, str]]:
    """What the first command of the page prints, by its first words, while it runs."""
    first, *_ = (text for language, text in BLOCK.findall(PAGE) if language == "sh")
    program, *words = first.split()
    assert program == "barnabas"
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", *words, "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            lines = [running.stdout.readline().split() for _ in PAGE_PRINTS]
            assert [name for name, _ in lines] == PAGE_PRINTS
            yield dict(lines)
        finally:
            running.terminate()
            assert running.wait(SECONDS) == 0


def printed_by_the_page() -> list[str]:
    """The first word of each line that the page shows after its first command."""
    (shown,) = re.findall(r"^```text\n(bootstrap .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [line.split()[0] for line in shown.splitlines()]


PAGE_PRINTS = printed_by_the_page()


def produce_until(done: threading.Event, servers: str) -> None:
    """A program that writes to the topic of the page until the test has seen its fault."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    while not done.wait(0.1):
        producer.produce("orders", b"to the castle")
        producer.flush(SECONDS)


def test_what_is_typed_with_curl_is_answered_as_the_page_says(lab: dict[str, str]) -> None:
    require_tool("curl")
    _, typed = (text for language, text in BLOCK.findall(PAGE) if language == "sh")
    typed = typed.replace(ADDRESS_OF_PAGE, lab["control"].removeprefix("http://").removesuffix("/v1/"))

    done = threading.Event()
    client = threading.Thread(target=produce_until, args=(done, lab["bootstrap"]))
    client.start()
    try:
        # Each response is written without an end of line.
        typed = re.sub(r"^curl -s ", r"curl -s -w '\\n' ", typed, flags=re.MULTILINE)
        ran = subprocess.run(["sh", "-eu", "-c", typed], capture_output=True, text=True, timeout=SECONDS, check=False)
    finally:
        done.set()
        client.join(SECONDS)
    assert ran.returncode == 0, ran.stderr

    set_up, fired, records, killed, clock, reset = [json.loads(line) for line in ran.stdout.splitlines() if line]
    first, last = [json.loads(line.removeprefix("# ")) for line in typed.splitlines() if line.startswith("# {")]
    assert set_up == first
    assert (fired["id"], fired["fired"]) == ("f1", 1)
    assert "to the castle" in json.dumps(records)
    assert killed == {"id": 2, "is_running": False, "is_frozen": False}
    assert clock["is_stopped"] is False
    assert reset == last


def test_the_python_of_the_page_runs() -> None:
    (program,) = (text for language, text in BLOCK.findall(PAGE) if language == "python")
    ran: list[str] = []

    def run_my_program(servers: str, url: str) -> None:
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("orders", b"to the castle")
        assert producer.flush(SECONDS) == 0
        ran.append(url)

    namespace = {"run_my_program": run_my_program}
    exec(compile(program, "docs/lab.md", "exec"), namespace)
    namespace["test_my_program"]()
    assert [url.startswith("http://127.0.0.1:") for url in ran] == [True]
