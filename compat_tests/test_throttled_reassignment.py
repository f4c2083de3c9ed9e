"""`kafka-reassign-partitions --throttle` keeps to its rate, and clients keep theirs (KIP-73).

THROTTLED_MB and THROTTLE_MB_PER_SECOND make it larger, to measure.
"""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from barnabas.wire import messages as m
from barnabas.wire.records import build_batch
from compat_tests.brokers import BrokerProcess
from compat_tests.differential.asking import metadata, now_ms, produce_one
from compat_tests.kafka import run_java_tool
from compat_tests.raw import RawClient, ask, eventually
from compat_tests.small_cluster import SmallCluster

pytestmark = pytest.mark.thorough

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
MB = 1_000_000
SIZE_BYTES = int(os.environ.get("THROTTLED_MB", "30")) * MB
RATE = int(float(os.environ.get("THROTTLE_MB_PER_SECOND", "3")) * MB)
BATCH_BYTES = 500_000
# The first seconds hold a response more than their share; at the end the replica is in sync before all is counted.
SPARE = 0.1
WAIT_SECONDS = 3 * SIZE_BYTES / RATE


def produced(client: RawClient, topic: str, data: bytes, acks: int = 1) -> None:
    row = ask(client, produce_one(topic, data, acks=acks), 9).responses[0].partition_responses[0]
    assert row.error_code == 0, row


def leaders(port: int) -> dict[str, int]:
    with RawClient(port) as client:
        topics = ask(client, metadata("moved", "beside", create=False), 9).topics
    return {topic.name: topic.partitions[0].leader_id for topic in topics if topic.partitions}


def log_bytes(broker: BrokerProcess, topic: str) -> int:
    return sum(path.stat().st_size for path in Path(broker.data_dir).glob(f"{topic}-0/*.log"))


class Beside:
    """A client that writes to a topic that does not move, to all replicas; how long each record took."""

    def __init__(self, port: int) -> None:
        self.seconds: list[float] = []
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> list[float]:
        self._over.set()
        self._thread.join()
        return self.seconds

    def _run(self) -> None:
        batch = bytes(build_batch([(None, bytes(1000))], timestamp_ms=now_ms()).data)
        with RawClient(self._port) as client:
            while not self._over.wait(0.01):
                began = time.monotonic()
                produced(client, "beside", batch, acks=-1)
                self.seconds.append(time.monotonic() - began)


def test_a_throttled_move_keeps_to_its_rate_and_clients_keep_theirs(tmp_path: Path) -> None:
    with SmallCluster("barnabas", tmp_path / "cluster") as cluster:
        Assignment = m.CreateTopicsRequest.CreatableReplicaAssignment
        topics = [
            m.CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[Assignment(partition_index=0, broker_ids=brokers)],
            )
            for name, brokers in (("moved", [1, 2]), ("beside", [1, 2, 3]))
        ]
        with RawClient(cluster.brokers[1].port) as client:
            ask(client, m.CreateTopicsRequest(topics=topics, timeout_ms=15_000), 5)
            batch = bytes(build_batch([(None, os.urandom(BATCH_BYTES))], timestamp_ms=now_ms()).data)
            for broker in cluster.brokers.values():
                eventually(lambda broker=broker: leaders(broker.port), lambda found: found == {"moved": 1, "beside": 1})
            for _ in range(SIZE_BYTES // BATCH_BYTES):
                produced(client, "moved", batch)
        wanted = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 3]}]}
        file = tmp_path / "wanted.json"
        file.write_text(json.dumps(wanted))
        beside = Beside(cluster.brokers[1].port)
        arguments = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(file))
        printed = run_java_tool(REASSIGN, *arguments, "--execute", "--throttle", str(RATE)).stdout
        assert f"The inter-broker throttle limit was set to {RATE} B/s" in printed, printed
        # From the first byte on: the tool takes its time to end.
        began_bytes, began = log_bytes(cluster.brokers[3], "moved"), time.monotonic()
        while log_bytes(cluster.brokers[3], "moved") < SIZE_BYTES:
            assert time.monotonic() < began + WAIT_SECONDS, "the move does not come to its end"
            time.sleep(0.1)  # the pace of looking
        took = time.monotonic() - began
        rate = (SIZE_BYTES - began_bytes) / took
        waits = sorted(beside.stop())
        print(
            f"{rate / MB:.2f} of {RATE / MB} MB/s over {took:.1f} s; beside: {len(waits)} records, "
            f"p50 {waits[len(waits) // 2] * 1000:.1f} ms, p99 {waits[len(waits) * 99 // 100] * 1000:.1f} ms"
        )
        assert rate <= RATE * (1 + SPARE), f"{rate:.0f} B/s"
        eventually(
            lambda: run_java_tool(REASSIGN, *arguments, "--verify").stdout,
            lambda said: "Reassignment of partition moved-0 is completed." in said,
        )
        of_broker = ("--entity-type", "brokers", "--entity-name", "3")
        described = run_java_tool(CONFIGS, "--bootstrap-server", cluster.bootstrap, "--describe", *of_broker).stdout
        assert "throttled" not in described
