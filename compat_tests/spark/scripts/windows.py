"""State over time, from topic to topic: counts by window, and two streams joined, both with watermarks."""

from typing import Any

from compat_tests.spark.place import NEW_YEAR_MS, Place, Record, plain

SECOND_MS = 1000
LATE = "10 seconds"


def _at(seconds: int, value: str, key: str = "k") -> Record:
    return Record(value, key, timestamp_ms=NEW_YEAR_MS + seconds * SECOND_MS)


def _into_topic(place: Place, frame: Any, target: str) -> list[list[Any]]:
    """Run over what is there into this topic; what it holds then."""
    query = place.to_kafka(frame, topic=target)
    query.processAllAvailable()
    query.stop()
    rows = plain(place.read(subscribe=target).selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)"))
    return sorted(rows)


def windows_are_counted(place: Place) -> Any:
    """Windows of a minute are written once the watermark has passed them; what is later than that is dropped."""
    source, target = place.topic("events"), place.topic("counts")
    stream = place.stream(subscribe=source, startingOffsets="earliest").withWatermark("timestamp", LATE)
    place.view(stream, "events")
    counts = place.sql(
        "SELECT CAST(key AS STRING) AS key, to_json(struct(date_format(window.start, 'HH:mm') AS at, "
        "count(*) AS count, sum(CAST(CAST(value AS STRING) AS INT)) AS sum)) AS value "
        "FROM events GROUP BY window(timestamp, '1 minute'), key"
    )
    place.send(source, [_at(number, str(number), "ab"[number % 2]) for number in range(180)])
    first = _into_topic(place, counts, target)
    place.send(source, [_at(5, "1000000", "a"), _at(130, "1000", "a"), _at(600, "0", "a")])
    last = _into_topic(place, counts, target)
    minutes = [["a", f'{{"at":"00:0{m}","count":30,"sum":{870 + 1800 * m}}}'] for m in (0, 1)]
    assert [row for row in first if row[0] == "a"] == minutes, first
    assert last[:2] == minutes, last
    assert last[2] == ["a", f'{{"at":"00:02","count":31,"sum":{870 + 3600 + 1000}}}'], last
    return [first, last]


def streams_are_joined(place: Place) -> Any:
    """Clicks within half a minute of what was shown; shown without a click once none can come (left outer)."""
    shown, clicks, target = place.topic("shown"), place.topic("clicks"), place.topic("pairs")
    for name, topic in (("shown", shown), ("clicks", clicks)):
        stream = place.stream(subscribe=topic, startingOffsets="earliest")
        place.view(
            stream.selectExpr("CAST(key AS STRING) AS id", "CAST(value AS STRING) AS what", "timestamp")
            .withColumnRenamed("timestamp", f"{name}_at")
            .withWatermark(f"{name}_at", LATE),
            name,
        )
    joined = place.sql(
        "SELECT shown.id AS key, concat(shown.what, '/', coalesce(clicks.what, '-')) AS value "
        "FROM shown LEFT JOIN clicks ON shown.id = clicks.id "
        "AND clicks_at BETWEEN shown_at AND shown_at + INTERVAL 30 SECONDS"
    )
    place.send(shown, [_at(number, f"page-{number}", str(number)) for number in range(60)])
    place.send(clicks, [_at(number + 10, "click", str(number)) for number in range(0, 60, 2)])
    place.send(clicks, [_at(number + 45, "late", str(number)) for number in range(1, 60, 2)])
    _into_topic(place, joined, target)
    for topic in (shown, clicks):  # moves both watermarks
        place.send(topic, [_at(900, "end", "end")])
    rows = _into_topic(place, joined, target)
    ended = [row for row in rows if row[0] != "end"]
    expected = [[str(n), f"page-{n}/{'-' if n % 2 else 'click'}"] for n in range(60)]
    assert ended == sorted(expected), ended
    return ended
