"""A broker in memory goes back to what it was at a snapshot."""

import time

import pytest

from barnabas.testing import LocalBroker, LocalBrokerError
from barnabas.wire import messages as m
from tests.testing.client import Client


def test_records_topics_and_groups_are_those_of_the_snapshot():
    with LocalBroker(topics=["t"]) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.produce("t", b"a")
            client.join("g")
        before = broker.snapshot()
        broker.create_topic("u")
        with Client(broker.bootstrap_servers) as client:
            client.produce("t", b"b")
        for _ in range(2):
            broker.restore(before)
            with Client(broker.bootstrap_servers) as client:
                assert client.values("t") == [b"a"]
                assert client.produce("t", b"c").base_offset == 1
                names = {each.name for each in client(m.MetadataRequest(topics=None)).topics}
                assert names == {"t", "__consumer_offsets"}
            broker.groups["g"].wait(state="Stable", members=1)


def test_a_snapshot_is_restored_into_another_broker_and_into_one_that_is_stopped():
    with LocalBroker(topics=["t"]) as first:
        with Client(first.bootstrap_servers) as client:
            client.produce("t", b"a")
        first.stop()
        state = first.snapshot()
    with LocalBroker() as second:
        second.stop()
        second.restore(state)
        with Client(second.bootstrap_servers) as client:
            assert client.values("t") == [b"a"]


def test_a_thousand_records_are_restored_within_milliseconds():
    with LocalBroker(topics=["t"]) as broker:
        with Client(broker.bootstrap_servers) as client:
            for _ in range(10):
                client.produce("t", *[b"v"] * 100)
        began = time.monotonic()
        state = broker.snapshot()
        broker.restore(state)
        assert time.monotonic() - began < 1  # about 10 ms on a quiet machine
        with Client(broker.bootstrap_servers) as client:
            assert client.offset("t") == 1000


def test_only_data_in_memory_have_snapshots(tmp_path):
    with LocalBroker(data_dir=tmp_path) as broker, pytest.raises(LocalBrokerError, match="in a directory"):
        broker.snapshot()
    with pytest.raises(LocalBrokerError, match="was not started"):
        LocalBroker().snapshot()
