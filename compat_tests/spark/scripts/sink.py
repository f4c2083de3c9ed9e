"""The sink: columns for key, headers, topic and partition, and what it refuses."""

from typing import Any

from compat_tests.spark.place import Place, Record, failure, numbered, plain, until

READ = ("topic", "partition", "CAST(key AS STRING)", "CAST(value AS STRING)", "headers")


def _await_count(place: Place, topics: str, count: int) -> list[list[Any]]:
    read = place.read(subscribe=topics, includeHeaders="true").selectExpr(*READ)
    return sorted(until(lambda: plain(read), lambda rows: len(rows) >= count), key=str)


def sink_with_headers(place: Place) -> Any:
    """Headers come back as they went, a null value among them."""
    topic = place.topic("letters")
    headers = (
        "array(struct('a' AS key, X'00FF' AS value), struct('b' AS key, CAST(NULL AS BINARY) AS value)) AS headers"
    )
    place.write(place.sql(f"SELECT 'k' AS key, 'v' AS value, {headers}"), topic=topic, includeHeaders="true")
    rows = plain(place.read(subscribe=topic, includeHeaders="true").selectExpr(*READ))
    assert rows == [[topic, 0, "k", "v", [["a", "\x00\xff"], ["b", None]]]], rows
    return rows


def sink_with_a_partition_column(place: Place) -> Any:
    """Each record goes where its row says."""
    topic = place.topic("numbers", 4)
    place.write(
        place.spark.range(100).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 4 AS INT) AS partition"),
        topic=topic,
    )
    rows = sorted(plain(place.read(subscribe=topic).selectExpr("partition", "CAST(CAST(value AS STRING) AS INT)")))
    assert rows == sorted([number % 4, number] for number in range(100))
    return rows


def sink_with_keys(place: Place) -> Any:
    """Without a partition column the key decides, with the partitioner of Kafka's own producer."""
    topic = place.topic("keyed", 5)
    place.write(
        place.spark.range(200).selectExpr("CAST(id % 20 AS STRING) AS key", "CAST(id AS STRING) AS value"), topic=topic
    )
    rows = plain(place.read(subscribe=topic).selectExpr("CAST(key AS STRING)", "partition").distinct())
    assert len(rows) == 20, rows
    return sorted(rows)


def sink_with_a_topic_column(place: Place) -> Any:
    """Rows name their topics; the option, if there is one, has the last word."""
    one, two = place.topic("one"), place.topic("two")
    frame = place.sql(f"SELECT * FROM VALUES ('{one}', '1'), ('{two}', '2') AS rows(topic, value)")
    place.write(frame)
    place.write(frame, topic=one)
    rows = sorted(plain(place.read(subscribe=f"{one},{two}").selectExpr("topic", "CAST(value AS STRING)")))
    assert rows == [[one, "1"], [one, "1"], [one, "2"], [two, "2"]], rows
    return rows


def sink_without_a_topic(place: Place) -> Any:
    """A null topic, no topic at all, a topic that is not there, a partition that is not there."""
    topic = place.topic("letters")
    quick = {"kafka_max_block_ms": 3000}
    value = "SELECT 'v' AS value"
    tried = {
        "null": lambda: place.write(place.sql(f"{value}, CAST(NULL AS STRING) AS topic")),
        "none": lambda: place.write(place.sql(value)),
        "missing": lambda: place.write(place.sql(value), topic=f"{place.script}-missing", **quick),
        "partition": lambda: place.write(place.sql(f"{value}, 7 AS partition"), topic=topic, **quick),
        "too large": lambda: place.write(
            place.sql("SELECT repeat('x', 1500000) AS value"), topic=topic, kafka_max_request_size=3_000_000
        ),
    }
    found = {name: failure(action) for name, action in tried.items()}
    assert plain(place.read(subscribe=topic)) == []
    return found


def sink_of_a_stream(place: Place) -> Any:
    """From topic to topic, headers and partitions with it."""
    source, target = place.topic("source", 2), place.topic("target", 2)
    columns = ["key", "value", "headers", "partition"]
    stream = place.stream(subscribe=source, startingOffsets="earliest", includeHeaders="true").select(*columns)
    query = place.to_kafka(stream, topic=target, includeHeaders="true")
    records = [Record(str(n), f"k{n}", n % 2, headers=(("n", str(n).encode()),)) for n in range(100)]
    place.send(source, records)
    rows = _await_count(place, target, 100)
    query.stop()
    assert rows == sorted(([target, r.partition, r.key, r.value, [["n", r.value]]] for r in records), key=str)
    return rows


def sink_of_a_stream_with_a_null_topic(place: Place) -> Any:
    """A row without a topic ends the query."""
    source = place.topic("source")
    place.send(source, numbered(range(3)))
    stream = place.stream(subscribe=source, startingOffsets="earliest")
    query = place.to_kafka(stream.selectExpr("value", "CAST(NULL AS STRING) AS topic"))
    return failure(lambda: query.awaitTermination(60))


def sink_that_is_resumed(place: Place) -> Any:
    """Stopped and resumed from its checkpoint, the query copies each record once."""
    source, target = place.topic("source", 2), place.topic("target", 2)
    for begin in (0, 500):
        place.send(source, numbered(range(begin, begin + 500), 2))
        stream = place.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=200)
        query = place.to_kafka(stream.select("value"), topic=target)
        query.processAllAvailable()
        query.stop()
    rows = plain(place.read(subscribe=target).selectExpr("CAST(CAST(value AS STRING) AS INT)"))
    assert sorted(rows) == [[number] for number in range(1000)]
    return len(rows)
