"""The process in which scripts run: one Spark session, one script after the other, one JSON line for each.

python -m compat_tests.spark.program --bootstrap HOST:PORT,… --pids JSON --work DIR SCRIPT...

Runs in the environment that has PySpark; `run.py` starts it. A line tells how long the script took, how much processor
time the brokers spent meanwhile, and what the script returned or why it failed. What Spark logs goes to standard error.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import pathlib
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from barnabas.testing.running.processes import cpu_seconds_of
from compat_tests.spark.place import Place
from compat_tests.spark.scripts import CLUSTER_SCRIPTS, SCRIPTS, Script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A second compiler costs a short session more than it gains; the first one alone would have little room.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m"
SCRIPT_SECONDS = 240  # a script that takes longer hangs: its stack is printed, and the process ends


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--pids", required=True, type=json.loads)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("scripts", nargs="+")
    options = parser.parse_args()
    spark = open_session(options.work)
    spark.range(1).count()  # so that no script is charged with the cost of a first job
    for name in options.scripts:
        script = {**SCRIPTS, **CLUSTER_SCRIPTS}[name]
        directory = options.work / name
        place = Place(spark, options.bootstrap, len(options.pids), options.pids, directory, name.replace("_", "-"))
        print(json.dumps({"script": name, **run(script, place)}), flush=True)
    spark.stop()
    return 0


def open_session(work: pathlib.Path) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("compat")
    for name, value in {
        "spark.jars": os.environ["BARNABAS_SPARK_JARS"],
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",  # state stores, of which each costs files in every batch
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.log.level": "WARN",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(script: Script, place: Place) -> dict[str, Any]:
    """Run one script; return its result or error, and its cost."""
    faulthandler.dump_traceback_later(SCRIPT_SECONDS, exit=True)
    began, spent = time.monotonic(), cpu_seconds(place)
    outcome: dict[str, Any]
    try:
        outcome = {"result": script(place)}
    except Exception as error:  # of a script: it is returned, and the next script runs
        traceback.print_exc()
        outcome = {"error": f"{type(error).__name__}: {error}"[:4000]}
    finally:
        faulthandler.cancel_dump_traceback_later()
        for query in place.spark.streams.active:
            query.stop()
    seconds = time.monotonic() - began
    return {"seconds": round(seconds, 2), "broker_cpu_seconds": round(cpu_seconds(place) - spent, 2), **outcome}


def cpu_seconds(place: Place) -> float:
    """The processor time of all brokers that are there still."""
    seconds = 0.0
    for pid in place.pids.values():
        with contextlib.suppress(OSError):  # it was killed
            seconds += cpu_seconds_of(pid)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
