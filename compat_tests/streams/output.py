"""What the programs of StreamsEosTest print, read (pure)."""

import re
from typing import NamedTuple

DELIVERED = "ALL-RECORDS-DELIVERED"
STARTED = "StreamsTest instance started"
RUNNING = "RUNNING"
EXCEPTION = "EOS-TEST-CLIENT-EXCEPTION"
CLOSED = "EOS-TEST-CLIENT-CLOSED"

# Another owner of the id, or the coordinator after the transaction's timeout, has raised the epoch.
FENCING = {
    "FencedInstanceIdException",
    "InvalidProducerEpochException",
    "ProducerFencedException",
    "TaskMigratedException",
}
_STATE = re.compile(r"^StateChange: \w+ -> (\w+)$", re.MULTILINE)
_PRODUCED = re.compile(r"^Producer closed: (\d+) records produced$", re.MULTILINE)
_FAILED = re.compile(r"^org\.apache\.kafka\.common\.errors\.\w+: ", re.MULTILINE)  # a line for each record
_END_OFFSET = re.compile(r"^End-offset for \S+ is (\d+)$", re.MULTILINE)
_THROWN = re.compile(r"^(?:Caused by: )?(?:[a-z]\w*\.)+(\w+(?:Exception|Error))\b(.*)", re.MULTILINE)
_TRACE_END = re.compile(r"^(?:\d+|StateChange: .*|\[.*)$", re.MULTILINE)  # the next event, or a line of the log


class Thrown(NamedTuple):
    """An exception that ended an instance's streams: names of classes from the outermost to its first cause."""

    names: tuple[str, ...]
    message: str

    def is_fencing(self) -> bool:
        return not FENCING.isdisjoint(self.names)

    def __str__(self) -> str:
        return f"{' <- '.join(self.names)}{self.message}"


def last_run(text: str) -> str:
    """What a program has printed since its last start."""
    return text.rpartition(STARTED)[2]


def last_state(text: str) -> str:
    """The state that an instance has printed last since its start; nothing if it has printed none."""
    states = _STATE.findall(last_run(text))
    return str(states[-1]) if states else ""


def thrown(text: str) -> list[Thrown]:
    """The exceptions that an instance printed; each ended its streams, and the instance made new ones."""
    found = []
    for trace in text.split(EXCEPTION)[1:]:
        chain = _THROWN.findall(_TRACE_END.split(trace.lstrip("\n"), maxsplit=1)[0])
        found.append(Thrown(tuple(name for name, _ in chain), chain[-1][1] if chain else ""))
    return found


class Produced(NamedTuple):
    """What the driver did: records sent, those whose send failed (after 120 s), and what the topic has of all."""

    sent: int
    failed: int
    stored: int

    def is_exact(self) -> bool:
        """Whether every acknowledged record is stored and none twice; a failed one may be stored or not."""
        return self.sent - self.failed <= self.stored <= self.sent


def produced(text: str) -> Produced | None:
    """What the driver did, if it ended in order."""
    found, end_offsets = _PRODUCED.search(text), _END_OFFSET.findall(text)
    if found is None or not end_offsets:
        return None
    return Produced(int(found[1]), len(_FAILED.findall(text)), sum(map(int, end_offsets)))
