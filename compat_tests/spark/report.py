"""Outcomes side by side: whether they agree, how long each script took, and the file that keeps this."""

import datetime
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import barnabas
from compat_tests.clients.client import ROOT
from compat_tests.spark.run import Outcome
from compat_tests.spark.sites import SITES

RESULT = pathlib.Path(__file__).parent / "result.json"
SEEN_WITH_KAFKA = pathlib.Path(__file__).parent / "seen_with_kafka.json"
CONSTRAINTS = ROOT / "constraints.txt"
MEASURES = ("seconds", "broker_cpu_seconds")

Outcomes = Mapping[str, Mapping[str, Outcome]]  # by site, by script


def complaints(found: Outcomes) -> list[str]:
    """Scripts that failed, and those that did not see the same everywhere."""
    failed = [
        f"{script} fails on {site}: {outcome.error}"
        for site, outcomes in found.items()
        for script, outcome in outcomes.items()
        if outcome.error
    ]
    return failed + [line for script in scripts_of(found) for line in differences(script, found)]


def scripts_of(found: Outcomes) -> list[str]:
    """Every script, in the order in which they ran."""
    return list(dict.fromkeys(script for outcomes in found.values() for script in outcomes))


def differences(script: str, found: Outcomes, recorded: Mapping[str, Any] | None = None) -> list[str]:
    """Where this script saw something else than with Kafka, now or as recorded; else, than at the first site."""
    outcomes = {site: outcomes[script] for site, outcomes in found.items() if script in outcomes}
    seen = {site: outcome.result for site, outcome in outcomes.items() if outcome.error is None}
    if not seen:
        return []
    site_of_kafka = next((site for site in seen if SITES[site].kafka), None)
    if site_of_kafka is None and recorded and script in recorded:
        name, reference = "a recorded Kafka", recorded[script]
    else:
        name = site_of_kafka or next(iter(seen))
        reference = seen[name]
    return [
        f"{script} differs: {result!r:.800} with {site}, {reference!r:.800} with {name}"
        for site, result in seen.items()
        if result != reference
    ]


def summary(rounds: Sequence[Outcomes]) -> dict[str, Any]:
    """What is kept: the median of each script's seconds over the rounds, and of the brokers' processor time."""
    table = {
        script: {
            site: _medians([found[site][script] for found in rounds]) for site in rounds[0] if script in rounds[0][site]
        }
        for script in scripts_of(rounds[0])
    }
    return {
        "pyspark": pinned("pyspark"),
        "barnabas": barnabas.__version__,
        "date": datetime.date.today().isoformat(),
        "rounds": len(rounds),
        "complaints": [complaint for found in rounds for complaint in complaints(found)],
        "scripts": table,
        "together": {
            site: {
                measure: round(sum(row[site][measure] for row in table.values() if site in row), 1)
                for measure in MEASURES
            }
            for site in rounds[0]
        },
    }


def _medians(runs: Sequence[Outcome]) -> dict[str, float]:
    return {measure: round(statistics.median(getattr(run, measure) for run in runs), 2) for measure in MEASURES}


def pinned(package: str) -> str:
    """The version that the project's environments hold."""
    (line,) = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith(f"{package}==")]
    return line.partition("==")[2]


def table_text(kept: Mapping[str, Any]) -> str:
    """Running times side by side, in seconds; in brackets the brokers' processor time."""
    sites = list(kept["together"])
    times = {**kept["scripts"], "together": kept["together"]}
    rows = [["", *sites], *([script, *(_cell(of.get(site)) for site in sites)] for script, of in times.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def _cell(times: Mapping[str, float] | None) -> str:
    return f"{times['seconds']:.1f} ({times['broker_cpu_seconds']:.1f})" if times else ""


def write(kept: Mapping[str, Any], found: Outcomes) -> None:
    """Keep the summary, and what scripts saw with Apache Kafka."""
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    seen = {
        script: outcome.result
        for site, outcomes in found.items()
        if SITES[site].kafka
        for script, outcome in outcomes.items()
    }
    rows = [f"{json.dumps(script)}: {json.dumps(result)}" for script, result in seen.items()]
    SEEN_WITH_KAFKA.write_text("{\n" + ",\n".join(rows) + "\n}\n")  # a line for each script
