"""An archive's directory (edge): which records are in it, and how it stays consistent if a run is killed.

Theory of operation. The manifest defines the archive: only directories that are named in one of its files belong to it.
A batch is written in two steps.

1. Its records go to a directory of their own, `records/batch=N/run=TOKEN/topic=T/date=D/*.parquet`. Each attempt has
   another token, so that the Java process of a killed run, which may still write for a moment, never writes to the
   directory of the next run.
2. When the records are synced, `manifest/N.json` is renamed into place: from then on the batch counts. The file names
   the directory and has, for each partition, first and last offset, number of records and bytes, earliest and latest
   timestamp; and it has the offsets at which the next batch begins (`next_offsets`).

`checkpoint/FIRST` is the checkpoint of Spark's query whose batch 0 is batch FIRST of the archive. Spark writes down the
offsets of a batch before it begins the batch, so that an interrupted batch is repeated with the same offsets; a batch
that is in the manifest already is skipped. Batches are numbered without a gap. `topics.json` has the settings that are
needed to create the topics again.

The driver and all executors must see the directory under the same path.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1  # of the manifest; another number means files that this code does not know
Offsets = dict[str, dict[int, int]]  # topic, partition, offset

RECORDS_SCHEMA = """
    partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_type INT, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>
"""
PATH_SCHEMA = "batch INT, run STRING, topic STRING, date DATE"  # what the names of the folders say
COLUMNS = ["batch", "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "date"]


class ArchiveError(RuntimeError):
    """The archive is damaged, or must not be changed; the message has the reason."""


@dataclass(frozen=True)
class Range:
    """The records of one partition in one batch."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int  # of keys, values and headers
    largest_record_bytes: int
    earliest_timestamp_ms: int
    latest_timestamp_ms: int


@dataclass(frozen=True)
class Batch:
    """One file of the manifest."""

    number: int
    run: str
    next_offsets: Offsets
    ranges: tuple[Range, ...]

    # The totals are computed once: a manifest may have thousands of ranges.
    @cached_property
    def records(self) -> int:
        return sum(found.records for found in self.ranges)

    @cached_property
    def bytes(self) -> int:
        return sum(found.bytes for found in self.ranges)

    @property
    def directory(self) -> str:
        """Where its records are, below `records/`."""
        return f"batch={self.number}/run={self.run}"

    def to_json(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "batch": self.number,
            "run": self.run,
            "records": self.records,
            "bytes": self.bytes,
            "next_offsets": self.next_offsets,
            "partitions": [asdict(found) for found in self.ranges],
        }


def batch_from_json(text: str, where: str) -> Batch:
    """What a file of the manifest says."""
    value = json.loads(text)
    if value.get("format") != FORMAT:
        raise ArchiveError(f"{where} has format {value.get('format')}; this version reads {FORMAT}")
    ranges = tuple(Range(**found) for found in value["partitions"])
    return Batch(value["batch"], value["run"], offsets_from_json(value["next_offsets"]), ranges)


def offsets_from_json(value: dict[str, dict[str, int]]) -> Offsets:
    """Offsets by topic and partition, as Spark and the manifest write them: JSON's keys are strings."""
    return {topic: {int(partition): offset for partition, offset in of.items()} for topic, of in value.items()}


class Archive:
    """The directory, as files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.records = self.path / "records"
        self.manifest = self.path / "manifest"
        self.checkpoints = self.path / "checkpoint"
        self.topics_file = self.path / "topics.json"

    def make(self) -> None:
        for folder in (self.records, self.manifest, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process writes; the system frees the lock of one that was killed."""
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ArchiveError(f"another process is archiving into {self.path}") from error
            yield

    def batches(self) -> list[Batch]:
        """Every batch that counts, in order."""
        if not self.manifest.is_dir():
            raise ArchiveError(f"{self.path} holds no archive: there is no folder {self.manifest.name} in it")
        files = sorted(self.manifest.glob("*.json"), key=lambda file: int(file.stem))
        numbers = [int(file.stem) for file in files]
        if numbers != list(range(len(numbers))):
            missing = min(set(range(max(numbers))) - set(numbers))
            raise ArchiveError(f"{self.manifest} lacks batch {missing}; the archive is damaged")
        return [batch_from_json(file.read_text(encoding="utf-8"), str(file)) for file in files]

    def batch(self, number: int) -> Batch | None:
        """One batch, if it counts."""
        file = self.manifest / f"{number}.json"
        return batch_from_json(file.read_text(encoding="utf-8"), str(file)) if file.exists() else None

    def commit(self, batch: Batch) -> None:
        """Add a batch, whose records are written, to the manifest."""
        # The records and the names above them are durable before the manifest names the batch.
        # Otherwise a power failure could leave a batch that counts without its files.
        sync_tree(self.records / batch.directory)
        for folder in (self.records / f"batch={batch.number}", self.records):
            sync(folder)
        self.write(self.manifest / f"{batch.number}.json", batch.to_json())

    def remove_leftovers(self, batches: Sequence[Batch]) -> None:
        """Delete the directories that no batch names: killed runs wrote them."""
        kept = {self.records / batch.directory for batch in batches}
        for run in self.records.glob("batch=*/run=*"):
            if run not in kept:  # the Java of a killed run may still write to it: then the next run removes it
                shutil.rmtree(run, ignore_errors=True)

    def checkpoint(self, batches: Sequence[Batch], from_manifest: bool) -> tuple[Path, int]:
        """The checkpoint of Spark's query, and the number of its first batch; a new one if `from_manifest`.

        ArchiveError if the archive has batches and no checkpoint, unless `from_manifest`.
        """
        # The newest checkpoint goes on where the manifest ended when it was made; older ones would
        # repeat batches. In a folder without offsets no batch is planned yet.
        present = [int(folder.name) for folder in self.checkpoints.iterdir() if (folder / "offsets").is_dir()]
        if present and not from_manifest:
            return self.checkpoints / str(max(present)), max(present)
        if batches and not from_manifest:
            raise ArchiveError(
                f"{self.path} holds {len(batches)} batches, but its checkpoint is gone. Spark would read every record "
                "again. To go on after the last offsets of the manifest, ask for it (--from-manifest)"
            )
        return self.checkpoints / str(len(batches)), len(batches)

    def topics(self) -> dict[str, dict[str, object]]:
        """For each topic: partitions, replication factor, settings that are not the default."""
        known: dict[str, dict[str, object]] = {}
        if self.topics_file.exists():
            known = json.loads(self.topics_file.read_text(encoding="utf-8"))
        return known

    def write(self, file: Path, value: object) -> None:
        """Write a JSON file atomically and durably."""
        unfinished = file.with_suffix(".unfinished")
        with unfinished.open("w", encoding="utf-8") as output:
            json.dump(value, output, indent=1)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
        sync(file.parent)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    for inside, _, files in os.walk(folder):
        for name in files:
            sync(Path(inside) / name)
        sync(Path(inside))


def planned_offsets(checkpoint: Path, spark_batch: int) -> Offsets:
    """Where a batch of Spark's ends, which Spark wrote down before beginning it: the offset log of its checkpoint.

    A file of it has the version `v1`, a line about the batch, and one line for each source; we have one.
    """
    file = checkpoint / "offsets" / str(spark_batch)
    lines = file.read_text(encoding="utf-8").splitlines()
    if len(lines) != 3 or lines[0] != "v1":
        raise ArchiveError(f"{file} is not the offset log of a query with one source, as Spark 4 writes it")
    return offsets_from_json(json.loads(lines[2]))


def read_archive(spark: "SparkSession", path: str | Path, *, batches: int | None = None) -> "DataFrame":
    """The records of an archive, of the first so many batches, as a DataFrame.

    Columns: batch, topic, partition, offset, timestamp, timestamp_type (0 = CreateTime, 1 = LogAppendTime), key, value,
    headers (null where a record has none), date. Within a partition, batch and offset give the order of the records.
    """
    archive = Archive(path)
    found = [batch for batch in archive.batches()[:batches] if batch.records]
    schema = f"{RECORDS_SCHEMA}, {PATH_SCHEMA}"
    if not found:
        return spark.createDataFrame([], schema).select(*COLUMNS)
    reader = spark.read.schema(schema).option("basePath", str(archive.records))
    return reader.parquet(*(str(archive.records / batch.directory) for batch in found)).select(*COLUMNS)
