"""Cold starts of `LocalBroker`, one after the other: python -m bench.cold_starts [COUNT] [--where process|thread]

Each one begins without data, creates a topic, writes a record with acks=all, reads it, and ends; the time is until the
topic is there. In a process the interpreter starts each time, too. Status 1: a start failed.
"""

import argparse
import statistics
import sys
import time
from collections import Counter

from barnabas.testing import LocalBroker
from bench.load import CASES as BATCHES
from bench.load import Client, batch_of, check_produced, produce_frame

COUNT = 1000
PLACES = ("process", "thread")
TOPIC = "letters"
EVERY = 50  # progress


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cold_starts", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=COUNT, help=f"how many of each kind ({COUNT})")
    parser.add_argument("--where", choices=PLACES, help="only there")
    options = parser.parse_args()
    print("| started | starts | failures | median ms | 99 of 100 within ms | longest ms |\n|-|-:|-:|-:|-:|-:|")
    failed = 0
    for place in PLACES if options.where is None else (options.where,):
        seconds, failures = starts(options.count, is_process=place == "process")
        print(row(place, options.count, seconds, failures), flush=True)
        failed += failures.total()
    return 1 if failed else 0


def starts(count: int, *, is_process: bool) -> tuple[list[float], Counter[str]]:
    """How long each start took, and what failed how often."""
    seconds = []
    failures: Counter[str] = Counter()
    for number in range(1, count + 1):
        try:
            seconds.append(one_start(is_process=is_process))
        # Whatever it is, it is counted and shown, and the next one begins.
        except Exception as error:
            failures[f"{type(error).__name__}: {error}"] += 1
            print(f"start {number} failed: {error!r}", file=sys.stderr, flush=True)
        if number % EVERY == 0:
            print(f"{number} starts, {failures.total()} failures", file=sys.stderr, flush=True)
    return seconds, failures


def one_start(*, is_process: bool) -> float:
    """Seconds until a broker serves; RuntimeError if it does not do what it should then."""
    began = time.perf_counter()
    with LocalBroker(topics=[TOPIC], process=is_process) as broker:
        seconds = time.perf_counter() - began
        with Client(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            check_produced(client.ask_frame(produce_frame(TOPIC, batch_of(BATCHES[0]))))
        written = broker.records(TOPIC)
        if [record.offset for record in written] != [0]:
            raise RuntimeError(f"one record was written, and {written} were read")
    return seconds


def row(place: str, count: int, seconds: list[float], failures: Counter[str]) -> str:
    """A line of the table."""
    if not seconds:
        return f"| {place} | {count} | {failures.total()} | | | |"
    in_order = sorted(each * 1000 for each in seconds)
    nearly_all = in_order[len(in_order) * 99 // 100]
    figures = f"{statistics.median(in_order):.0f} | {nearly_all:.0f} | {in_order[-1]:.0f}"
    return f"| {place} | {count} | {failures.total()} | {figures} |"


if __name__ == "__main__":
    sys.exit(main())
