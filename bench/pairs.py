"""Pairs of figures, one of each broker taken right after one another, and their ratios.

A line holds when the median of the pairs' ratios meets it. The machine's mood changes from minute to minute and is much
the same for both halves of a pair; so ratios are made pair by pair, and all of them are shown.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

BARNABAS, COMPILED = "Barnabas", "compiled"  # two forms of the same sources (`setup.py`)

ORDER = (
    "Produce",
    "Produce beside the bare loop",
    "Consume",
    "Committed records beside all records",
    "Transactions of one record",
    "Commits beside a mock cluster's",
    "End to end",
    "Python clients",
    "Start",
    "A thousand partitions",
    "Connections",
    "One record at a time",
    "Groups",
    "Lookup by time",
    "Keys",
    "Ten thousand partitions",
    "Cold data",
    "confluent-kafka",
    "Encryption adds",
    "Small requests",
    "Logins",
    "Idle connections",
    "Resident memory",
    "Broker CPU",
    "Broker CPU per MB",
)


@dataclass
class Line:
    """One thing that was measured: its figures, by contender, one for each pair (None: that run failed)."""

    name: str
    unit: str
    target: float | None = None  # what the median ratio of Barnabas to `against` should be
    higher_is_better: bool = True
    against: str = "Kafka"
    figures: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, contender: str, figure: float | None) -> None:
        self.figures.setdefault(contender, []).append(figure)

    def ratios(self, form: str = BARNABAS) -> list[float]:
        """Barnabas in one of its forms ÷ the other, of the pairs in which both ran."""
        pairs = zip(self.figures.get(form, ()), self.figures.get(self.against, ()), strict=False)
        return [ours / theirs for ours, theirs in pairs if ours is not None and theirs]

    def median(self, contender: str) -> float | None:
        known = [figure for figure in self.figures.get(contender, ()) if figure is not None]
        return statistics.median(known) if known else None

    def verdict(self) -> str:
        """Whether the median of the ratios meets the target."""
        ratios = self.ratios()
        if self.target is None:
            return ""
        if not ratios:
            return "not measured"
        median = statistics.median(ratios)
        met = median >= self.target if self.higher_is_better else median <= self.target
        return "met" if met else "missed"

    def target_text(self) -> str:
        if self.target is None:
            return ""
        return f"{'≥' if self.higher_is_better else '≤'} {self.target:.3g}"


class Book:
    """Every line of a run, by group and name."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], Line] = {}
        self.failures: list[str] = []
        self.warm_ups: dict[
            str, list[float]
        ] = {}  # case -> Kafka's CPU in each run before the first pair, ms per MB or ms

    def line(self, group: str, name: str, unit: str, **options: Any) -> Line:
        """The line of this name in this group, begun if need be."""
        key = group, name
        if key not in self._lines:
            self._lines[key] = Line(name, unit, **options)
        return self._lines[key]

    def add_all(self, other: "Book", place: str) -> None:
        """Take over what is in another book; `place` is appended to each name."""
        for (group, name), line in other._lines.items():
            self._lines[group, name + place] = replace(line, name=name + place)
        self.failures += [failure + place for failure in other.failures]
        self.warm_ups |= {case + place: costs for case, costs in other.warm_ups.items()}

    def groups(self) -> Iterator[tuple[str, list[Line]]]:
        """Each group with its lines, in the order of the page."""
        groups: dict[str, list[Line]] = {}
        for (group, _), line in self._lines.items():
            groups.setdefault(group, []).append(line)
        yield from sorted(groups.items(), key=lambda item: ORDER.index(item[0]))


def number(figure: float | None) -> str:
    """Three digits that matter, thousands grouped."""
    if figure is None:
        return "failed"
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}" if figure >= 1 else f"{figure:.2g}"


def table(lines: list[Line]) -> list[str]:
    """A table in Markdown; its lines have one rival in common. The compiled form has columns where it took part."""
    with_compiled = any(COMPILED in line.figures for line in lines)
    rows = [
        f"| | unit | {lines[0].against} | Barnabas | ratio | target | | all pairs |",
        "|-|-|-:|-:|-:|-:|-|-|",
    ]
    if with_compiled:
        rows = [rows[0] + " compiled | ratio | all pairs |", rows[1] + "-:|-:|-|"]
    for line in lines:
        ours, ratio, pairs = form_of(line, BARNABAS)
        row = f"| {line.name} | {line.unit} | {number(line.median(line.against))} | {ours} | **{ratio}**"
        row += f" | {line.target_text()} | {line.verdict()} | {pairs} |"
        if with_compiled:
            ours, ratio, pairs = form_of(line, COMPILED) if COMPILED in line.figures else ("", "", "")
            row += f" {ours} | {ratio} | {pairs} |"
        rows.append(row)
    return rows


def form_of(line: Line, form: str) -> tuple[str, str, str]:
    """Of one form, as texts: its median, the median of the ratios, the ratios of all pairs."""
    ratios = line.ratios(form)
    median = number(statistics.median(ratios)) if ratios else "–"
    return number(line.median(form)), median, ", ".join(f"{ratio:.2f}" for ratio in ratios)
