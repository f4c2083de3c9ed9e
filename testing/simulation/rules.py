"""The rules of a simulated run, each with an id, and what is found of them (pure).

A broken rule becomes a `Violation`. The run continues, so that the story shows the consequences, but later violations
may be consequences of the first one.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.testing.simulation.hostile import HOSTILE_RULES
from barnabas.testing.simulation.secured import SECURED_RULES
from barnabas.testing.simulation.transaction_rules import TRANSACTION_RULES

RULES = {
    "I1": "records acknowledged with acks=all under an older epoch are in the log of a newer leader when it starts",
    "I2": "the high watermark of a replica never falls while it runs, except by truncation after a permitted loss",
    "I3": "an offset that a consumer has read keeps the same record",
    "I4": "an offset below the high watermark is never given to another record",
    "I5": "replicas agree on every offset that both hold below the smaller high watermark",
    "I6": "there is at most one leader of a partition in an epoch",
    "I7": "a record is there at most once, in its producer's order, and not at all when it was refused",
    "I8": "a partition has one owner in a generation of a group",
    "I9": "an acknowledged commit survives: no group goes back",
    "I10": "after the faults, reads and writes resume, every replica rejoins, and groups are stable, within bounds",
    "I11": "tasks and open files return to the baseline",
    "I12": "records that are acknowledged with acks=all are committed",
    "I13": "a replica has only records that a leader of the same topic id appended",
    "I14": "the epochs of controller and leader never go back in the metadata store",
    "I15": "a restart finds everything that was written, after a power failure everything that was synced",
    "I16": "no broker fails because of a bug",
    "I17": "the beginning of a log is deleted only on request",
    "I18": "a replica's producer state agrees with its log",
    "I19": "the high watermark passes what all in-sync replicas have, and acks=all means min.insync.replicas of them",
    "I20": "who reads on is served every committed record, in order",
    **TRANSACTION_RULES,
    **SECURED_RULES,
    **HOSTILE_RULES,
}
# A broken rule is often broken again by each later record. The first violations are the ones that
# explain the run.
VIOLATIONS_MAX = 50


class Violation(NamedTuple):
    """A rule that was broken."""

    rule: str
    seconds: float
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:.3f} {self.rule} {self.text}"

    @property
    def line(self) -> str:
        """How the story says it."""
        return f"VIOLATION {self.rule} ({RULES[self.rule]}): {self.text}"


Tell = Callable[[str], None]


class Findings:
    """What was found in a run: broken rules, and how often what is noteworthy happened."""

    def __init__(self, now: Callable[[], float], tell: Tell) -> None:
        self.violations: list[Violation] = []
        self.counts: dict[str, int] = {}
        self.on_violation: Callable[[str], None] = lambda rule: None
        self.tell = tell
        self.now = now

    def violate(self, rule: str, text: str) -> None:
        """This rule is broken."""
        if len(self.violations) < VIOLATIONS_MAX:
            violation = Violation(rule, self.now(), text)
            self.violations.append(violation)
            self.tell(violation.line)
            self.on_violation(rule)

    def count(self, what: str) -> None:
        """Something noteworthy happened."""
        self.counts[what] = self.counts.get(what, 0) + 1
