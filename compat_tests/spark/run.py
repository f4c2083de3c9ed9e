"""Runs scripts against a kind of broker; returns the outcome of each."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from compat_tests.clients.client import ROOT, WORK
from compat_tests.spark.environment import spark_environment, spark_python
from compat_tests.spark.sites import Site, open_site

SITE_SECONDS = 1200
PRINTED, LOG, LAST = "printed.jsonl", "spark.log", "last.json"


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
    kept = folder_of(site)
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"spark-{site.name}-") as directory:
        brokers, work = pathlib.Path(directory, "brokers"), pathlib.Path(directory, "spark")
        brokers.mkdir()
        with open_site(site, brokers, kept) as pids:
            words = ["--bootstrap", ",".join(pids), "--pids", json.dumps(pids), "--work", str(work), *wanted]
            _run_program([str(spark_python()), "-m", "compat_tests.spark.program", *words], kept)
    never = f"it did not come to an end, see {kept / LOG}"
    outcomes = {name: Outcome(name, error=never) for name in wanted}
    for line in (kept / PRINTED).read_text().splitlines():
        if line.startswith('{"script"') and line.endswith("}"):  # not one that was being written at the end
            outcome = Outcome(**json.loads(line))
            outcomes[outcome.script] = outcome
    _keep(site, {**last_outcomes(site), **outcomes})
    return outcomes


def folder_of(site: Site) -> pathlib.Path:
    """Where what its brokers and Spark say is kept."""
    return WORK / "spark" / site.name


def last_outcomes(site: Site) -> dict[str, Outcome]:
    """What became of each script when it last ran here with this kind of broker."""
    path = folder_of(site) / LAST
    found = json.loads(path.read_text()) if path.exists() else {}
    return {script: Outcome(**found[script]) for script in site.scripts if script in found}


def _keep(site: Site, outcomes: Mapping[str, Outcome]) -> None:
    found = {script: asdict(outcome) for script, outcome in outcomes.items()}
    (folder_of(site) / LAST).write_text(json.dumps(found))


def _run_program(command: list[str], kept: pathlib.Path) -> None:
    """Run until it ends or its time is up; then it and Spark's Java are gone, and what it said is in this folder."""
    with (kept / PRINTED).open("w") as outcomes, (kept / LOG).open("w") as log:
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
