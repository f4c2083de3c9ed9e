"""Each attack once: the broker answers or closes that connection, and serves its other clients on."""

import socket
from collections.abc import Iterator

import pytest

from barnabas.testing.running.processes import forget_peak_of, peak_resident_bytes_of, resident_bytes_of
from compat_tests.hostile.attacks import ATTACKS
from compat_tests.hostile.bystander import trip
from compat_tests.hostile.process import MIB, WatchedBroker
from compat_tests.raw import RawClient, create_topic

MEMORY_BYTES_MAX = 64 * MIB
SLOW_TO_PREPARE = {
    "DescribeProducers of 100,000",
    "ListTransactions of 20,000",
    "Metadata of all topics",
    "Metadata of all topics, unread",
    "OffsetCommit of 4,000 partitions",
    "a transaction of 4,000 partitions",
    "retries that are not in the log",
    "rolls with 100,000 producers",
    "transactional Produce to 4,000 partitions, refused",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with WatchedBroker(tmp_path_factory.mktemp("attacked")) as broker:
        create_topic(broker.port, "ordinary")
        yield broker


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in SLOW_TO_PREPARE])
def test_an_attack_takes_little_memory_and_disturbs_no_other_client(broker: WatchedBroker, name: str) -> None:
    attack = ATTACKS[name]
    attack.prepare(broker.port)
    kept: list[socket.socket] = []
    with RawClient(broker.port) as bystander:
        trip(bystander)
        before = resident_bytes_of(broker.pid)
        forget_peak_of(broker.pid)
        attack.strike(broker.port, kept)
        trip(bystander)
        taken = peak_resident_bytes_of(broker.pid) - before
    for each in kept:
        each.close()
    assert broker.is_running()
    assert taken < MEMORY_BYTES_MAX, f"{taken / MIB:.0f} MiB were taken"
