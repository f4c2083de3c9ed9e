"""A scene about compaction: a log that is a table (shell)."""

from barnabas.testing.tour.scene import Scene, Step
from barnabas.testing.tour.stage import Stage, Topic

# How far the clock is moved: over the time between two looks of the cleaner, and over the life of a
# tombstone.
BACK_OFF_SECONDS = 16
TOMBSTONE_DAYS = 1.01


def _offsets(stage: Stage) -> list[int]:
    return [cell.offset for cell in stage.partition().replicas[1].cells]


def _write(stage: Stage) -> None:
    for key, value in (("clerk", "Momus"), ("messenger", "Barnabas"), ("clerk", "Erlanger"), ("messenger", "")):
        stage.write(value, key=key)


def _write_another(stage: Stage) -> None:
    # The segments before the last one can be compacted as soon as they are synced.
    stage.write("Brunswick", key="shoemaker")


def _drop_tombstone(stage: Stage) -> None:
    stage.cluster.clock.advance(days=TOMBSTONE_DAYS)

    # As in Kafka a log is not cleaned again before there is something new to clean.
    stage.write("Gardena", key="landlady")
    _run_cleaner(stage, [2, 4, 5])


def _run_cleaner(stage: Stage, left: list[int]) -> None:
    """Move the clock until the records at these offsets are left: a pass replaces one segment after the other."""

    def is_done() -> bool:
        # A jump that comes while the cleaner is busy ends no back-off, so there may be several.
        if _offsets(stage) != left:
            stage.cluster.clock.advance(seconds=BACK_OFF_SECONDS)
        return _offsets(stage) == left

    stage.until(is_done, f"records {left} are not what is left")


def _table(stage: Stage) -> str:
    # Offsets tell a log that was compacted from one that was written again.
    cells = stage.partition().replicas[1].cells
    return ", ".join(f"{cell.text} at offset {cell.offset}" for cell in cells)


COMPACTION = Scene(
    name="compaction",
    title="Compaction: a log that is a table",
    text="""\
In a topic with cleanup.policy=compact the last record of each key is kept, and earlier ones may be
dropped. A consumer that reads it from the beginning ends with the same table as one that has read
all records, and reads less.

A record without a value is a tombstone: it deletes its key. It is kept for a while too
(delete.retention.ms), so that a consumer that has seen the value before sees that it is gone. The
first pass of the cleaner after that drops it.

Watch the offsets. A record keeps its offset, and the gaps are never filled: a committed offset
means the same before and after. The last segment, to which the broker appends, is never compacted.
""",
    source="[Log compaction](https://kafka.apache.org/39/documentation.html#compaction)",
    brokers=1,
    config={"log.cleaner.backoff.ms": "15000"},
    topics=[
        Topic(
            "village",
            [1],
            {
                "cleanup.policy": "compact",
                # A segment for each record, so that all but the last one can be compacted.
                "segment.bytes": "100",
                "min.cleanable.dirty.ratio": "0.01",
            },
        )
    ],
    steps=[
        Step("A producer writes a clerk and a messenger, another clerk, and a tombstone for the messenger.", _write),
        Step("It writes one more record, which is the last segment now.", _write_another),
        Step(
            "The clock moves on (log.cleaner.backoff.ms), and the cleaner runs.",
            lambda stage: _run_cleaner(stage, [2, 3, 4]),
        ),
        Step(
            "A day has passed (delete.retention.ms). One more record is written, and the cleaner runs.", _drop_tombstone
        ),
    ],
    judge=_table,
    ends="clerk=Erlanger at offset 2, shoemaker=Brunswick at offset 4, landlady=Gardena at offset 5",
)
