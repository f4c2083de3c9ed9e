"""The kinds of broker that the scripts run against: Barnabas and Apache Kafka 3.9, one broker of each and three.

Everything has the same settings, with which nothing waits long for what the broker does now and then.
"""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from compat_tests.brokers import BrokerProcess
from compat_tests.clients.cluster import SmallCluster
from compat_tests.kafka import KafkaProcess
from compat_tests.spark.scripts import CLUSTER_SCRIPTS, SCRIPTS

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "200",
}
OF_SEVERAL = {"min.insync.replicas": "2", "zookeeper.session.timeout.ms": "6000"}


@dataclass(frozen=True)
class Site:
    """So many brokers of one kind."""

    name: str
    kafka: bool
    brokers: int
    scripts: tuple[str, ...]


SITES = {
    site.name: site
    for site in (
        Site("barnabas", False, 1, tuple(SCRIPTS)),
        Site("barnabas-3", False, 3, (*SCRIPTS, *CLUSTER_SCRIPTS)),
        Site("kafka", True, 1, tuple(SCRIPTS)),
        Site("kafka-3", True, 3, tuple(CLUSTER_SCRIPTS)),
    )
}


@contextlib.contextmanager
def open_site(site: Site, directory: pathlib.Path, keep_logs: pathlib.Path) -> Iterator[dict[str, int]]:
    """Start its brokers; their processes by address. What they said is kept."""
    if site.brokers > 1:
        with SmallCluster(directory, site.brokers, {**SETTINGS, **OF_SEVERAL}, site.kafka) as cluster:
            try:
                yield {broker.bootstrap: broker.pid for broker in cluster.brokers}
            finally:
                cluster.keep_logs(keep_logs)
        return
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    broker = (KafkaProcess if site.kafka else BrokerProcess)(directory, **settings)
    try:
        broker.start()
        yield {broker.bootstrap: broker.pid}
    finally:
        if isinstance(broker, KafkaProcess):
            broker.close()
        else:
            broker.kill()
        if broker.log_path.exists():
            shutil.copy(broker.log_path, keep_logs / "broker-0.log")
