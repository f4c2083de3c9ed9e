"""docs/spark.md does what it says: its commands and its Python run as written, one after another, beside one broker."""

import json
import os
import re
import subprocess

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.clients.client import ROOT
from compat_tests.pipeline.jobs import SHORT_LIVED_JVM
from compat_tests.spark.environment import spark_environment, spark_python

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "spark.md"
RECORDS = 100_000


SCRIPT = """#!/bin/sh
shift  # it is always `pipeline`
exec {python} -m barnabas.pipeline "$@"
"""


def put_on_path(folder):
    """The folder of the command `barnabas`; for an interpreter that merely finds our packages, one is made."""
    beside = spark_python().parent
    if not (beside / "barnabas").exists():
        beside = folder
        (folder / "barnabas").write_text(SCRIPT.format(python=spark_python()))
        (folder / "barnabas").chmod(0o755)
    return f"{beside}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each block of the page said, in their order; the broker keeps its data where `make serve` does."""
    path = put_on_path(tmp_path_factory.mktemp("bin"))
    folder = tmp_path_factory.mktemp("walkthrough")
    broker = BrokerProcess(folder)
    broker.data_dir = folder / "barnabas-data"
    broker.start()
    ran = subprocess.run(
        [str(spark_python()), "-m", "compat_tests.pipeline.walkthrough", str(PAGE), broker.bootstrap],
        cwd=folder,
        env=spark_environment(PATH=path, **SHORT_LIVED_JVM),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    broker.kill()
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-6000:]}"
    return [json.loads(line)["said"] for line in ran.stdout.splitlines()]


def counts_in(table):
    """The last column of what `show` prints."""
    return [int(found) for found in re.findall(r"\|\s*(\d+)\|$", table, re.MULTILINE)]


def test_the_streaming_count_counts_every_record(said):
    assert len(counts_in(said[1])) == 7
    assert sum(counts_in(said[1])) == RECORDS


def test_the_archive_has_every_record(said):
    assert f"1 batches, {RECORDS:,} records" in said[2]
    assert sum(counts_in(said[3])) == RECORDS


def test_the_restored_topic_is_identical(said):
    assert f"restored {RECORDS:,} records" in said[4]
    found = re.findall(r"again-letters-\d: ([\d,]+) identical, 0 missing, 0 additional, 0 different", said[4])
    assert sum(int(number.replace(",", "")) for number in found) == RECORDS


def test_the_audits_find_nothing_wrong(said):
    assert "nothing is wrong" in said[5]
    assert said[6] == ""
    assert "nothing is wrong" in said[7]
    assert len(re.findall(r"topic: letters .* problems: 0", said[7])) == 4


def test_the_functions_do_what_the_commands_do(said):
    assert said[8].startswith("0 records have come since")
    assert sum(counts_in(said[8])) == RECORDS
