"""Measures how long a producer gets no acknowledgement when the leader is killed or stopped, with Apache Kafka, too.

Both clusters run at the same time with the same settings, one topic of one partition and one idempotent producer each.
They are measured in turn, and the order alternates; only the measured cluster has load. The gap is the longest time
between two acknowledgements around the signal. The time until the brokers' Metadata has another leader is recorded
as well, because the client refreshes its metadata only once a second, counted from its own start. The signal is sent at
a random moment of that second, the same for both clusters; otherwise all signals of one cluster could come at the same
moment of it. After a measurement the broker is restarted, and when every ISR is complete the next turn uses the new
leader. Each measurement is appended to a file at once.
"""

import contextlib
import json
import pathlib
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from compat_tests.cluster.checker import longest_gap
from compat_tests.cluster.ledger import Event, read_ledger
from compat_tests.cluster.live import LiveCluster, await_none
from compat_tests.cluster.load import ConfluentLoad

TOPIC = "gaps"
RATE = 500
STEADY_SECONDS = 3.0  # of load before the signal, and after the acknowledgements go on
RESUME_SECONDS = 60.0
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}

Measurement = dict[str, Any]


def measure(kinds: Sequence[str], kills: int, stops: int, out: pathlib.Path) -> None:
    """What the file does not hold yet, appended to it."""
    wanted = [("kill", turn) for turn in range(kills)] + [("stop", turn) for turn in range(stops)]
    done = {(found["kind"], found["how"], found["turn"]) for found in read(out)}
    missing = [(kind, *what) for what in wanted for kind in _in_turn(kinds, what[1]) if (kind, *what) not in done]
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="cluster-failover-") as directory, contextlib.ExitStack() as stack:
        clusters = {kind: stack.enter_context(_standing(kind, pathlib.Path(directory) / kind)) for kind in kinds}
        for kind, how, turn in missing:
            measured = {"kind": kind, "how": how, "turn": turn, **measure_once(clusters[kind], how, turn)}
            with out.open("a") as file:
                file.write(json.dumps(measured) + "\n")
            print(f"{kind} {how} {turn}: {measured['gap_s']} s, {measured['failed']} failed", flush=True)


def measure_once(cluster: LiveCluster, how: str, turn: int) -> Measurement:
    """The gap around one signal to the leader."""
    directory = cluster.directory / f"{how}-{turn}"
    directory.mkdir()
    load = ConfluentLoad(cluster, TOPIC, 1, producers=1, rate=RATE, directory=directory)
    load.start_producers()
    try:
        _await_acks(directory, since=time.time(), seconds=RESUME_SECONDS)
        first_acked = min(event["time"] for event in _acked(directory))
        time.sleep(max(0.0, first_acked + STEADY_SECONDS + random.Random(turn).random() - time.time()))
        leader = cluster.view.leader(TOPIC)
        struck_at = time.time()
        cluster.broker(leader).hold(SIGNALS[how])
        ended_after = time.time() - struck_at
        _await_other_leader(cluster, leader)
        elected_after = time.time() - struck_at
        _await_acks(directory, since=time.time(), seconds=RESUME_SECONDS)
        time.sleep(STEADY_SECONDS)
        cluster.broker(leader).release()
        back_after = cluster.await_whole(120.0)
        load.stop_producing()
    finally:
        load.kill()
    events = read_ledger(directory.glob("*.jsonl"))
    acked = _acked(directory)
    before = max(event["time"] for event in acked if event["time"] <= struck_at)
    gap = longest_gap(events, before, struck_at + ended_after + RESUME_SECONDS)
    return {
        "gap_s": round(gap, 3),
        "elected_after_s": round(elected_after, 2),
        "failed": sum(event["event"] == "failed" for event in events),
        "acked": len(acked),
        "ended_after_s": round(ended_after, 3),
        "whole_after_s": round(back_after, 1),
    }


def read(path: pathlib.Path) -> list[Measurement]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(measurements: Sequence[Measurement]) -> str:
    """All pairs, then median and worst of each kind of cluster."""
    kinds = sorted({found["kind"] for found in measurements})
    lines = []
    for how, heading in (("kill", "leader killed (SIGKILL)"), ("stop", "leader stopped (SIGTERM)")):
        gaps = {(found["kind"], found["turn"]): found for found in measurements if found["how"] == how}
        if not gaps:
            continue
        lines += [f"Longest gap between acknowledgements, {heading}, in seconds", "", _row("turn", kinds)]
        lines.append("|-" * (len(kinds) + 1) + "|")
        for turn in sorted({turn for _, turn in gaps}):
            lines.append(_row(turn + 1, [gaps[kind, turn]["gap_s"] if (kind, turn) in gaps else "" for kind in kinds]))
        by_kind = [[found for (kind, _), found in gaps.items() if kind == wanted] for wanted in kinds]
        for what, key in (("", "gap_s"), ("another leader named: ", "elected_after_s")):
            seconds = [[found[key] for found in measured] for measured in by_kind]
            lines.append(_row(f"{what}median", [round(statistics.median(found), 3) for found in seconds]))
            lines.append(_row(f"{what}worst", [max(found) for found in seconds]))
        lines += [_row("failed records", [sum(found["failed"] for found in measured) for measured in by_kind]), ""]
    return "\n".join(lines)


def _row(first: object, cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, [first, *cells])) + " |"


def _in_turn(kinds: Sequence[str], turn: int) -> list[str]:
    return list(kinds) if turn % 2 == 0 else list(reversed(kinds))


@contextlib.contextmanager
def _standing(kind: str, directory: pathlib.Path) -> Iterator[LiveCluster]:
    with LiveCluster(kind, directory) as cluster:
        cluster.create_topic(TOPIC, 1)
        yield cluster


def _await_other_leader(cluster: LiveCluster, before: int) -> None:
    def same() -> list[str]:
        leader = cluster.view.leader(TOPIC)
        return [f"broker {leader} leads"] if leader in (-1, before) else []

    await_none(same, RESUME_SECONDS, pace_seconds=0.02)


def _await_acks(directory: pathlib.Path, since: float, seconds: float) -> None:
    """Wait until a record was acknowledged after this time."""

    def none() -> list[str]:
        return [] if any(event["time"] > since for event in _acked(directory)) else ["nothing is acknowledged"]

    await_none(none, seconds)


def _acked(directory: pathlib.Path) -> list[Event]:
    return [event for event in read_ledger(directory.glob("*.jsonl")) if event["event"] == "acked"]
