"""Three brokers of either kind with their metrics: Barnabas' own, or those of the JMX exporter in Apache Kafka."""

import pathlib
import re
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple

from compat_tests.kafka import BROKER_JVM, JAVA_DIR, bring_jars, free_port
from compat_tests.small_cluster import SmallCluster

EXPORTER = JAVA_DIR / "jmx"
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)",?')

Labels = frozenset[tuple[str, str]]


class MeteredCluster(SmallCluster):
    """A `SmallCluster` whose brokers have metrics, at `metrics_ports`."""

    def __init__(self, kind: str, directory: pathlib.Path, **settings: str | int) -> None:
        self.metrics_ports: dict[int, int] = {}
        super().__init__(kind, directory, **settings)

    def settings_of(self, broker: int) -> Mapping[str, object]:
        """As in `SmallCluster`, with where the metrics are."""
        port = self.metrics_ports[broker] = free_port()
        address = f"127.0.0.1:{port}"
        if self.kind == "barnabas":
            return {"broker_id": broker, "barnabas_http_listener": address}
        (jar,) = bring_jars(EXPORTER / "pom.xml", EXPORTER / "target").glob("*.jar")
        agent = f"-javaagent:{jar}={address}:{EXPORTER / 'rules.yaml'}"
        return {"broker_id": broker, "jvm": (*BROKER_JVM, agent)}

    def scrape(self, broker: int) -> "Scrape":
        """The metrics of one broker."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_ports[broker]}/metrics", timeout=60) as response:
            return parsed(response.read().decode())


class Scrape(NamedTuple):
    """What one scrape, or the sum of several, has."""

    types: dict[str, str]  # of families
    samples: dict[tuple[str, Labels], float]  # by name and labels

    def label_sets(self) -> dict[str, set[frozenset[str]]]:
        """Name of samples -> the sets of label names that they come with."""
        found: dict[str, set[frozenset[str]]] = {}
        for name, labels in self.samples:
            found.setdefault(name, set()).add(frozenset(key for key, _ in labels))
        return found


def parsed(text: str) -> Scrape:
    """A document in Prometheus' text format."""
    types: dict[str, str] = {}
    samples: dict[tuple[str, Labels], float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            samples[match[1], frozenset(LABEL.findall(match[2] or ""))] = float(match[3])
    return Scrape(types, samples)


def total(scrapes: list[Scrape]) -> Scrape:
    """The sums over brokers."""
    types: dict[str, str] = {}
    samples: dict[tuple[str, Labels], float] = {}
    for each in scrapes:
        types |= each.types
        for key, value in each.samples.items():
            samples[key] = samples.get(key, 0.0) + value
    return Scrape(types, samples)
