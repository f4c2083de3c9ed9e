"""A Spark data source over the files of logs: one row a record, without a broker.

    spark.dataSource.register(SegmentsDataSource)
    spark.read.format("barnabas-segments").load(data_dir)
    spark.read.format("barnabas-segments").option("replicas", "b1/data,b2/data,b3/data").load()

Options (Spark takes their names in any case):

    path        one data directory: the argument of `load`
    replicas    several, with commas between them, each `DIRECTORY` or `NAME=DIRECTORY`; column `replica` tells which
    topics      names, with commas between them; without it every topic
    columns     names, with commas between them: only these are made. Spark cannot tell a source in Python what a query
                uses, and keys and values cost most
    live        `true` when a broker may be writing there: a batch half written at the end of a log is no problem, and
                a segment that was deleted meanwhile is passed over
    splitBytes  from what size on a segment is read by several tasks, see `layout.py`

Every batch that cannot be read is one row with a `problem`, whose record columns are null (`scan.py` says which
problems there are, and `position` and `segment` where). A sound batch may also turn out to be broken when it is
decompressed; then the records before the break are rows as well. `timestamp_ms` is what the log says, -1 for none.

*Theory of operation.* The driver lists directories and plans parts of about 64 MiB; each task walks its part with the
readers of `storage` and `wire`, a batch at a time (of a large one, some records), and hands columns to Arrow as soon as
they have `ROWS_MAX` rows or `BATCH_BYTES_MAX` bytes. What is the same for a whole batch is kept once with a count and
spread out when the columns are made.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.pipeline.layout import SPLIT_BYTES, DataDirectory, Part, name_directories, plan_parts
from barnabas.pipeline.scan import NO_NUMBER, Columns, Facts, Found, Headers, scan
from barnabas.storage.disk import StorageError
from barnabas.storage.osdisk import OsDisk
from barnabas.wire.record_batch import SEQUENCE_MAX
from barnabas.wire.records import CorruptRecords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "barnabas-segments"
# Spark's workers copy a batch between processes. Smaller ones cost more calls, larger ones more
# memory.
ROWS_MAX = 8192
BATCH_BYTES_MAX = 8 << 20  # of keys and values; Arrow's buffers hold them a second time
ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "array<struct<key: string, value: binary>>": pa.list_(
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    ),
}
COLUMNS = {
    "replica": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp_ms": "bigint",
    "timestamp_type": "string",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: string, value: binary>>",
    "base_offset": "bigint",
    "last_offset": "bigint",
    "leader_epoch": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "sequence": "int",
    "codec": "string",
    "magic": "int",
    "control": "boolean",
    "transactional": "boolean",
    "crc_ok": "boolean",
    "problem": "string",
    "segment": "string",
    "position": "bigint",
    "batch_bytes": "bigint",
}

RECORD_COLUMNS = {
    "offset": "_offsets",
    "timestamp_ms": "_timestamps",
    "key": "_keys",
    "value": "_values",
    "headers": "_headers",
}


class SegmentsDataSource(DataSource):
    """`barnabas-segments`; register it once in a session."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return FORMAT

    def schema(self) -> str:
        """The columns, in their order; with the option `columns` only those."""
        return ", ".join(f"`{name}` {COLUMNS[name]}" for name in wanted_columns(self.options))

    def reader(self, schema: StructType) -> "SegmentsReader":
        """What plans and reads; it is sent to the tasks."""
        return SegmentsReader(self.options, schema.names)


class PartOfLog(InputPartition):
    """What one task reads."""

    def __init__(self, part: Part) -> None:
        super().__init__(tuple(part))


class SegmentsReader(DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: Mapping[str, str], columns: list[str]) -> None:
        self._directories = directories_of(options)
        self._topics = list_option(options, "topics")
        self._split_bytes = int(options.get("splitBytes", SPLIT_BYTES))
        self._is_live = options.get("live", "false").lower() == "true"
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """The parts of all segments."""
        parts = plan_parts(OsDisk(), self._directories, self._topics, self._split_bytes)
        return [PartOfLog(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        part = Part(*partition.value)
        # The file may be gone since the driver has listed it: retention deletes segments of a
        # running broker.
        try:
            file = OsDisk().open(part.path, read_only=True)
        except StorageError as error:
            if self._is_live and error.cause == "ENOENT":
                return
            raise
        try:
            # The last segment of a log is the only one that grows. A batch cut short in any other
            # one is damage.
            is_growing = self._is_live and part.is_log_end
            yield from _tables(part, scan(file, part.start, part.end, is_growing=is_growing), self._columns)
        finally:
            file.release()


def register(spark: "SparkSession") -> None:
    """Make the format known to this session."""
    spark.dataSource.register(SegmentsDataSource)


def wanted_columns(options: Mapping[str, str]) -> list[str]:
    """The columns that the options ask for, in the order of the table. ValueError for others."""
    asked = list_option(options, "columns")
    unknown = [name for name in asked if name not in COLUMNS]
    if unknown:
        raise ValueError(f"{FORMAT} has no column {', '.join(unknown)}; it has {', '.join(COLUMNS)}")
    return [name for name in COLUMNS if not asked or name in asked]


def directories_of(options: Mapping[str, str]) -> list[DataDirectory]:
    """Where to read. ValueError unless the options say so in one way, StorageError if a directory is not there."""
    path = options.get("path")
    replicas = list_option(options, "replicas")
    if bool(path) == bool(replicas):
        raise ValueError(f"{FORMAT} reads either the directory given to load(), or those of the option replicas")
    return name_directories(OsDisk(), replicas or [str(path)])


def list_option(options: Mapping[str, str], name: str) -> list[str]:
    """An option that is a list with commas."""
    return [text.strip() for text in options.get(name, "").split(",") if text.strip()]


def _tables(part: Part, found: Iterator[Found], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a part in pieces of bounded size."""
    rows = _Rows(part, columns)
    for each in found:
        # A batch with a problem has no pieces, so this row is all that there is of it.
        if each.problem is not None:
            rows.add_problem(each.facts, each.problem)
        try:
            for piece in each.pieces():
                rows.add(each.facts, piece)
                if rows.is_full():
                    yield rows.take()
        # The records before the damage have been added already. One row more says where it begins.
        except CorruptRecords as error:
            rows.add_problem(each.facts, str(error))
    if rows.count:
        yield rows.take()


class _Rows:
    """Rows that are not Arrow's yet: records column by column, facts once for a run of rows of one batch."""

    def __init__(self, part: Part, columns: list[str]) -> None:
        self._part = part
        self._columns = columns
        self._schema = pa.schema([(name, ARROW_TYPES[COLUMNS[name]]) for name in columns])
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self._bytes = 0
        self._offsets: list[int | None] = []
        self._timestamps: list[int | None] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers | None] = []
        self._facts: list[Facts] = []
        self._problems: list[str | None] = []
        self._lengths: list[int] = []  # how many rows each of the facts is for

    def add(self, facts: Facts, piece: Columns) -> None:
        self._offsets += piece.offsets
        self._timestamps += piece.timestamps
        self._keys += piece.keys
        self._values += piece.values
        self._headers += piece.headers
        self._begin(facts, None, len(piece.offsets))
        self._bytes += sum(map(len, filter(None, piece.keys))) + sum(map(len, filter(None, piece.values)))

    def add_problem(self, facts: Facts, problem: str) -> None:
        """A row without a record."""
        for column in (self._offsets, self._timestamps):
            column.append(None)
        for texts in (self._keys, self._values):
            texts.append(None)
        self._headers.append(None)
        self._begin(facts, problem, 1)

    def _begin(self, facts: Facts, problem: str | None, count: int) -> None:
        self._facts.append(facts)
        self._problems.append(problem)
        self._lengths.append(count)
        self.count += count

    def is_full(self) -> bool:
        return self.count >= ROWS_MAX or self._bytes >= BATCH_BYTES_MAX

    def take(self) -> pa.RecordBatch:
        """All rows as columns; there are none any more."""
        batch = pa.RecordBatch.from_arrays([self._column(name) for name in self._columns], schema=self._schema)
        self._clear()
        return batch

    def _column(self, name: str) -> pa.Array:
        kind = ARROW_TYPES[COLUMNS[name]]
        # The whole batch of rows comes from one part, so each field of the part is the same in all
        # rows.
        if name in Part._fields:
            return pa.repeat(pa.scalar(getattr(self._part, name), kind), self.count)
        match name:
            case "segment":
                return pa.repeat(pa.scalar(self._part.path.rpartition("/")[2], kind), self.count)
            case "problem":
                return self._spread(self._problems, kind)
            case "sequence":
                return self._sequences(kind)
        if name in RECORD_COLUMNS:
            return pa.array(getattr(self, RECORD_COLUMNS[name]), kind)
        return self._spread([getattr(facts, name) for facts in self._facts], kind)

    def _spread(self, values: list[str | None] | list[int | None], kind: pa.DataType) -> pa.Array:
        """One value a batch as one value a row."""
        # This is the usual case of a large batch, and needs no index.
        if len(values) == 1:
            return pa.repeat(pa.scalar(values[0], kind), self.count)
        return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(values)), self._lengths)))

    def _sequences(self, kind: pa.DataType) -> pa.Array:
        """The number that each record's producer gave it: that of the batch, and the distance from its first offset."""
        firsts = self._spread([facts.base_sequence for facts in self._facts], pa.int64())
        bases = self._spread([facts.base_offset for facts in self._facts], pa.int64())
        offsets = pa.array(self._offsets, pa.int64())
        # Sequence numbers begin again at 0 after the largest 32-bit number, as in Kafka.
        numbers = pc.bit_wise_and(pc.add(firsts, pc.subtract(offsets, bases)), SEQUENCE_MAX)
        return pc.if_else(pc.less(firsts, 0), pa.scalar(NO_NUMBER, pa.int64()), numbers).cast(kind)
