"""The lines that `barnabas log dump` prints, of one file or of all files of a directory (edge: it writes times)."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from barnabas.storage.disk import Disk, StorageError
from barnabas.storage.dump import Row, Value, files_below, is_time, read_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def dump_lines(disk: Disk, path: str, failures: list[StorageError], *, records: bool, as_json: bool) -> Iterator[str]:
    """The lines of a file, or of all files of a directory, each after a line with its path.

    A file that cannot be read to its end is added to `failures`. StorageError if a directory cannot be listed.
    """
    is_directory = disk.is_directory(path)
    for file in files_below(disk, path) if is_directory else [path]:
        if is_directory:
            yield json.dumps({"file": file}) if as_json else f"== {file}"
        try:
            for row in read_rows(disk, file, records=records):
                yield json.dumps(row) if as_json else as_text(row)
        except StorageError as error:
            failures.append(error)


def as_text(row: Row) -> str:
    """A row as a line, with times as a person reads them."""
    return "  ".join(f"{name}: {_text(name, value)}" for name, value in row.items())


def _text(name: str, value: Value) -> str:
    if isinstance(value, int) and is_time(name):
        return time_text(value)
    return "-" if value is None else str(value)


def time_text(since_1970_ms: int) -> str:
    """A time in UTC, to the millisecond; "-" for none. A number outside the calendar stays as it is."""
    if since_1970_ms == -1:
        return "-"
    try:
        when = EPOCH + timedelta(milliseconds=since_1970_ms)
    except OverflowError:
        return str(since_1970_ms)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{since_1970_ms % 1000:03}Z"
