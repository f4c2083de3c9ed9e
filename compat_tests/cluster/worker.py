"""A client under load in a process of its own, which records responses in a ledger: an idempotent producer, or a group
member that commits.

    python -m compat_tests.cluster.worker produce|consume FILE

The file has in JSON: client (its settings), topic, partitions, ledger, name; a producer also `rate` (records/s) and
`size` (bytes), a consumer also `group` and `commit_every` (seconds). SIGTERM ends it in order: the producer waits until
every record's fate is known.
"""

import json
import os
import pathlib
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.cluster.ledger import Ledger, make_value, read_stamp

FATE_SECONDS = 90
ASK_SECONDS = 10.0
QUICK_RETRIES = {
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": 3000,
    # With "rebootstrap", the default, librdkafka 2.16.1 stops for ever if no broker is left while positions are being
    # checked against a leader epoch: its last words are "Starting re-bootstrap sequence".
    "metadata.recovery.strategy": "none",
}
QUIET = {"log_level": 2}  # what it says of brokers that are gone by design
WORDS = {"debug": os.environ["CLUSTER_DEBUG"]} if "CLUSTER_DEBUG" in os.environ else QUIET  # librdkafka's contexts


# What a broker that has just started, and knows no topics yet, makes librdkafka believe until it asks another one.
FOR_A_MOMENT = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Ended:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True


def produce(options: dict[str, Any], ledger: Ledger, ended: Ended) -> None:
    """Send at a steady pace, partition by partition, and note the fate of every record."""
    name, partitions, rate = options["name"], options["partitions"], options["rate"]
    producer = Producer(
        {
            **options["client"],
            "client.id": name,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": options.get("linger_ms", 5),
            "message.timeout.ms": 300_000,
            **QUICK_RETRIES,
            **WORDS,
        }
    )

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        stamp = read_stamp(message.value())
        place = {"topic": message.topic(), "partition": message.partition(), **stamp._asdict()}
        if error is None:
            ledger.write("acked", offset=message.offset(), **place)
        else:
            ledger.write("failed", reason=str(error), **place)

    sent, began = 0, time.monotonic()
    while not ended.is_set:
        due = min(int((time.monotonic() - began) * rate), sent + 100)
        if len(producer) > 5000:  # the cluster does not answer: what waits is enough
            began = time.monotonic() - sent / rate
            due = sent
        while sent < due:
            value = make_value(name, sent, options["size"])
            try:
                producer.produce(
                    options["topic"], value, key=b"%d" % sent, partition=sent % partitions, on_delivery=on_delivery
                )
            except KafkaException as error:
                if error.args[0].code() not in FOR_A_MOMENT:
                    raise
                break  # it was not taken
            sent += 1
        producer.poll(0.01)
    left = producer.flush(FATE_SECONDS)
    ledger.write("sent", producer=name, count=sent, undecided=left)


class Member:
    """A group member: it reads on from what is committed, and commits what it has read."""

    def __init__(self, options: dict[str, Any], ledger: Ledger) -> None:
        self._options = options
        self._ledger = ledger
        self._who = {"member": options["name"], "group": options["group"]}
        self._positions: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                **options["client"],
                "client.id": options["name"],
                "group.id": options["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 1000,
                "fetch.wait.max.ms": 200,
                **QUICK_RETRIES,
                **WORDS,
            }
        )
        self._consumer.subscribe([options["topic"]], on_assign=self._assigned, on_revoke=self._revoked)

    def run(self, ended: Ended) -> None:
        commit_at = time.monotonic()
        while not ended.is_set:
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    self._note(message)
            if time.monotonic() >= commit_at:
                self._commit()
                commit_at = time.monotonic() + self._options["commit_every"]
        self._commit()
        self._consumer.close()

    def _note(self, message: Message) -> None:
        stamp = read_stamp(message.value())
        place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        self._positions[message.topic(), message.partition()] = message.offset() + 1
        self._ledger.write("read", **self._who, **place, **stamp._asdict())

    def _commit(self) -> None:
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in self._positions.items()]
        if not wanted:
            return
        try:
            taken = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return  # the group changes, or its coordinator is gone: the next owner starts where the last commit was
        for place in taken or []:
            if place.error is None:
                self._ledger.write(
                    "committed", **self._who, topic=place.topic, partition=place.partition, offset=place.offset
                )
                if self._positions.get((place.topic, place.partition)) == place.offset:
                    del self._positions[place.topic, place.partition]

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Ask for what is committed, note it, and read on from there."""
        asked = time.time()
        self._positions.clear()
        try:
            committed = consumer.committed(places, timeout=ASK_SECONDS)
        except KafkaException:
            return  # the client asks by itself, and goes on asking
        if any(place.error is not None for place in committed):
            return
        for place in committed:
            offset = max(place.offset, -1)  # librdkafka's word for nothing is -1001
            where = {"topic": place.topic, "partition": place.partition, "offset": offset}
            self._ledger.write("resumed", asked=asked, **self._who, **where)
            place.offset = max(offset, 0)
        consumer.assign(committed)

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._commit()
        self._positions.clear()
        for place in places:
            self._ledger.write("revoked", **self._who, topic=place.topic, partition=place.partition)


def main() -> None:
    work, options = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text())
    ended = Ended()
    ledger = Ledger(pathlib.Path(options["ledger"]))
    if work == "produce":
        produce(options, ledger, ended)
    else:
        Member(options, ledger).run(ended)
    ledger.close()


if __name__ == "__main__":
    main()
