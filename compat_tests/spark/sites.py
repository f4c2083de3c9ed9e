"""The kinds of broker that the scripts run against: Barnabas and Apache Kafka 3.9, one broker of each and three.

Everything has the same settings, with which nothing waits long for what the broker does now and then.
"""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess
from compat_tests.small_cluster import SmallCluster
from compat_tests.spark.scripts import CLUSTER_SCRIPTS, SCRIPTS

SETTINGS: dict[str, str | int] = {
    "auto_create_topics_enable": "false",
    "log_retention_check_interval_ms": 500,
    "log_initial_task_delay_ms": 500,
    "log_cleaner_backoff_ms": 200,
}
OF_SEVERAL = {**SETTINGS, "min_insync_replicas": 2, "zookeeper_session_timeout_ms": 6000}


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
        with SmallCluster("kafka" if site.kafka else "barnabas", directory, site.brokers, **OF_SEVERAL) as cluster:
            try:
                yield {broker.bootstrap: broker.pid for broker in cluster.brokers.values()}
            finally:
                cluster.keep_logs(keep_logs)
        return
    broker = (KafkaProcess if site.kafka else BrokerProcess)(directory, **SETTINGS)
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
