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
        dropped = Counter(entry.client_id for entry in lost.seen)
        logs = {name: written_to(broker.bootstrap_servers, name) for name in names}

    assert sum(dropped.values()) == DROPPED
    for writer in writers:
        log = logs[writer.topic]
        assert writer.errors == []
        assert set(writer.acknowledged) == log.keys(), "nothing is lost"
        more_than_once = log.total() - len(log)
        # Each copy too many is one whose acknowledgement was dropped.
        assert more_than_once == (0 if writer.is_idempotent else dropped[writer.topic])
