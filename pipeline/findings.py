"""The result of an audit: findings, their counts, and the logs that were checked (pure).

A finding is one broken guarantee, or one place that cannot be read; `KINDS` lists the kinds. The executors find them;
the driver gets only counts, and the first few findings of each kind.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

KINDS = {
    "lost": "a record was acknowledged, and no replica has it",
    "duplicated": "a record lies there twice, or two records lie at one offset",
    "reordered": "a record lies elsewhere than it was acknowledged, or behind one that was sent later",
    "phantom": "a record lies there that no producer sent, or a consumer got one that is not there",
    "diverging": "two replicas hold different records at one offset, or one of them none, below the high watermark",
    "corrupt": "bytes of a segment that are no sound batch",
    "gap": "offsets are missing that neither compaction nor the log start explains",
}


class Finding(NamedTuple):
    """One thing that is wrong. `replica` and `offset` are None where it is not about one of them."""

    kind: str
    topic: str
    partition: int | None
    offset: int | None
    replica: str | None
    text: str


class Count(NamedTuple):
    """How many findings of a kind a partition has."""

    kind: str
    topic: str
    partition: int | None
    findings: int


class Held(NamedTuple):
    """What one replica, archive or topic was found to hold of a partition."""

    replica: str
    topic: str
    partition: int
    records: int
    control_records: int
    first_offset: int
    last_offset: int


class Share(NamedTuple):
    """A bar of a plot: how many (`kind`: of findings, or of events) from here on to the next bar."""

    kind: str
    start: float
    number: int


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    counts: list[Count]
    examples: list[Finding]
    held: list[Held]
    events: Mapping[str, int]  # of the ledgers, by kind
    unreadable_lines: int  # of the ledgers: a client that was killed leaves one
    spread: list[Share] = field(default_factory=list)  # findings over offsets
    timeline: list[Share] = field(default_factory=list)  # events over seconds since the first
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.counts

    def totals(self) -> dict[str, int]:
        """How many findings of each kind there are; kinds without are left out."""
        found = {kind: sum(each.findings for each in self.counts if each.kind == kind) for kind in KINDS}
        return {kind: count for kind, count in found.items() if count}

    def verdict(self) -> str:
        """The whole in one line."""
        looked = f"{sum(each.records for each in self.held)} records, {sum(self.events.values())} events"
        wrong = ", ".join(f"{count} {kind}" for kind, count in self.totals().items())
        return f"{looked}: {wrong or 'nothing is wrong'}"

    def to_json(self) -> dict[str, object]:
        """As values that `json.dumps` takes."""
        named = {
            name: [row._asdict() for row in getattr(self, name)]
            for name in ("counts", "examples", "held", "spread", "timeline")
        }
        return {"clean": self.is_clean, "totals": self.totals(), **asdict(self), **named, "events": dict(self.events)}
