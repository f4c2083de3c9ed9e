"""How an audit's time grows with the records: made-up histories of three replicas, each audited by a new process.

    python -m compat_tests.pipeline.scaling DIRECTORY [faults] MILLIONS...      # one line of JSON for each number

With the word `faults` every fault is planted. `audit_s` is the audit itself, `whole_s` the process with the start of
Spark. A history is removed when it was audited.
"""

import json
import pathlib
import shutil
import sys
import time
from typing import Any

from compat_tests.pipeline.histories import FAULTS, History, expected
from compat_tests.spark.environment import run_with_spark

AUDIT_SECONDS = 3600


def measure(directory: pathlib.Path, records: int, faults: list[str]) -> dict[str, Any]:
    """Make a history, audit it by the command, and say how long both took."""
    began = time.monotonic()
    history = History(directory / f"history-{records}", records, faults).write()
    made = time.monotonic()
    replicas = [word for replica in history.replicas for word in ("--replica", str(replica))]
    ran = run_with_spark(
        "-m", "barnabas.pipeline", "audit", history.directory, *replicas, "--json", timeout=AUDIT_SECONDS
    )
    assert ran.returncode == bool(faults), ran.stderr[-4000:]
    whole, found = time.monotonic() - made, json.loads(ran.stdout)
    assert found["totals"] == expected(faults), found["totals"]
    shutil.rmtree(history.directory)
    return {
        "records": records,
        "rows": sum(held["records"] for held in found["held"]),
        "events": sum(found["events"].values()),
        "found": found["totals"],
        "made_s": round(made - began, 1),
        "audit_s": found["seconds"],
        "whole_s": round(whole, 1),
        "records_per_s": round(records / found["seconds"]),
    }


def main() -> None:
    directory, *millions = sys.argv[1:]
    faults = list(FAULTS) if "faults" in millions else []
    for number in millions:
        if number != "faults":
            print(json.dumps(measure(pathlib.Path(directory), int(float(number) * 1_000_000), faults)), flush=True)


if __name__ == "__main__":
    main()
