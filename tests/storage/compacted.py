"""A compacted log, and what was written to it."""

import contextlib

from barnabas.storage.cleaner import Cleaning, cleanable_part
from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Batch, build_batch, read_all_records, read_batch_header, walk_entries

DAY = 86_400_000


class Compacted:
    """A compacted log with small segments, and what was written to it."""

    def __init__(self, world) -> None:
        self.world = world
        self.log = world.open()
        self.written = {}  # offset -> (key, value)

    def put(self, *pairs, **fields) -> int:
        """Append one batch; its base offset."""
        batch = build_batch(pairs, timestamp_ms=self.world.now_ms, **fields)
        base_offset = self.append(batch.data)
        self.written |= dict(enumerate(pairs, base_offset))
        return base_offset

    def append(self, data: bytearray) -> int:
        """Append any batch; its base offset."""
        batch = Batch(data, read_batch_header(data), self.world.now_ms, 0)
        appended = self.log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT, now_ms=self.world.now_ms)
        assert not isinstance(appended, ErrorCode), appended
        return appended.base_offset

    def roll(self) -> None:
        self.log.roll(self.world.now_ms)

    def cleaning(self, *, keys_max=1000, window_bytes=0) -> Cleaning:
        self.world.flush(self.log)  # only what is synced is cleaned
        part = cleanable_part(self.log, self.log.log_end_offset, self.world.now_ms)
        return Cleaning(self.log, part, keys_max=keys_max, window_bytes=window_bytes, now_ms=self.world.now_ms)

    def compact(self, **options) -> int:
        """One pass, as the broker does it; returns how many steps it had."""
        cleaning = self.cleaning(**options)
        steps = 0
        with contextlib.closing(cleaning.steps()) as going:
            for step in going:
                steps += 1
                if step.replacement is not None:
                    assert step.replacement.apply(self.world.now_ms)
        self.log.first_dirty_offset = cleaning.end_offset
        return steps

    def reopen(self, *, clean: bool = False) -> None:
        if clean:
            self.log = self.world.restarted(self.log)
        else:
            self.log = self.world.open()

    # what is there

    def batches(self):
        data = self.world.log_bytes(self.log)
        return [
            (read_batch_header(data, position), data[position : position + entry.size_bytes])
            for position, entry in walk_entries(data)
        ]

    def records(self):
        return [record for _, record in read_all_records(self.world.log_bytes(self.log))]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def leftovers(self) -> list[str]:
        return [name for name in self.world.names() if name.endswith((".cleaned", ".swap"))]


def fill(compacted, count: int, keys: int) -> None:
    for number in range(count):
        compacted.put((b"k%d" % (number % keys), b"v%d" % number))
        compacted.world.flush(compacted.log)
    compacted.roll()
    compacted.world.flush(compacted.log)


def join_segments(compacted) -> None:
    """From now on the small segments may become one."""
    compacted.log.config.segment_bytes = 1 << 20


def view(records) -> dict[bytes, bytes]:
    """Key -> value after a reader has read all records."""
    known = {}
    for key, value in records:
        known.pop(key, None)
        if value is not None:
            known[key] = value
    return known
