"""From where and to where: offsets by number, by word and by time, in batches and in streams."""

import json
from typing import Any

from compat_tests.spark.place import NEW_YEAR_MS, NUMBERED, Place, Record, failure, numbered, plain

STEP_MS = 1000


def _timed(place: Place, name: str = "timed") -> str:
    """A topic of two partitions with ten records each; record n is n seconds into the year."""
    topic = place.topic(name, 2)
    times = [(partition, number) for number in range(10) for partition in (0, 1)]
    place.send(topic, [Record(str(n), partition=p, timestamp_ms=NEW_YEAR_MS + n * STEP_MS) for p, n in times])
    return topic


def _spans(place: Place, topic: str, **options: object) -> list[list[Any]]:
    """The first and the last offset that is read of each partition."""
    frame = place.read(subscribe=topic, **options).groupBy("partition").agg({"*": "count", "offset": "min"})
    return sorted(plain(frame.selectExpr("partition", "`min(offset)`", "`count(1)`")))


def offsets_of_a_batch(place: Place) -> Any:
    """Words, numbers, and -2 and -1 for earliest and latest."""
    topic = _timed(place)

    def offsets(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    found = [
        _spans(place, topic, startingOffsets="earliest", endingOffsets="latest"),
        _spans(place, topic, startingOffsets=offsets(3, -2), endingOffsets=offsets(-1, 4)),
        _spans(place, topic, startingOffsets=offsets(3, 5), endingOffsets=offsets(3, 6)),
    ]
    assert found == [[[0, 0, 10], [1, 0, 10]], [[0, 3, 7], [1, 0, 4]], [[1, 5, 1]]], found
    return found


def offsets_that_cannot_be(place: Place) -> Any:
    """Beyond the end, before the start, for half of the partitions, latest as a beginning."""
    topic = _timed(place)
    place.delete_records(topic, 0, 5)
    quick = {"kafkaConsumer_pollTimeoutMs": 3000}  # for two minutes Spark would wait for offsets to come
    tried = {
        "beyond": {"startingOffsets": json.dumps({topic: {"0": 99, "1": 0}})},
        "end beyond": {"endingOffsets": json.dumps({topic: {"0": 99, "1": 10}})},
        "deleted": {"startingOffsets": json.dumps({topic: {"0": 2, "1": 0}})},
        "half": {"startingOffsets": json.dumps({topic: {"0": 5}})},
        "latest": {"startingOffsets": "latest"},
    }
    return {
        name: failure(lambda options=options: _spans(place, topic, **quick, **options))
        for name, options in tried.items()
    }


def offsets_that_were_deleted(place: Place) -> Any:
    """`failOnDataLoss` false: a batch begins with what there is."""
    topic = _timed(place)
    place.delete_records(topic, 0, 5)
    starting = json.dumps({topic: {"0": 2, "1": 0}})
    found = _spans(place, topic, startingOffsets=starting, failOnDataLoss="false")
    assert found == [[0, 5, 5], [1, 0, 10]], found
    return found


def offsets_by_time(place: Place) -> Any:
    """`startingTimestamp` and `endingTimestamp` for all, `…OffsetsByTimestamp` for each partition."""
    topic = _timed(place)

    def by_time(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": NEW_YEAR_MS + zero, "1": NEW_YEAR_MS + one}})

    found = [
        _spans(place, topic, startingTimestamp=NEW_YEAR_MS + 4000),
        _spans(place, topic, startingTimestamp=NEW_YEAR_MS + 3001, endingTimestamp=NEW_YEAR_MS + 6000),
        _spans(place, topic, startingOffsetsByTimestamp=by_time(0, 8000)),
        _spans(place, topic, endingOffsetsByTimestamp=by_time(1, 99_000)),
    ]
    assert found == [
        [[0, 4, 6], [1, 4, 6]],
        [[0, 4, 2], [1, 4, 2]],
        [[0, 0, 10], [1, 8, 2]],
        [[0, 0, 1], [1, 0, 10]],
    ], found
    return found


def offsets_by_a_time_to_come(place: Place) -> Any:
    """A time after the last record: an error, or with `startingOffsetsByTimestampStrategy` latest nothing to read."""
    topic = _timed(place)
    late = {"startingTimestamp": NEW_YEAR_MS + 60_000}
    assert _spans(place, topic, **late, startingOffsetsByTimestampStrategy="latest") == []
    return failure(lambda: _spans(place, topic, **late))


def offsets_of_a_stream(place: Place) -> Any:
    """Streams that begin at numbers and at times; only the first start asks."""
    topic = _timed(place)
    numbers = json.dumps({topic: {"0": 8, "1": -2}})
    by_number = place.table(place.stream(subscribe=topic, startingOffsets=numbers), *NUMBERED, name="by-number")
    by_time = place.table(place.stream(subscribe=topic, startingTimestamp=NEW_YEAR_MS + 9000), name="by-time")
    found = [by_number.catch_up(), by_time.catch_up()]
    place.send(topic, numbered([100]))
    found += [by_number.catch_up(), by_time.catch_up()]
    assert list(map(len, found)) == [12, 2, 13, 3], found
    return found


def offsets_from_now_on(place: Place) -> Any:
    """A stream begins at the end by default."""
    topic = place.topic("numbers", 2)
    place.send(topic, numbered(range(10), 2))
    table = place.table(place.stream(subscribe=topic))
    assert table.catch_up() == []
    place.send(topic, numbered(range(10, 16), 2))
    rows = table.catch_up()
    assert [row[1] for row in rows] == [5, 6, 7, 5, 6, 7], rows
    return rows


def offsets_through_a_group(place: Place) -> Any:
    """Spark's older way to ask (`useDeprecatedOffsetFetching`): its driver joins a group and is assigned partitions."""
    topic = _timed(place)
    older = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    place.spark.conf.set(older, "true")
    try:
        found = [
            _spans(place, topic, groupIdPrefix="spans"),
            _spans(place, topic, startingTimestamp=NEW_YEAR_MS + 3001, kafka_group_id="readers"),
            _spans(place, topic, endingOffsets=json.dumps({topic: {"0": 3, "1": -1}})),
        ]
        table = place.table(place.stream(subscribe=topic, startingOffsets="earliest"))
        rows = table.catch_up()
        place.send(topic, numbered([100]))
        rows = table.catch_up()
    finally:
        place.spark.conf.unset(older)
    assert found == [[[0, 0, 10], [1, 0, 10]], [[0, 4, 6], [1, 4, 6]], [[0, 0, 3], [1, 0, 10]]], found
    assert len(rows) == 21, rows
    return [found, rows]
