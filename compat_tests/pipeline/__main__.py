"""How fast archives are made and restored, and what that costs the broker.

`python -m compat_tests.pipeline [--records 5000000] [--broker barnabas|kafka] [--kills]` writes a history of five
topics, archives it (killed five times with --kills), compares the archive with the topics, wipes the broker, restores,
compares again, and prints a JSON line a stage: records a second, and the share of one processor that the broker took.
"""

import argparse
import json
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess
from compat_tests.pipeline import letters
from compat_tests.pipeline.jobs import Job, archive_arguments, restore_arguments
from compat_tests.pipeline.scenes import archive_with_kills, archived_records, compared, differences

Broker = BrokerProcess | KafkaProcess
BATCHES = 20
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, all its threads, so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


@contextmanager
def stage(name: str, broker: Broker, records: int) -> Iterator[dict[str, object]]:
    """Measure what happens inside, and print it."""
    told: dict[str, object] = {}
    began, cpu = time.monotonic(), cpu_seconds(broker.pid)
    yield told
    seconds, used = time.monotonic() - began, cpu_seconds(broker.pid) - cpu
    figures = {
        "records": records,
        "seconds": round(seconds, 1),
        "records_a_second": round(records / seconds),
        "broker_cpu_seconds": round(used, 1),
        "broker_cpu_share": round(used / seconds, 3),
        "broker_us_a_record": round(used / records * 1e6, 2),
    }
    print(json.dumps({"stage": name, **figures, **told}), flush=True)


def start(kind: str, directory: pathlib.Path) -> Broker:
    directory.mkdir()
    return (KafkaProcess(directory) if kind == "kafka" else BrokerProcess(directory)).start()


def stop(broker: Broker) -> None:
    if isinstance(broker, KafkaProcess):
        broker.close()
    else:
        broker.kill()


def measure(directory: pathlib.Path, kind: str, records: int, kills: bool) -> None:
    topics = letters.topics()
    each = records // len(topics)
    place = directory / "archive"
    broker = start(kind, directory / "source")
    try:
        letters.create(broker.bootstrap, list(topics))
        with stage("write", broker, records):
            for topic, codec in topics.items():
                letters.write(broker.bootstrap, topic, codec, 0, each, each)
        with stage("archive", broker, records) as told:
            if kills:
                small = ("--batch-records", str(records // BATCHES))  # enough of them for five kills between
                archive_with_kills(directory, place, broker.bootstrap, list(topics), *small)
            else:
                (told["job"],) = Job(directory, *archive_arguments(place, broker.bootstrap, list(topics))).finish()[-1:]
        with stage("compare with the topics", broker, records) as told:
            found = compared(place, broker.bootstrap)
            told["identical"], told["differences"] = sum(one["identical"] for one in found), differences(found)
    finally:
        stop(broker)
    assert archived_records(place) == records, archived_records(place)
    shutil.rmtree(directory / "source")
    broker = start(kind, directory / "target")
    try:
        with stage("restore", broker, records) as told:
            (told["job"],) = Job(directory, *restore_arguments(place, broker.bootstrap)).finish()[-1:]
        with stage("compare with the archive", broker, records) as told:
            said = Job(directory, *restore_arguments(place, broker.bootstrap), "--verify").finish()
            found = [line for line in said if line["event"] == "compared"]
            told["identical"], told["differences"] = sum(one["identical"] for one in found), differences(found)
    finally:
        stop(broker)


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
