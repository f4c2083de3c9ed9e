"""Archives and restores with kills on the way, for the tests and for the measurement."""

import os
import pathlib
from collections.abc import Callable

from barnabas.pipeline.manifest import Archive
from compat_tests.pipeline.jobs import Event, Job

KILLS = 5


def batches_on_disk(place: pathlib.Path) -> set[pathlib.Path]:
    """Every attempt at a batch, committed or not."""
    return set((place / "records").glob("batch=*/run=*"))


def has_files(attempt: pathlib.Path) -> bool:
    """Whether an attempt at a batch has written something yet."""
    return any(name.endswith(".parquet") for _, _, names in os.walk(attempt) for name in names)


def committed(place: pathlib.Path) -> int:
    return len(list((place / "manifest").glob("*.json")))


def kill_archiving(
    directory: pathlib.Path, place: pathlib.Path, arguments: list[str], number: int, **more: str
) -> bool:
    """Start archiving and kill it; whether it was still at work.

    Even kills come when a batch was committed, which Spark has hardly noted; odd ones when files of the next batch lie
    there. Python alone is killed, and its Java with it, in turn.
    """
    job = Job(directory, *arguments, **more)
    before = committed(place)
    while_working = job.await_sight(lambda: committed(place) > before)
    if number % 2:
        seen = batches_on_disk(place)
        while_working = job.await_sight(lambda: any(map(has_files, batches_on_disk(place) - seen)))
    job.kill(everything=number % 4 < 2)
    return while_working


def kill_archiving_five_times(
    directory: pathlib.Path,
    place: pathlib.Path,
    arguments: list[str],
    between: Callable[[int], None] = lambda _: None,
    **more: str,
) -> None:
    """Archive topics, killed again and again; `between` is called after each kill. It has not come to the end yet."""
    for number in range(KILLS):
        assert kill_archiving(directory, place, arguments, number, **more), "it had ended before it was killed"
        between(number)


def differences(found: list[Event]) -> list[Event]:
    """What a comparison found that is not identical."""
    return [one for one in found if one["missing"] or one["additional"] or one["different"]]


def archived_records(place: pathlib.Path) -> int:
    return sum(batch.records for batch in Archive(place).batches())
