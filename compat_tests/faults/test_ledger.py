"""A thousand acknowledgements are lost: what producers heard, beside the records of the log."""

import threading
from collections import Counter

import pytest
from confluent_kafka import Producer

from barnabas.testing import LocalBroker
from compat_tests.faults.matrix import written_to

PRODUCERS = 5  # of each kind
DROPPED = 1000
CHANCE = 0.5
QUICK = {"linger.ms": 0, "retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 20}
# When librdkafka (2.16) has lost its last connection, it forgets all brokers and asks the bootstrap servers again. If
# it has connected again meanwhile, it closes that connection, too, and repeats the Produce that is under way there: a
# copy that no fault has made. debug=broker shows it: REBOOTSTRAP, DECOMMISSION.
KEEPS_BROKERS = {"metadata.recovery.strategy": "none"}


class Writer(threading.Thread):
    """Writes one record after the other to a topic of its own, and notes those that are acknowledged."""

    def __init__(self, bootstrap_servers: str, name: str, stop: threading.Event, *, is_idempotent: bool) -> None:
        super().__init__(daemon=True)
        self.topic = name
        self.is_idempotent = is_idempotent
        self.acknowledged: list[bytes] = []
        self.errors: list[str] = []
        self._stopped = stop
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "client.id": name,
                "enable.idempotence": is_idempotent,
                "message.send.max.retries": 1000,
                "log_level": 0,
                **QUICK,
                **KEEPS_BROKERS,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            self._producer.produce(self.topic, b"%d" % number, on_delivery=self._note)
            self._producer.flush()
            number += 1

    def _note(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.errors.append(str(error))


@pytest.mark.thorough
def test_lost_acknowledgements_lose_no_record_and_double_those_of_plain_producers():
    names = [f"{kind}-{number}" for kind in ("plain", "idempotent") for number in range(PRODUCERS)]
    with LocalBroker(topics=names) as broker:
        requests = broker.requests("Produce")
        lost = broker.faults.drop("Produce", "after", times=DROPPED, chance=CHANCE, seed=1)
        stop = threading.Event()
        writers = [
            Writer(broker.bootstrap_servers, name, stop, is_idempotent=name.startswith("idempotent")) for name in names
        ]
        for writer in writers:
            writer.start()
        lost.wait(times=DROPPED, seconds=240)
        stop.set()
        for writer in writers:
            writer.join(60)
        produced = list(requests)
        logs = {name: [record.value for record in broker.records(name)] for name in names}
        read = {name: written_to(broker.bootstrap_servers, name) for name in names}

    assert sum(entry.outcome == "dropped" for entry in produced) == lost.fired == DROPPED
    for writer in writers:
        outcomes = [entry.outcome for entry in produced if entry.client_id == writer.topic]
        assert writer.errors == []
        assert writer.acknowledged == numbers(len(writer.acknowledged)), "nothing is lost, and nothing is late"
        assert logs[writer.topic] == numbers_written(outcomes, is_idempotent=writer.is_idempotent)
        assert read[writer.topic] == Counter(logs[writer.topic]), "a stock consumer reads what is in the log"


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def numbers_written(outcomes: list[str], *, is_idempotent: bool) -> list[bytes]:
    """The log that these Produce requests of one producer leave: one number each, and the same again after a drop."""
    log = []
    number = 0
    for outcome in outcomes:
        log.append(b"%d" % number)
        number += outcome == "answered"
    return list(dict.fromkeys(log)) if is_idempotent else log
