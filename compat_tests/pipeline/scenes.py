"""Archives and restores with kills on the way, for the tests and for the measurement."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from barnabas.pipeline.manifest import Archive
from compat_tests.pipeline.jobs import Event, Job, archive_arguments
from compat_tests.spark.environment import run_with_spark

KILLS = 5


def batches_on_disk(place: pathlib.Path) -> set[pathlib.Path]:
    """Every attempt at a batch, committed or not."""
    return set((place / "records").glob("batch=*/run=*"))


def committed(place: pathlib.Path) -> int:
    return len(list((place / "manifest").glob("*.json")))


def kill_archiving(directory: pathlib.Path, place: pathlib.Path, arguments: list[str], number: int) -> bool:
    """Start archiving and kill it; whether it was still at work.

    Even kills come when a batch was committed, which Spark has hardly noted; odd ones when files of the next batch lie
    there. Python alone is killed, and its Java with it, in turn.
    """
    job = Job(directory, *arguments)
    before = committed(place)
    while_working = job.await_sight(lambda: committed(place) > before)
    if number % 2:
        seen = batches_on_disk(place)
        while_working = job.await_sight(lambda: any(one.glob("**/*") for one in batches_on_disk(place) - seen))
    job.kill(everything=number % 4 < 2)
    return while_working


def archive_with_kills(
    directory: pathlib.Path,
    place: pathlib.Path,
    bootstrap: str,
    names: list[str],
    *more: str,
    between: Callable[[int], None] = lambda _: None,
) -> list[Event]:
    """Archive topics with five kills; `between` is called after each. The lines of the run that comes to the end."""
    arguments = archive_arguments(place, bootstrap, names, *more)
    for number in range(KILLS):
        assert kill_archiving(directory, place, arguments, number), "it had ended before it was killed"
        between(number)
    return Job(directory, *arguments).finish()


def compared(place: pathlib.Path, bootstrap: str) -> list[dict[str, Any]]:
    """Each partition of an archive beside the topic that it was made of."""
    ran = run_with_spark("-m", "compat_tests.pipeline.comparing", place, bootstrap)
    assert ran.returncode == 0, ran.stderr[-6000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


def differences(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if one["missing"] or one["additional"] or one["different"]]


def archived_records(place: pathlib.Path) -> int:
    return sum(batch.records for batch in Archive(place).batches())
