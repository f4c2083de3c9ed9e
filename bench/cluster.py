"""Three brokers of Barnabas beside three of Apache Kafka in one run: replication factor 3, acks=all.

Both clusters are up all the time, each under a path of its own in one ZooKeeper. What is killed in `partitions` is the
leader of a partition, which leads a third of a thousand others as well; the time until all of them have another leader
is what a client sees in the metadata, and begins with the signal.
"""

import pathlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bench.contenders import Cluster, Contender, barnabas_cluster, kafka_cluster, metadata_of
from bench.pairs import COMPILED
from bench.run import Cases, Cost, Run, Size, add_cost, end_to_end, java_produce, tell

PROPERTIES_FILE = pathlib.Path(__file__).parent / "cluster.properties"
KAFKA_HEAP = ("-Xms512m", "-Xmx512m")
PRODUCE_TARGET, PRODUCE_CPU_TARGET = 1.15, 0.65
LATENCY_MESSAGES = 2000
PARTITIONS = 1000
IDLE_SECONDS = 15.0
PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.05


class Load(NamedTuple):
    """What is produced, to how many partitions and by how many producers at once, who share the records."""

    size: Size
    partitions: int = 1
    producers: int = 1


LOADS = {
    "cluster-10B": Load(Size("10 B", 10, 400_000)),
    "cluster-100B": Load(Size("100 B", 100, 130_000)),
    "cluster-1kB": Load(Size("1 kB", 1000, 20_000)),
    "cluster-10kB": Load(Size("10 kB", 10_000, 2_400)),
    "cluster-1kB-10-partitions": Load(Size("1 kB, 10 partitions", 1000, 20_000), partitions=10),
    # More records, so that the producers, which do not start at the same moment, run together for most of the time.
    "cluster-1kB-4-producers": Load(Size("1 kB, 4 producers", 1000, 40_000), producers=4),
}


class ClusterRun(Run):
    """Three brokers of each."""

    def __init__(self, directory: pathlib.Path, *, pairs: int, shrink: int) -> None:
        super().__init__(directory, pairs=pairs, shrink=shrink)
        self.brokers = (
            kafka_cluster(directory, self.zookeeper, PROPERTIES_FILE, KAFKA_HEAP),
            barnabas_cluster(directory, self.zookeeper, PROPERTIES_FILE, self.installed),
            barnabas_cluster(directory, self.zookeeper, PROPERTIES_FILE, self.installed_compiled, name=COMPILED),
        )
        self.contenders = self.brokers


def produce(run: Run, load: Load) -> None:
    """ProducerPerformance with acks=all."""
    each = run.count(load.size.records // load.producers)
    data_bytes = each * load.producers * load.size.record_bytes
    case = f"produce {load.size.name}"
    run.warm_up(
        case, run.brokers, lambda c, t: produce_at_once(c, t, load, each), data_bytes, partitions=load.partitions
    )
    for pair in range(run.pairs):
        topic = run.new_topic(run.brokers, load.partitions)
        for contender in run.order(pair, *run.brokers):
            cost = Cost(contender)
            rate = run.attempt(
                f"{case} on {contender.name}", lambda c=contender, t=topic: produce_at_once(c, t, load, each)
            )
            cpu = cost.seconds() if rate is not None else None
            tell(case, contender, rate, "records/s", cpu)
            run.book.line("Produce", load.size.name, "records/s", target=PRODUCE_TARGET).add(contender.name, rate)
            add_cost(run, case, contender, cpu, data_bytes, PRODUCE_CPU_TARGET)
        run.drop(topic, run.brokers)


def produce_at_once(contender: Contender, topic: str, load: Load, each: int) -> float:
    """Every producer sends `each` records; the sum of their records a second."""
    with ThreadPoolExecutor(load.producers) as pool:
        runs = [
            pool.submit(java_produce, contender, topic, each, load.size.record_bytes, "all")
            for _ in range(load.producers)
        ]
    return sum(run.result() for run in runs)


def partitions(run: Run) -> None:
    """A thousand partitions: how long their creation takes, what they cost when idle, and a fail-over."""
    count = run.count(PARTITIONS)
    for pair in range(run.pairs):
        for contender in run.order(pair, *run.brokers):
            assert isinstance(contender, Cluster)
            topic = f"many-{pair}"
            run.attempt(f"{count} partitions on {contender.name}", lambda c=contender, t=topic: many(run, c, t, count))
            run.attempt(f"restart of {contender.name}", contender.start)
            run.drop(topic, [contender])


def many(run: Run, cluster: Cluster, topic: str, count: int) -> None:
    """One pair's half."""
    began = time.monotonic()
    cluster.create_topic(topic, count)
    until_known(cluster.members, topic, lambda leaders: len(leaders) == count and min(leaders) >= 0)
    note(run, cluster, "creation", "s", time.monotonic() - began)
    time.sleep(IDLE_SECONDS / run.shrink)
    cost = Cost(cluster)
    time.sleep(IDLE_SECONDS / run.shrink)
    note(run, cluster, "idle, CPU of all three", "% of a core", cost.seconds() / (IDLE_SECONDS / run.shrink) * 100)
    victim = cluster.leader_of(topic)
    victim_id = metadata_of(victim.port, topic).topics[0].partitions[0].leader_id
    began = time.monotonic()
    victim.kill()
    living = [member for member in cluster.members if member is not victim]
    until_known(living, topic, lambda leaders: min(leaders) >= 0 and victim_id not in leaders)
    note(run, cluster, "fail-over after SIGKILL", "s", time.monotonic() - began)


def until_known(members, topic, is_so) -> None:
    """Wait until `is_so` holds for the leaders of the topic's partitions in the Metadata of each of these brokers."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for member in members:
        while not is_so([row.leader_id for row in metadata_of(member.port, topic).topics[0].partitions]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{member.bootstrap} still has other leaders of {topic}")
            time.sleep(LOOK_SECONDS)


def note(run: Run, contender: Contender, name: str, unit: str, figure: float) -> None:
    tell(name, contender, figure, unit)
    run.book.line("A thousand partitions", name, unit, target=1.0, higher_is_better=False).add(contender.name, figure)


CASES: Cases = {
    **{name: lambda run, load=load: produce(run, load) for name, load in LOADS.items()},
    "cluster-latency": lambda run: end_to_end(run, run.count(LATENCY_MESSAGES), "all"),
    "cluster-partitions": partitions,
}
