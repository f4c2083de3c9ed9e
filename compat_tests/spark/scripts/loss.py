"""What a query does when records are gone that it has not read: with `failOnDataLoss` it fails, without it goes on.

A query reads the first records and stops. Then records go (by DeleteRecords, by retention, with their topic), others
come, and the query is resumed from its checkpoint.
"""

from collections.abc import Callable
from typing import Any

from compat_tests.spark.place import Place, Table, failure, numbered, until

Loss = Callable[[Place, str], None]


def _resumed_after(place: Place, topic: str, lose: Loss) -> dict[str, Any]:
    """What two queries that had read the first ten records do after this loss; only one has failOnDataLoss=false."""
    place.send(topic, numbered(range(10)))
    tables: dict[str, Table] = {}
    for fails in ("true", "false"):
        options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": fails}
        tables[fails] = place.table(place.stream(**options), name=f"fails-{fails}")
        tables[fails].catch_up()
    lose(place, topic)
    failed = failure(tables["true"].catch_up)
    return {"failed": failed, "went on": tables["false"].catch_up(), "had": tables["true"].rows()}


def loss_by_deleted_records(place: Place) -> Any:
    """DeleteRecords up to the middle of what was not read."""

    def lose(place: Place, topic: str) -> None:
        place.send(topic, numbered(range(10, 30)))
        place.delete_records(topic, 0, 20)

    found = _resumed_after(place, place.topic("numbers"), lose)
    assert [row[1] for row in found["went on"]] == [*range(10), *range(20, 30)], found
    return found


def loss_of_all_records(place: Place) -> Any:
    """DeleteRecords up to the end: the start and the end of the log are the same, and nothing is left to read."""

    def lose(place: Place, topic: str) -> None:
        place.send(topic, numbered(range(10, 30)))
        place.delete_records(topic, 0, 30)

    found = _resumed_after(place, place.topic("numbers"), lose)
    assert [row[1] for row in found["went on"]] == list(range(10)), found
    return found


def loss_by_retention(place: Place) -> Any:
    """Whole segments go once the log is too large."""
    small = {"segment_bytes": 2000, "retention_bytes": -1}

    def lose(place: Place, topic: str) -> None:
        place.send(topic, numbered(range(10, 60)), batch_num_messages=1)  # segments end between batches
        place.configure(topic, retention_bytes=500)
        until(lambda: place.start_offset(topic), lambda start: start is not None and start > 10)

    found = _resumed_after(place, place.topic("numbers", **small), lose)
    rows = found["went on"]
    assert rows[-1][1] == 59, found
    assert 0 < len(rows) - 10 < 50, found
    return [found["failed"], found["had"], rows[-1]]


def loss_of_the_topic(place: Place) -> Any:
    """Deleted, and made again with fewer records than had been read."""

    def lose(place: Place, topic: str) -> None:
        place.delete_topic(topic)
        place.topic("numbers")
        place.send(topic, numbered(range(100, 104)))

    topic = place.topic("numbers")
    found = _resumed_after(place, topic, lose)
    return found


def loss_of_the_topic_for_good(place: Place) -> Any:
    """Deleted, and not created again: then a query fails, whatever `failOnDataLoss` is."""
    topic = place.topic("numbers")
    place.send(topic, numbered(range(10)))
    table = place.table(place.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false"))
    table.catch_up()
    place.delete_topic(topic)
    return failure(table.catch_up)


def loss_of_the_topic_unnoticed(place: Place) -> Any:
    """Deleted, and made again with more records than had been read: offsets are all a query knows, and it goes on."""

    def lose(place: Place, topic: str) -> None:
        place.delete_topic(topic)
        place.topic("numbers")
        place.send(topic, numbered(range(100, 120)))

    topic = place.topic("numbers")
    place.send(topic, numbered(range(10)))
    table = place.table(place.stream(subscribe=topic, startingOffsets="earliest"))
    table.catch_up()
    lose(place, topic)
    rows = table.catch_up()
    assert [row[2] for row in rows[10:]] == [str(number) for number in range(110, 120)], rows
    return rows


def loss_while_it_runs(place: Place) -> Any:
    """The topic of a running query is deleted and recreated; the query with failOnDataLoss=false reads new records.

    Whether it reads the new topic from its beginning depends on when it looks; later records are read in any case.
    """
    topic = place.topic("numbers")
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    patient = {"fetchOffset_numRetries": 25, "fetchOffset_retryIntervalMs": 200}  # while there is no such topic
    table = place.table(place.stream(**options, **patient), "CAST(value AS STRING)")
    query = table.start()
    place.send(topic, numbered(range(10)))
    table.await_rows(10, query)
    place.delete_topic(topic)
    place.topic("numbers")
    place.send(topic, numbered(range(100, 140)))
    table.await_rows(10 + 30, query)
    query.processAllAvailable()
    table.stop(query)
    values = sorted(int(value) for (value,) in table.rows())
    assert len(values) == len(set(values)), values
    assert values[:10] == list(range(10)), values
    assert values[-30:] == list(range(110, 140)), values
    return values[-30:]
