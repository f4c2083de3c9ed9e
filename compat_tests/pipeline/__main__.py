"""How fast archives are made and restored, and what that costs the broker.

`python -m compat_tests.pipeline [--records 5000000] [--broker barnabas|kafka] [--kills]` writes a history of five
topics, archives it (with --kills once more, killed five times), compares the archive with the topics, restores it into
an empty broker, audits the restored topics beside the source's segments, and prints a JSON line a stage: records a
second, and the share of one processor that the broker took. A stage includes the start of its Spark; `job` does not.
"""

import argparse
import json
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.testing.running.processes import cpu_seconds_of
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess
from compat_tests.pipeline import letters
from compat_tests.pipeline.jobs import JOB_SECONDS, Job, archive_arguments, restore_arguments
from compat_tests.pipeline.scenes import archived_records, differences, kill_archiving_five_times
from compat_tests.spark.environment import run_with_spark

Broker = BrokerProcess | KafkaProcess
BATCHES = 20


@contextmanager
def stage(name: str, broker: Broker, records: int) -> Iterator[dict[str, object]]:
    """Measure what happens inside, and print it."""
    more: dict[str, object] = {}
    began, cpu = time.monotonic(), cpu_seconds_of(broker.pid)
    yield more
    seconds, used = time.monotonic() - began, cpu_seconds_of(broker.pid) - cpu
    figures = {
        "records": records,
        "seconds": round(seconds, 1),
        "records_a_second": round(records / seconds),
        "broker_cpu_seconds": round(used, 1),
        "broker_cpu_share": round(used / seconds, 3),
        "broker_us_a_record": round(used / records * 1e6, 2),
    }
    print(json.dumps({"stage": name, **figures, **more}), flush=True)


def start(kind: str, directory: pathlib.Path) -> Broker:
    directory.mkdir()
    return (KafkaProcess(directory) if kind == "kafka" else BrokerProcess(directory)).start()


def stop(broker: Broker) -> None:
    """A clean stop, after which the directory says of itself that all of it is below the high watermark."""
    broker.stop()
    if isinstance(broker, KafkaProcess):
        broker.close()


def measure(directory: pathlib.Path, kind: str, records: int, kills: bool) -> None:
    topics = letters.topics()
    each = records // len(topics)
    place = directory / "archive"
    source = start(kind, directory / "source")
    try:
        letters.create(source.bootstrap, list(topics))
        with stage("write", source, records):
            for topic, codec in topics.items():
                letters.write(source.bootstrap, topic, codec, 0, each, each)
        arguments = archive_arguments(place, source.bootstrap, list(topics))
        with stage("archive", source, records) as more:
            (more["job"],) = Job(directory, *arguments).finish()[-1:]
        if kills:
            shutil.rmtree(place)
            arguments += ["--batch-records", str(records // BATCHES)]  # enough of them for five kills between
            with stage("archive again, killed five times", source, records) as more:
                kill_archiving_five_times(directory, place, arguments)
                (more["job"],) = Job(directory, *arguments).finish()[-1:]
        with stage("compare the archive with the topics", source, records) as more:
            command = ("-m", "compat_tests.pipeline.comparing", place, source.bootstrap)
            found = [json.loads(line) for line in output_of(*command)]
            more["identical"], more["differences"] = sum(one["identical"] for one in found), differences(found)
    finally:
        stop(source)
    assert archived_records(place) == records, archived_records(place)
    target = start(kind, directory / "target")  # a cluster with nothing in it
    try:
        with stage("restore", target, records) as more:
            (more["job"],) = Job(directory, *restore_arguments(place, target.bootstrap)).finish()[-1:]
        with stage("audit the restored topics beside the segments of the source", target, records) as more:
            wanted = [word for topic in topics for word in ("--topic", topic)]
            logs = ("--replica", f"source={source.data_dir}", "--bootstrap-server", target.bootstrap, *wanted)
            (line,) = output_of("-m", "barnabas.pipeline", "audit", *logs, "--json")
            audited = json.loads(line)
            more["clean"], more["found"] = audited["clean"], audited["totals"]
            more["records_of_each"] = {
                name: sum(held["records"] for held in audited["held"] if held["replica"] == name)
                for name in sorted({held["replica"] for held in audited["held"]})
            }
    finally:
        stop(target)


def output_of(*command: str | pathlib.Path) -> list[str]:
    """The lines of a program with Spark that ends with status 0."""
    ran = run_with_spark(*command, timeout=JOB_SECONDS)
    assert ran.returncode == 0, f"{ran.stdout[-2000:]}\n{ran.stderr[-6000:]}"
    return ran.stdout.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.pipeline")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--broker", choices=["barnabas", "kafka"], default="barnabas")
    parser.add_argument("--kills", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-pipeline-") as directory:
        measure(pathlib.Path(directory), given.broker, given.records, given.kills)


if __name__ == "__main__":
    main()
