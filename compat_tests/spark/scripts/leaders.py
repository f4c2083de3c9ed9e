"""A partition's leader is killed while a query reads from it and another one writes to it."""

import threading
from typing import Any

from confluent_kafka import KafkaException

from compat_tests.spark.place import Place, numbered, plain

COUNT = 30_000
CHUNK = 1000
BEFORE = COUNT // 3  # what is there when the query begins
PATIENCE = {"kafka_request_timeout_ms": 5000, "kafka_default_api_timeout_ms": 10_000}  # of the driver: see FINDINGS


def leader_is_killed(place: Place) -> Any:
    """The sum over the output table is exact; the sink may repeat, but leaves nothing out."""
    source, target = place.topic("numbers", 3), place.topic("copies", 3)
    place.send(source, numbered(range(BEFORE), 3))
    options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 2500, **PATIENCE}
    table = place.table(place.stream(**options), "CAST(CAST(value AS STRING) AS BIGINT) AS number")
    reading = table.start()
    copying = place.to_kafka(place.stream(**options).select("value"), topic=target)
    failed: list[Exception] = []
    producing = threading.Thread(target=_produce, args=(place, source, failed))
    table.await_rows(BEFORE // 2, reading)
    producing.start()
    place.kill(place.leader(source))
    producing.join()
    assert not failed, failed
    table.await_rows(COUNT, reading)
    for query in (reading, copying):
        query.processAllAvailable()
    table.stop(reading)
    copying.stop()
    copied = place.read(subscribe=target).selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS number").distinct()
    totals = ("count(*)", "count(DISTINCT number)", "sum(number)")
    found = [plain(frame.selectExpr(*totals))[0] for frame in (table.frame(), copied)]
    assert found == [[COUNT, COUNT, COUNT * (COUNT - 1) // 2]] * 2, found
    return found


def _produce(place: Place, topic: str, failed: list[Exception]) -> None:
    try:
        for begin in range(BEFORE, COUNT, CHUNK):
            place.send(topic, numbered(range(begin, begin + CHUNK), 3))
    except (AssertionError, KafkaException) as error:
        failed.append(error)
