"""Streams: once and at a pace, stopped and resumed, with limits, and with topics and partitions that come later."""

import json
from typing import Any

from compat_tests.spark.place import Place, numbered


def _numbers(rows: list[list[Any]]) -> list[int]:
    return sorted(int(row[-1]) for row in rows)


def stream_of_what_is_there(place: Place) -> Any:
    """`availableNow` takes all there is and ends; the next run goes on from the checkpoint."""
    topic = place.topic("numbers", 3)
    table = place.table(place.stream(subscribe=topic, startingOffsets="earliest"))
    seen = []
    for begin, end in ((0, 600), (600, 600), (600, 900)):
        place.send(topic, numbered(range(begin, end), 3))
        rows = table.catch_up()
        assert _numbers(rows) == list(range(end))
        seen.append(len(rows))
    return [seen, rows]


def stream_at_a_pace(place: Place) -> Any:
    """A processing-time trigger takes what arrives while it runs."""
    topic = place.topic("numbers", 3)
    table = place.table(place.stream(subscribe=topic, startingOffsets="earliest"))
    query = table.start()
    for begin in range(0, 500, 100):
        place.send(topic, numbered(range(begin, begin + 100), 3))
        table.await_rows(begin + 100, query)
    table.stop(query)
    rows = table.rows()
    assert _numbers(rows) == list(range(500))
    assert len(table.batches) >= 5
    return rows


def stream_that_is_stopped_and_resumed(place: Place) -> Any:
    """Stopped in the midst of its work, with records before, between and after: each is there once."""
    topic = place.topic("numbers", 2)
    table = place.table(place.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100))
    for begin in range(0, 1200, 400):
        place.send(topic, numbered(range(begin, begin + 400), 2))
        query = table.start()
        table.await_rows(begin + 100, query)
        table.stop(query)
    rows = table.catch_up()
    assert _numbers(rows) == list(range(1200))
    return rows


def stream_with_a_limit(place: Place) -> Any:
    """`maxOffsetsPerTrigger` cuts what is there into batches, also of `availableNow`."""
    topic = place.topic("numbers", 2)
    place.send(topic, numbered(range(1000), 2))
    table = place.table(place.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=300))
    rows = table.catch_up()
    assert table.batches == [300, 300, 300, 100], table.batches
    assert _numbers(rows) == list(range(1000))
    return [table.batches, rows]


def stream_with_a_minimum(place: Place) -> Any:
    """`minOffsetsPerTrigger` waits for so many, and `minPartitions` splits them; `maxTriggerDelay` ends the waiting."""
    topic = place.topic("numbers", 2)
    place.send(topic, numbered(range(100), 2))
    options = {"minOffsetsPerTrigger": 80, "maxTriggerDelay": "3s", "minPartitions": 6}
    table = place.table(place.stream(subscribe=topic, startingOffsets="earliest", **options))
    query = table.start()
    table.await_rows(100, query)
    place.send(topic, numbered(range(100, 120), 2))
    rows = table.await_rows(120, query)
    table.stop(query)
    assert table.batches == [100, 20], table.batches
    return rows


def stream_of_assigned_partitions(place: Place) -> Any:
    """`assign` reads these and no others."""
    topic = place.topic("numbers", 4)
    place.send(topic, numbered(range(40), 4))
    options = {"assign": json.dumps({topic: [1, 3]}), "startingOffsets": "earliest"}
    rows = place.table(place.stream(**options)).catch_up()
    assert _numbers(rows) == list(range(1, 40, 2))
    return rows


def stream_of_a_pattern(place: Place) -> Any:
    """A topic that fits the pattern and is made while the query runs is read from its beginning."""
    first = place.topic("red-first", 2)
    place.send(first, numbered(range(10), 2))
    options = {"subscribePattern": f"{place.script}-red-.*", "startingOffsets": "earliest"}
    options["kafka_metadata_max_age_ms"] = 500
    table = place.table(place.stream(**options), "topic", "partition", "offset", "CAST(value AS STRING)")
    query = table.start()
    table.await_rows(10, query)
    place.send(place.topic("red-second", 2), numbered(range(10, 20), 2))
    place.send(place.topic("green"), numbered(range(20, 30)))
    rows = table.await_rows(20, query)
    table.stop(query)
    assert _numbers(rows) == list(range(20))
    return rows


def stream_of_new_partitions(place: Place) -> Any:
    """Partitions that are added while the query runs are read from their beginning."""
    topic = place.topic("numbers", 1)
    place.send(topic, numbered(range(20)))
    table = place.table(place.stream(subscribe=topic, startingOffsets="latest", kafka_metadata_max_age_ms=500))
    query = table.start()
    query.processAllAvailable()
    place.more_partitions(topic, 3)
    place.send(topic, numbered(range(30, 60), 3))
    rows = table.await_rows(30, query)
    table.stop(query)
    assert _numbers(rows) == list(range(30, 60)), rows
    place.send(topic, numbered(range(60, 66), 3))
    assert _numbers(table.catch_up()) == list(range(30, 66))
    return rows
