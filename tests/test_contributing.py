"""CONTRIBUTING.md's walk-throughs, followed step by step in a copy of the sources, with a made-up API and property.

Their tables are read from the document: a step is done at its place, and until the next one is done the named test
fails and says where that is.
"""

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.rooms import ROOT

PLACES_MAX = 6  # that a new API touches
COPIED_FOLDERS = ["src", "tests", "compat_tests", "bench", "examples", "docs"]  # beside those that `src` links to
COPIED_FILES = ["*.md", "*.toml", "*.py", "LICENSE"]
MAKE_GENERATED = "make generated"
OF_INTEREST = "handler or not test_tidy"  # of test_tidy.py what is about handlers; all of other files


class Step(NamedTuple):
    """A row of a table: where something is done, and the test that fails until the next step is done."""

    place: str
    test: str


def steps_of(title: str) -> list[Step]:
    """The steps under this title; a place is the last one that its cell names, a test the first."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = []
    for line in section.splitlines():
        if re.match(r"\| \d+\. ", line):
            _, _, place, test, _ = (re.findall("`([^`]+)`", cell) for cell in re.split(r"(?<!\\)\|", line))
            found.append(Step(place[-1], test[0] if test else ""))
    return found


class Sources:
    """A copy of the sources, in which tests run on their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        linked = [link.name for link in (ROOT / "src" / "barnabas").iterdir() if link.is_symlink()]
        for folder in [*COPIED_FOLDERS, *linked]:
            shutil.copytree(ROOT / folder, root / folder, symlinks=True, ignore=shutil.ignore_patterns("target"))
        for pattern in COPIED_FILES:
            for path in ROOT.glob(pattern):
                shutil.copy2(path, root)

    def write(self, name: str, text: str) -> None:
        assert not (self.root / name).exists()
        (self.root / name).write_text(text, encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        with (self.root / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def insert(self, name: str, after: str, text: str) -> None:
        """Put this text behind the only place that has the other one."""
        before = (self.root / name).read_text(encoding="utf-8")
        assert before.count(after) == 1, f"{name} has no longer one {after!r}"
        (self.root / name).write_text(before.replace(after, after + text), encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        environment = os.environ | {"PYTHONPATH": str(self.root / "src")}
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)

    def complaints(self, *tests: str) -> str:
        """The errors of these tests, without source lines and paths; empty when they pass."""
        ran = self.run("pytest", "-q", "--tb=short", "-k", OF_INTEREST, *tests)
        errors = [line for line in ran.stdout.splitlines() if line.startswith("E  ")]
        assert bool(errors) is (ran.returncode != 0), ran.stdout + ran.stderr
        return "\n".join(errors)


@pytest.fixture
def sources(tmp_path):
    return Sources(tmp_path)


def follow(sources: Sources, steps: list[Step], deeds: dict) -> None:
    """Do all steps: each test fails, and names the place of the next step."""
    assert [step.place for step in steps] == list(deeds), "this test does what the document says, in the same order"
    for step, following in pairwise(steps):
        deeds[step.place](sources)
        assert following.place in sources.complaints(step.test), f"after {step.place}"
    deeds[steps[-1].place](sources)


def generate(sources: Sources) -> None:
    """What `make generated` runs."""
    ran = sources.run("tests.generated")
    assert ran.returncode == 0, ran.stderr


# -- an API

SCHEMAS = '''"""DescribeCastle (key 1234)."""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("DescribeCastleRequest", 1234, "0", "0+", (
        Field("names", "[]string"),
    )),
    Schema("DescribeCastleResponse", 1234, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("castles", "[]Castle", fields=(
            Field("error_code", "int16"),
            Field("name", "string"),
        )),
    )),
)  # fmt: skip
'''
API = """
    1234: Api(1234, "DescribeCastle", "castle", 0, 0, 0, True),"""
HANDLER = '''"""DescribeCastle: whether a castle can be reached."""

from barnabas.broker.call import Broker, Call
from barnabas.world.pacing import paced
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

Castle = m.DescribeCastleResponse.Castle


async def describe_castle(broker: Broker, call: Call, request: m.DescribeCastleRequest) -> m.DescribeCastleResponse:
    """The castles in the order of the request; none can be reached."""
    code = ErrorCode.RESOURCE_NOT_FOUND
    castles = [Castle(name=name, error_code=code) async for name in paced(request.names)]
    return m.DescribeCastleResponse(castles=castles)


def refuse_describe_castle(request: m.DescribeCastleRequest, version: int, code: ErrorCode) -> m.DescribeCastleResponse:
    """The same error for every castle."""
    return m.DescribeCastleResponse(castles=[Castle(name=name, error_code=code) for name in request.names])
'''
ROUTE = "1234: Route(castle.describe_castle, castle.refuse_describe_castle),"
SCENARIO = '''"""DescribeCastle."""

from barnabas.wire import messages as m
from tests.broker.harness import Machine


async def test_no_castle_can_be_reached(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    (castle,) = (await client.ask(m.DescribeCastleRequest(names=["west-west"]))).castles
    assert (castle.name, castle.error_code) == ("west-west", 91)
'''
DIFFERENTIAL_SCENARIO = '''"""Castles."""

from barnabas.wire import messages as m
from compat_tests.differential.scenario import scenario


@scenario
def castles(side):
    yield "west-west", side.ask(m.DescribeCastleRequest(names=["west-west"]), 0)
'''


def route(sources: Sources, row: str = ROUTE) -> None:
    name = "broker/server/dispatch.py"
    sources.insert(name, "    67: Route(producers.allocate_producer_ids),", f"\n    {row}")
    sources.insert(name, "from barnabas.broker.handlers import (\n    acls,", "\n    castle,")


API_DEEDS = {
    "wire/schemas/": lambda sources: sources.write("wire/schemas/castle.py", SCHEMAS),
    "wire/apis.py": lambda sources: sources.insert(
        "wire/apis.py", '"ConsumerGroupDescribe", "groups", 0, 0, 0, False),', API
    ),
    "broker/handlers/": lambda sources: sources.write("broker/handlers/castle.py", HANDLER),
    "broker/server/dispatch.py": route,
    MAKE_GENERATED: generate,
    "tests/broker/handlers/": lambda sources: sources.write("tests/broker/handlers/test_castle.py", SCENARIO),
    "compat_tests/differential/scenarios/": lambda sources: sources.write(
        "compat_tests/differential/scenarios/castle.py", DIFFERENTIAL_SCENARIO
    ),
}


@pytest.mark.thorough
def test_adding_an_api_as_the_document_says(sources):
    steps = steps_of("Add an API")
    places = [step.place for step in steps if step.place != MAKE_GENERATED]
    assert len(places) <= PLACES_MAX
    follow(sources, steps, API_DEEDS)
    tests = dict.fromkeys(step.test for step in steps if step.test)
    assert sources.complaints(*tests, "tests/broker/handlers/test_castle.py") == ""


@pytest.mark.thorough
def test_a_handler_that_cannot_refuse_in_its_rows_is_reported(sources):
    for place in ("wire/schemas/", "wire/apis.py", "broker/handlers/"):
        API_DEEDS[place](sources)
    route(sources, "1234: Route(castle.describe_castle),")
    complaints = sources.complaints("tests/broker/server/test_dispatch.py", "-k", "DescribeCastle")
    assert (
        "DescribeCastleResponse has no error_code for the whole request: refuse_<handler> in broker/handlers/"
        in complaints
    )


# -- a property

PROPERTY = """
    row("castle.gate.ms", LONG, 1000, at_least(0), CLUSTER_WIDE, SERVED,
        "How long the gate of the castle stays open."),"""
READER = """

def gate_ms(broker: Broker) -> int:
    return broker.config.castle_gate_ms
"""
PROPERTY_DEEDS = {
    "config/tables/": lambda sources: sources.insert("config/tables/cluster.py", "CLUSTER_PROPERTIES = (", PROPERTY),
    "tests/config/test_table.py": lambda sources: sources.insert(
        "tests/config/test_table.py", "NOT_KAFKAS = {", '"castle.gate.ms", '
    ),
    MAKE_GENERATED: generate,
    "config.castle_gate_ms": lambda sources: sources.append("broker/handlers/cluster.py", READER),
}


@pytest.mark.thorough
def test_adding_a_property_as_the_document_says(sources):
    steps = steps_of("Add a property")
    follow(sources, steps, PROPERTY_DEEDS)
    assert sources.complaints("tests/config", "tests/test_generated.py") == ""
    assert "castle_gate_ms: int" in (sources.root / "config/attributes.pyi").read_text()
    assert "| `castle.gate.ms` | `1000` | all | acts |" in (sources.root / "docs/configuration.md").read_text()
