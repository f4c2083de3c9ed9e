"""A scrape of a broker in memory, parsed: what Prometheus would store."""

import re
from typing import NamedTuple

from barnabas.broker.call import Broker
from barnabas.console.exposition import Metrics, exposition
from barnabas.console.process_facts import ProcessFacts

RUNNING = 3
FACTS = ProcessFacts(1.5, 50_000_000, 17, 1024, 1_700_000_000.0)
SAMPLE = re.compile(r"([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)\Z")
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?:,|\Z)')
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Scrape(NamedTuple):
    """The samples of a scrape, and the type of each family."""

    text: str
    samples: dict[tuple[str, frozenset], float]
    types: dict[str, str]

    def value(self, name: str, **labels: object) -> float | None:
        """The sample with these labels and no others; None if there is none."""
        return self.samples.get((name, frozenset((key, str(each)) for key, each in labels.items())))

    def all(self, name: str) -> list[dict[str, str]]:
        """The labels of each sample of this name."""
        return [dict(labels) for found, labels in self.samples if found == name]


def metrics_of(broker: Broker) -> Metrics:
    """What scrapes share; the process is an invented one."""
    return Metrics(broker, lambda: RUNNING, lambda: FACTS)


async def scrape(metrics: Metrics | Broker, *, openmetrics: bool = False) -> Scrape:
    """One scrape. Every line must be well-formed, and no sample may come twice."""
    if isinstance(metrics, Broker):
        metrics = metrics_of(metrics)
    pieces = [piece async for piece in exposition(metrics, openmetrics=openmetrics)]
    return parsed(b"".join(pieces).decode())


def parsed(text: str) -> Scrape:
    """The document in either format. AssertionError where Prometheus would refuse it."""
    samples: dict[tuple[str, frozenset], float] = {}
    types: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} comes in two places"
            types[name] = kind
        elif not line.startswith("# "):
            match = SAMPLE.match(line)
            assert match, line
            labels = LABEL.findall(match[2] or "")
            assert sum(len(key) + len(value) + 4 for key, value in labels) - bool(labels) == len(match[2] or ""), line
            unescaped = [(key, re.sub(r"\\.", lambda found: UNESCAPED[found[0]], value)) for key, value in labels]
            sample = match[1], frozenset(unescaped)
            assert sample not in samples, f"{line} comes twice"
            samples[sample] = float(match[3])
    return Scrape(text, samples, types)
