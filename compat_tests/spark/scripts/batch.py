"""Batches: written records are read; choice of topics, splits, and the columns of a record."""

from typing import Any

from compat_tests.spark.place import NEW_YEAR_MS, Place, Record, failure, numbered, plain, until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TEXTS = ("topic", "partition", "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")


def batch_is_written_and_read(place: Place) -> Any:
    """Keys and values, of which some are null and some are empty."""
    topic = place.topic("letters")
    frame = place.sql("VALUES ('a', '1'), (NULL, '2'), ('', ''), ('b', NULL) AS letters(key, value)")
    place.write(frame.coalesce(1), topic=topic)
    rows = plain(place.read(subscribe=topic).selectExpr("offset", "key", "value", "timestampType"))
    assert rows == [[0, "a", "1", 0], [1, None, "2", 0], [2, "", "", 0], [3, "b", None, 0]]
    return rows


def batch_of_every_codec(place: Place) -> Any:
    """Spark's sink compresses, a broker recompresses, librdkafka compresses: all of it is read."""
    count = 2000
    numbers = place.spark.range(count).selectExpr("CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 9) AS value")
    topics = []
    for codec in CODECS:
        by_spark, by_broker = place.topic(f"spark-{codec}", 2), place.topic(f"broker-{codec}", 2)
        topics += [by_spark, by_broker]
        place.configure(by_broker, compression_type="uncompressed" if codec == "none" else codec)
        place.write(numbers, topic=by_spark, kafka_compression_type=codec)
        place.write(numbers, topic=by_broker, kafka_compression_type="gzip" if codec == "zstd" else "zstd")
        place.send(by_spark, numbered(range(count), 2), compression_type=codec)
    place.view(place.read(subscribe=",".join(topics)), "records")
    totals = place.sql(
        "SELECT topic, count(*), sum(CAST(CAST(key AS STRING) AS BIGINT)), sum(length(value)), count(DISTINCT value) "
        "FROM records GROUP BY topic ORDER BY topic"
    )
    found = {topic: row for topic, *row in plain(totals)}
    assert sorted(found) == sorted(topics)
    sums = {topic: row[:2] for topic, row in found.items()}
    keyed = sum(range(count))
    assert sums == {topic: [count * (1 + ("-spark-" in topic)), keyed] for topic in sums}
    return found


def batch_of_several_topics(place: Place) -> Any:
    """`subscribe` with a list, `subscribePattern`, and `assign` with some partitions."""
    one, two = place.topic("red-one", 2), place.topic("red-two", 2)
    for topic in (one, two, place.topic("green", 2)):
        place.send(topic, [Record(topic, str(partition), partition) for partition in (0, 1)])
    assign = f'{{"{one}":[1],"{two}":[0]}}'
    chosen = {
        "subscribe": place.read(subscribe=f"{one},{two}"),
        "pattern": place.read(subscribePattern=f"{place.script}-red-.*"),
        "assign": place.read(assign=assign),
    }
    found = {name: sorted(plain(frame.selectExpr(*TEXTS))) for name, frame in chosen.items()}
    assert found["subscribe"] == found["pattern"]
    assert len(found["subscribe"]) == 4
    assert [row[:2] for row in found["assign"]] == [[one, 1], [two, 0]]
    return found


def batch_of_nothing(place: Place) -> Any:
    """Topics without records, topics that are not there, patterns that fit nothing."""
    empty = place.topic("empty", 3)
    assert plain(place.read(subscribe=empty)) == []
    assert plain(place.read(subscribePattern=f"{place.script}-none.*")) == []
    return failure(lambda: plain(place.read(subscribe=f"{place.script}-missing")))


def batch_with_headers(place: Place) -> Any:
    """`includeHeaders`: none, several with one name, a null and an empty value."""
    topic = place.topic("letters")
    many = (("a", b"1"), ("b", None), ("a", b"\x00\xff"), ("", b""))
    place.send(topic, [Record("without"), Record("with", headers=many)])
    rows = plain(place.read(subscribe=topic, includeHeaders="true").selectExpr("CAST(value AS STRING)", "headers"))
    assert rows == [["without", None], ["with", [["a", "1"], ["b", None], ["a", "\x00\xff"], ["", ""]]]]
    return rows


def batch_in_more_parts(place: Place) -> Any:
    """`minPartitions` splits what is read, and nothing is lost between the parts."""
    topic = place.topic("numbers", 2)
    place.send(topic, numbered(range(1000), 2))
    found = []
    for options in ({}, {"minPartitions": 7}):
        frame = place.read(subscribe=topic, **options)
        totals = plain(frame.selectExpr("count(*)", "sum(CAST(CAST(value AS STRING) AS INT))", "count(DISTINCT value)"))
        assert totals == [[1000, 499_500, 1000]], totals
        found.append(frame.rdd.getNumPartitions())
    assert found[0] == 2, found
    assert found[1] >= 7, found
    return found


def batch_of_times(place: Place) -> Any:
    """The producer's time, and the broker's where the topic says so."""
    created, appended = place.topic("created"), place.topic("appended", message_timestamp_type="LogAppendTime")
    times = [NEW_YEAR_MS, NEW_YEAR_MS + 999, NEW_YEAR_MS - 1]
    for topic in (created, appended):
        place.send(topic, [Record(str(at), timestamp_ms=at) for at in times])
    rows = plain(place.read(subscribe=created).selectExpr("unix_millis(timestamp)", "timestampType"))
    assert rows == [[at, 0] for at in times]
    is_near = "timestamp BETWEEN current_timestamp() - INTERVAL 5 MINUTES AND current_timestamp()"
    near = plain(place.read(subscribe=appended).selectExpr(is_near, "timestampType"))
    assert near == [[True, 1]] * 3
    return rows + near


def batch_of_a_compacted_topic(place: Place) -> Any:
    """Offsets that are missing are no data loss: the last value of each key is there."""
    topic = place.topic(
        "latest", cleanup_policy="compact", segment_ms=200, min_cleanable_dirty_ratio="0.01", delete_retention_ms=0
    )
    for begin in range(0, 400, 100):
        place.send(topic, [Record(str(number), str(number % 10)) for number in range(begin, begin + 100)])

    def look() -> int:
        place.send(topic, [Record("end", "end")])  # rolls the segment before it
        return int(place.read(subscribe=topic).count())

    until(look, lambda count: count < 100)
    rows = plain(place.read(subscribe=topic).selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)"))
    latest = dict(row for row in rows if row[0] != "end")
    assert latest == {str(number % 10): str(number) for number in range(390, 400)}, latest
    return latest


def batch_that_reads_committed(place: Place) -> Any:
    """`kafka.isolation.level`: where no transaction is open, committed records are all records."""
    topic = place.topic("letters", 2)
    place.send(topic, numbered(range(500), 2))
    options = {"subscribe": topic, "kafka_isolation_level": "read_committed"}
    rows = plain(place.read(**options).groupBy("partition").count().orderBy("partition"))
    assert rows == [[0, 250], [1, 250]]
    return rows
