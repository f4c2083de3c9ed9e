"""Four live fault runs of 30 s: nothing acknowledged is lost, duplicated or reordered, every ISR is full again, and a
transaction is read as a whole or not at all. One cluster has TLS, logins and ACLs.

And that the check bites on data that was really written: one record is cut out of one replica's segment after a run.
"""

import pathlib

import pytest

from barnabas.storage.entries import walk_file
from barnabas.storage.osdisk import OsDisk
from compat_tests.cluster.checker import Partition, check
from compat_tests.cluster.ledger import read_ledger
from compat_tests.cluster.live import LiveCluster
from compat_tests.cluster.load import ConfluentLoad
from compat_tests.cluster.network import can_make_namespaces
from compat_tests.cluster.replicas import read_replicas
from compat_tests.cluster.run import await_first_ack, run
from compat_tests.tools import require_tool

SECONDS = 30.0
RUNS = {101: "confluent", 102: "confluent", 103: "verifiable", 104: "transactions"}  # seeds
SECURED = {102}
LONG = {101, 103}


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed in LONG)) for seed in RUNS])
def test_what_brokers_answered_is_true_after_faults(seed, tmp_path):
    require_tool("java")
    is_secured = seed in SECURED and can_make_namespaces()
    result = run("barnabas", seed, SECONDS, tmp_path, load=RUNS[seed], is_secured=is_secured)
    assert result.verdict == "kept", result
    assert result.counts["acked"] > 1000
    assert result.counts["committed"] > 0


def test_a_record_cut_out_of_a_replica_that_was_written_live_is_found(tmp_path):
    require_tool("java")
    with LiveCluster("barnabas", tmp_path) as cluster:
        cluster.create_topic("letters", 1)
        load = ConfluentLoad(cluster, "letters", 1, producers=1)
        load.start_producers()
        try:
            await_first_ack(tmp_path)
            load.stop_producing()
            end = cluster.view.latest_offset("letters", 0)
            cluster.await_whole()
        finally:
            load.kill()
    events = read_ledger(tmp_path.glob("ledger-*.jsonl"))
    directories = {broker: tmp_path / f"broker-{broker}" / "data" for broker in (1, 2, 3)}
    assert found_in(events, directories, end) == set()
    cut_out_a_batch(directories[2] / "letters-0" / f"{0:020}.log")
    assert found_in(events, directories, end) == {"lost", "differ"}


def found_in(events, directories, end):
    """The kinds of findings in what these directories hold."""
    held = read_replicas(directories, ["letters"])
    return {finding.kind for finding in check(events, {("letters", 0): Partition(held["letters", 0], end)})}


def cut_out_a_batch(segment: pathlib.Path) -> None:
    file = OsDisk().open(str(segment), read_only=True)
    batches = [bytes(data) for _, data in walk_file(file, 0, file.size_bytes())]
    file.release()
    del batches[len(batches) // 2]
    segment.write_bytes(b"".join(batches))
