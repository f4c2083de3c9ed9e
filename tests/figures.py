"""The figures of docs/how-fast.md, taken from the pages that `make bench` writes."""

import re
from collections.abc import Iterator

from tests.rooms import ROOT

# Page -> what it measures, and (section, case) of each figure that is shown.
FIGURES = {
    "performance.md": (
        "One broker",
        [
            ("Produce", "100 B, acks=1"),
            ("Produce", "1 kB, acks=all"),
            ("Consume", "100 B"),
            ("Consume", "1 kB"),
            ("End to end", "average"),
            ("End to end", "99th percentile"),
            ("Broker CPU per MB", "produce 1 kB, acks=1"),
            ("Broker CPU per MB", "consume 1 kB"),
            ("Start", "ready"),
            ("Resident memory", "idle"),
            ("Resident memory", "10 s after the cases"),
        ],
    ),
    "performance-cluster.md": (
        "Three brokers, replication factor 3, acks=all",
        [
            ("Produce", "100 B"),
            ("Produce", "1 kB"),
            ("End to end", "average"),
            ("End to end", "99th percentile"),
            ("A thousand partitions", "fail-over after SIGKILL"),
            ("Resident memory", "idle"),
        ],
    ),
    "performance-growth.md": (
        "Many connections, groups and partitions",
        [
            ("Connections", "1,000 connections: CPU"),
            ("One record at a time", "back to back: CPU"),
            ("Groups", "1,000 groups: commit p50"),
            ("Keys", "1,000 partitions"),
            ("Ten thousand partitions", "start after SIGKILL"),
        ],
    ),
    "performance-tls.md": (
        "TLS and logins",
        [
            ("confluent-kafka", "produce 1 kB, TLS"),
            ("confluent-kafka", "consume 1 kB, TLS"),
            ("Logins", "SCRAM-SHA-256 over TLS"),
        ],
    ),
    "performance-transactions.md": (
        "Transactions",
        [
            ("Produce", "100 B, a commit each 100 ms, one broker"),
            ("Produce", "100 B, a commit each 100 ms, three brokers"),
            ("Transactions of one record", "one id after the other: commits, one broker"),
            ("Transactions of one record", "50 ids at once: commits, one broker"),
            ("Transactions of one record", "one id after the other: commits, three brokers"),
        ],
    ),
}


def figure(text: str, section: str, case: str) -> list[str]:
    """Unit, Kafka's figure, ours, the ratio. ValueError if the page has no such case."""
    _, found, rest = text.partition(f"\n## {section}\n")
    rows = [line.strip("|").split("|") for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]
    for row in rows:
        if found and row[0].strip() == case:
            return [each.strip() for each in row[1:5]]
    raise ValueError(f"no row {case!r} in a section {section!r}")


def conditions(text: str) -> str:
    """When and where the figures of a page were taken, as it says."""
    found = re.search(r"^Taken on .*?\n\n", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError("no paragraph that begins with 'Taken on'")
    return found[0].strip()


def figures() -> str:
    """A section for each page."""
    return "\n\n".join("\n".join(_section(page, title, cases)) for page, (title, cases) in FIGURES.items())


def _section(page: str, title: str, cases: list[tuple[str, str]]) -> Iterator[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    yield f"## {title}\n"
    yield f"[{page}]({page}). {conditions(text)}\n"
    yield "| | | unit | Kafka | Barnabas | ratio |"
    yield "|-|-|-|-:|-:|-:|"
    for section, case in cases:
        yield f"| {section} | {case} | {' | '.join(figure(text, section, case))} |"
