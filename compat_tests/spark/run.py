"""Scripts against a kind of broker: what became of each."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from compat_tests.clients.client import ROOT, WORK
from compat_tests.spark.environment import spark_environment, spark_python
from compat_tests.spark.sites import Site, open_site

SITE_SECONDS = 1200
OUTCOMES, LOG = "outcomes.jsonl", "spark.log"


@dataclass(frozen=True)
class Outcome:
    """What became of a script: what it returned, or why it failed."""

    script: str
    seconds: float = 0.0
    broker_cpu_seconds: float = 0.0
    result: Any = None
    error: str | None = None


def run_site(site: Site, scripts: Iterable[str]) -> dict[str, Outcome]:
    """Start the brokers and a process with Spark, run these scripts, end everything; outcomes by script."""
    wanted = list(scripts)
    kept = WORK / "spark" / site.name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix=f"spark-{site.name}-") as directory:
        brokers, work = pathlib.Path(directory, "brokers"), pathlib.Path(directory, "spark")
        brokers.mkdir()
        with open_site(site, brokers, kept) as pids:
            words = ["--bootstrap", ",".join(pids), "--pids", json.dumps(pids), "--work", str(work), *wanted]
            _run_program([str(spark_python()), "-m", "compat_tests.spark.program", *words], kept)
    lines = (kept / OUTCOMES).read_text().splitlines()
    told = [Outcome(**json.loads(line)) for line in lines if line.startswith('{"script"')]
    outcomes = {outcome.script: outcome for outcome in told}
    never = f"it did not come to an end, see {kept / LOG}"
    return {name: outcomes.get(name) or Outcome(name, error=never) for name in wanted}


def _run_program(command: list[str], kept: pathlib.Path) -> None:
    """Run until it ends or its time is up; then it and Spark's Java are gone, and what it said is in this folder."""
    with (kept / OUTCOMES).open("w") as outcomes, (kept / LOG).open("w") as log:
        process = subprocess.Popen(
            command,
            env=spark_environment(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=outcomes,
            stderr=log,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):  # what has no outcome then has failed
                process.wait(SITE_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
