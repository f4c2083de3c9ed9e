"""What a Produce costs the leader and each follower, by the size of its batch: replication factor 3, acks=all.

Three brokers and a client with eight requests under way, so followers fetch several batches at a time.
"""

import pathlib
import tempfile
import time

from bench.cluster import PROPERTIES_FILE, until_known
from bench.contenders import Cluster, barnabas_cluster
from bench.load import CASES, Case, Client, batch_of, check_produced, produce_frame
from bench.processes import install_wheel
from compat_tests.kafka import ZooKeeperProcess, free_port

SECONDS, TRIED = 5.0, 20
SETTLE_SECONDS = 1.0


def measure() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="barnabas-scale-") as place:
        zookeeper = ZooKeeperProcess(pathlib.Path(place) / "zookeeper")
        zookeeper.port = free_port()
        cluster = barnabas_cluster(pathlib.Path(place), zookeeper, PROPERTIES_FILE, install_wheel(pathlib.Path(place)))
        zookeeper.start()
        try:
            cluster.start()
            print("| batch | Produce/s | leader's CPU µs each | a follower's | leader's CPU ms/MB | a follower's |")
            print("|-|-:|-:|-:|-:|-:|", flush=True)
            for number, case in enumerate(CASES):
                row(cluster, f"replicated-{number}", case)
        finally:
            for member in cluster.members:
                if member.is_running():
                    member.kill()
            zookeeper.kill()


def row(cluster: Cluster, topic: str, case: Case) -> None:
    """One size of batch, in a topic of its own with one partition."""
    cluster.create_topic(topic)
    until_known(cluster.members, topic, lambda leaders: leaders != [] and leaders[0] >= 0)
    leader = cluster.leader_of(topic)
    followers = [member for member in cluster.members if member is not leader]
    client, batch = Client(leader.port), batch_of(case)
    request = produce_frame(topic, batch)
    began = time.perf_counter()
    for _ in range(TRIED):
        check_produced(client.ask_frame(request))
    # Requests that overlap are several times as fast.
    count = max(TRIED, int(SECONDS / (time.perf_counter() - began) * TRIED))
    time.sleep(SETTLE_SECONDS)
    followed = sum(member.cpu_seconds() for member in followers)
    figures = client.repeat([request] * count, leader, len(batch))  # type: ignore[arg-type]  # only its CPU is read
    followed = (sum(member.cpu_seconds() for member in followers) - followed) / len(followers) / count * 1e6
    megabytes = len(batch) / 1e6
    print(
        f"| {case.name} | {figures.requests_per_second:,.0f} | {figures.cpu_us_per_request:.0f} | {followed:.0f}"
        f" | {figures.cpu_us_per_request / 1000 / megabytes:.2f} | {followed / 1000 / megabytes:.2f} |",
        flush=True,
    )
    client.close()
    cluster.delete_topic(topic)
