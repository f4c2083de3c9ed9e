"""One run: a cluster, the streams, kills drawn by a seed, and the verification at the end.

The order: start the cluster, make the topics, start driver and instances. When every instance works, kills for so many
minutes; then nothing is down any more. Within `RECOVERY_SECONDS` every instance works, and what was in the input at
that moment is processed. The driver ends, the instances process the rest and end, and the verification has its say.

Verification compares the outputs with the input that was *committed*, so streams that stand still would pass it: all
input must be committed before the instances end.
"""

import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from compat_tests.cluster.live import LiveCluster, NotWhole, await_none
from compat_tests.streams.killing import Killer
from compat_tests.streams.output import DELIVERED
from compat_tests.streams.plan import draw_plan
from compat_tests.streams.processes import APPLICATION, FORMS, INPUT, PARTITIONS, Driver, Instance, jars, verify

INSTANCES = 3
BEGIN_SECONDS = 300.0  # the machine may be loaded; it is no part of the run
RECOVERY_SECONDS = 120.0
TAIL_OF_VERIFICATION = 600  # characters in a finding

Finding = tuple[str, str]


class Result(NamedTuple):
    """What a run came to; a line of the results file."""

    form: str
    kind: str
    seed: int
    minutes: float
    verdict: str
    findings: list[Finding]
    kills: list[str]
    fenced: int
    produced: int
    recovery_s: float
    seconds: float


class Streams:
    """The driver and the instances on a cluster; `with` starts them, and ends what still runs."""

    def __init__(self, cluster: LiveCluster, form: str) -> None:
        self.cluster = cluster
        self.form = FORMS[form]
        self.driver = Driver(cluster)
        self.instances = [Instance(cluster, number, self.form) for number in range(1, INSTANCES + 1)]

    def __enter__(self) -> "Streams":
        for topic in self.form.topics:
            self.cluster.create_topic(topic, PARTITIONS)
        try:
            self.driver.start()
            for instance in self.instances:
                instance.start()
            self.await_processed(self.await_input(), BEGIN_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for instance in self.instances:
            instance.end()
        self.driver.end()

    def await_input(self) -> Mapping[int, int]:
        """Where the partitions of the input end, as soon as it is known and none is empty."""
        ends: dict[int, int] = {}

        def missing() -> list[str]:
            for partition in range(PARTITIONS):
                ends[partition] = self.cluster.view.latest_offset(INPUT, partition)
            return [f"{INPUT}-{partition} is empty" for partition, end in ends.items() if end == 0]

        await_none(missing, BEGIN_SECONDS)
        return ends

    def await_processed(self, ends: Mapping[int, int], seconds: float) -> float:
        """Wait until each instance works and the input is committed up to here; how long it took. NotWhole."""

        def missing() -> list[str]:
            idle = [f"{each.name} does not work" for each in self.instances if not each.is_processing()]
            committed = self.cluster.view.committed(APPLICATION, INPUT, range(PARTITIONS))
            return idle + [
                f"{INPUT}-{partition} is committed up to {committed[partition]} of {end}"
                for partition, end in ends.items()
                if committed[partition] < end
            ]

        return await_none(missing, seconds, pace_seconds=0.5)

    def stop(self) -> Iterator[Finding]:
        """End the instances; what is wrong with how they ended and what they printed."""
        for instance in self.instances:
            if not instance.is_running():
                yield "ended", f"{instance.name} ended by itself"
            elif not instance.stop():
                yield "ended", f"{instance.name} did not end in order"
            for thrown in instance.thrown:
                if not thrown.is_fencing():
                    yield "exception", f"{instance.name}: {thrown}"


def run(
    form: str,
    kind: str,
    seed: int,
    minutes: float,
    directory: pathlib.Path,
    *,
    broker_kills: int,
    instance_kills: int,
) -> Result:
    """One run in this directory, which keeps what everybody printed and the data."""
    began = time.monotonic()
    jars()  # a first run fetches them, which is no part of a start
    directory.mkdir(parents=True, exist_ok=True)
    plan = draw_plan(seed, minutes * 60, broker_kills, instance_kills)
    findings: list[Finding] = []
    with LiveCluster(kind, directory) as cluster, Streams(cluster, form) as streams:
        killer = Killer(cluster, streams.instances, seed)
        killer.run(plan, minutes * 60)
        recovery_s = float("inf")
        try:
            recovery_s = recover(streams)
        except NotWhole as error:
            findings.append(("stuck", str(error)))
        produced, found = finish(streams)
        findings += found
        findings += errors_of(cluster)
        fenced = sum(thrown.is_fencing() for instance in streams.instances for thrown in instance.thrown)
    return Result(
        form=form,
        kind=kind,
        seed=seed,
        minutes=minutes,
        verdict="kept" if not findings else "broken",
        findings=findings,
        kills=killer.done,
        fenced=fenced,
        produced=produced,
        recovery_s=round(recovery_s, 1),
        seconds=round(time.monotonic() - began),
    )


def recover(streams: Streams) -> float:
    """How long it takes until the replicas are whole and what is there now is processed. NotWhole."""
    began = time.monotonic()
    streams.cluster.await_whole(RECOVERY_SECONDS)
    streams.await_processed(streams.await_input(), RECOVERY_SECONDS)
    return time.monotonic() - began


def finish(streams: Streams) -> tuple[int, list[Finding]]:
    """End everything in order and verify: how many records there were, and what is wrong."""
    findings: list[Finding] = []
    produced = streams.driver.stop()
    if produced is None:
        findings.append(("ended", "the driver did not end in order: see driver/output.log"))
    elif not produced.is_exact():
        findings.append(("input", f"acknowledged records are missing, or some are there twice: {produced}"))
    try:
        streams.await_processed(streams.await_input(), RECOVERY_SECONDS)
    except NotWhole as error:
        findings.append(("stuck", f"after the end of the input: {error}"))
    findings += streams.stop()
    said = verify(streams.cluster, streams.form)
    if DELIVERED not in said:
        findings.append(("undelivered", f"see verify.log: {said[-TAIL_OF_VERIFICATION:]}"))
    return produced.stored if produced else 0, findings


def errors_of(cluster: LiveCluster) -> Iterator[Finding]:
    """Bugs of ours that were contained and logged."""
    if cluster.kind == "barnabas":
        for node in cluster.brokers.values():
            if "Traceback" in node.log_text():
                yield "traceback", f"see {node.party}/output.log"
