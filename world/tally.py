"""What is counted where it happens: plain integers, and a histogram of times (pure).

Theory of operation. Whatever happens for each request or batch costs an addition to an integer here, and nothing else:
no label is looked up, no lock is taken, nothing runs by itself. The object that counts hangs on what it counts (a
`TopicTally` on each `Partition` of the topic), so that code which has the one has the other. Readers
(`console/exposition.py`) come now and then, add up, and compare with what they saw a minute ago.

A counter never falls. Its readers compute rates, and take a fall for a restart of the broker.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

WINDOW_SECONDS = 60.0
LATEST_MAX = 256  # values that are not in their buckets yet: to sort them takes some 10 µs
MICROSECONDS = 1_000_000
# Four buckets for each power of two: the bounds of a bucket differ by a quarter at most.
SUB_BUCKETS = 4
# Enough for 2^47 µs, which is four years: no time needs a check whether it fits.
BUCKETS = 48 * SUB_BUCKETS


class Histogram:
    """Durations, or sizes, by their order of magnitude: `counts[i]` are those in the bucket `bounds(i)`.

    Values are whole numbers: `observe` takes seconds and counts microseconds, `note` takes the number itself.
    """

    __slots__ = ("_counts", "_newer", "_older", "_scale", "_total", "_turned_at", "latest")

    def __init__(self, scale: int = MICROSECONDS) -> None:
        """`scale` is what one in `latest` counts for: of durations in s, MICROSECONDS; of sizes in bytes, 1."""
        self._counts = [0] * BUCKETS
        self._total = 0.0
        self._scale = scale

        # Values that are in no bucket yet. Code that runs for each request appends here, and calls `put_away` at
        # LATEST_MAX of them.
        self.latest: list[float] = []

        # Copies of `counts`, taken when a window ended: what has been counted since the older one is recent.
        self._older: Sequence[int] = ()
        self._newer: Sequence[int] = ()
        self._turned_at = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        # To put each into its bucket at once would take three times as long.
        latest = self.latest
        latest.append(seconds)
        if len(latest) >= LATEST_MAX:
            self.put_away()

    def note(self, value: int) -> None:
        """Count a number, such as a size in bytes."""
        self._total += value
        self._counts[bucket_of(value)] += 1

    def put_away(self) -> None:
        """Count the latest values."""
        latest = self.latest
        scale = self._scale
        self._total += sum(latest)
        latest.sort()

        # The sorted values lie in a few buckets, and each bucket is filled at once: with the values from `start` up to
        # the first one beyond it.
        start = 0
        while start < len(latest):
            bucket = bucket_of(int(latest[start] * scale))
            end = max(start + 1, bisect_left(latest, bounds(bucket)[1] / scale, start))
            self._counts[bucket] += end - start
            start = end
        latest.clear()

    @property
    def counts(self) -> list[int]:
        """How many values each bucket has."""
        if self.latest:
            self.put_away()
        return self._counts

    @property
    def total(self) -> float:
        """The sum of all values, in the unit in which they came."""
        if self.latest:
            self.put_away()
        return self._total

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def recent(self, now: float) -> list[int]:
        """The counts of the last one to two windows of WINDOW_SECONDS; `now` in s, of any clock.

        A reader that comes less often gets what was counted since it came last but one.
        """
        # No task turns the windows: who reads does, so a histogram that is not read costs nothing.
        if now - self._turned_at >= WINDOW_SECONDS:
            self._older = self._newer
            self._newer = tuple(self.counts)
            self._turned_at = now
        if not self._older:
            return list(self.counts)
        return [count - before for count, before in zip(self.counts, self._older, strict=True)]


def bucket_of(value: int) -> int:
    """The number of the bucket that counts this value."""
    bits = value.bit_length()
    return (bits - 1) * SUB_BUCKETS + ((value >> (bits - 3)) & 3) if bits > 2 else value


def bounds(bucket: int) -> tuple[int, int]:
    """The smallest value that this bucket counts, and the smallest of the next one."""
    # The values 0 to 3 have a bucket each. The bucket numbers 4 to 7 are not used, so that the number of a bucket
    # follows from the bits of its values without a special case.
    octave, part = divmod(bucket, SUB_BUCKETS)
    if octave < 2:
        return bucket, bucket + 1
    width = 1 << (octave - 2)
    first = (SUB_BUCKETS + part) * width
    return first, first + width


def quantile(counts: Sequence[int], share: float) -> float:
    """The value below which this share of the counted ones lies, as if each bucket's were spread evenly; 0 of none."""
    # The buckets are in the order of their values, so the first at which the sum of the counts reaches `wanted` has it.
    wanted = sum(counts) * share
    seen = 0
    for bucket, count in enumerate(counts):
        if count and seen + count >= wanted:
            first, end = bounds(bucket)
            # A bucket of one value is exact.
            return first if end - first == 1 else first + (end - first) * (wanted - seen) / count
        seen += count
    return 0.0


def sum_of(rows: Iterable[Sequence[int]]) -> list[int]:
    """The sum of several histograms' counts."""
    return [sum(column) for column in zip(*rows, strict=True)]


class RecentRate:
    """How fast a counter has grown in the last one to two windows of WINDOW_SECONDS."""

    __slots__ = ("_newer", "_older")

    def __init__(self, now: float, value: float = 0.0) -> None:
        """`now` in s, of the clock of all later calls; `value` is the counter's now."""
        self._older = self._newer = (now, value)

    def per_second(self, now: float, value: float) -> float:
        """The rate up to now, when the counter is `value`."""
        if now - self._newer[0] >= WINDOW_SECONDS:
            self._older = self._newer
            self._newer = (now, value)
        since, before = self._older
        return (value - before) / (now - since) if now > since else 0.0


class TopicTally:
    """What has happened to the partitions of one topic on this broker. Kafka's BrokerTopicMetrics and ReplicaManager.

    Counts of requests are per partition that a request names, as Kafka's are.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_isr_updates",
        "failed_produce_requests",
        "fetch_conversions",
        "fetch_requests",
        "invalid_crc_records",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "no_key_records",
        "partitions",
        "produce_conversions",
        "produce_requests",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.partitions = 0  # of the topic, on this broker now: all of them share this tally
        self.messages_in = 0  # records appended as the leader, by clients and coordinators
        self.bytes_in = 0
        self.bytes_rejected = 0  # of batches above max.message.bytes
        self.bytes_out = 0  # records sent to consumers
        self.replication_bytes_in = 0  # records appended as a follower
        self.replication_bytes_out = 0  # records sent to followers
        self.produce_requests = 0
        self.failed_produce_requests = 0  # without expected errors, such as another leader
        self.fetch_requests = 0
        self.failed_fetch_requests = 0
        self.produce_conversions = 0  # batches that were rebuilt: another codec or message format
        self.fetch_conversions = 0
        self.invalid_crc_records = 0
        self.no_key_records = 0  # refused, because a compacted topic needs keys
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0

    def add(self, other: "TopicTally") -> None:
        """Add the counts of another tally to this one."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTS = tuple(name for name in TopicTally.__slots__ if name != "partitions")
