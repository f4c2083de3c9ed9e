"""The brokers' responses to clients: the ledger (pure).

One event per line, in the order in which the clients got the responses, with the fields of the live fault tests'
ledgers: event, time, topic, partition, offset, producer, sequence, digest. There an event is about a record, here about
a batch; its digest is the batch's checksum, and its sequence that of the first record.

    acked       the broker acknowledged the batch (`acks` of the request beside it)
    failed      the client got an error, or gave up: the batch may or may not be in the log
    refused     every attempt was refused before the append: the batch is not in the log
    disordered  the sequence that follows the last acknowledged one was refused ("failed" follows)
    read        a consumer was served the batch at this offset
    committed   a group's commit was acknowledged: `offset` is the committed one, `producer` the member
    unanswered  a group's commit got no answer: it may be done, or be done later
    resumed     a member read the committed offset of a partition that it owns now

Each event is passed to the `watchers` at once; the invariants are one of them.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

ACKED, FAILED, REFUSED, READ = "acked", "failed", "refused", "read"
COMMITTED, UNANSWERED, RESUMED, OUT_OF_ORDER = "committed", "unanswered", "resumed", "disordered"
NOWHERE = 1 << 62  # behind everything


class Event(NamedTuple):
    """One thing that one client learned."""

    time_ms: int
    kind: str
    topic: str
    partition: int
    offset: int
    producer: str
    producer_id: int
    producer_epoch: int
    sequence: int
    digest: int
    acks: int
    topic_id: bytes | None = None
    group: str = ""
    generation: int = -1
    asked_ms: int = 0  # when the answered request was sent
    leader_epoch: int = -1  # of the leader that was asked, as the client had it
    position: int = NOWHERE  # of the reader: from where it fetched, or behind the batch before this one

    def as_json(self) -> dict[str, object]:
        """The line of the ledger."""
        line: dict[str, object] = {
            "event": self.kind,
            "time": self.time_ms / 1000,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "producer": self.producer,
            "sequence": self.sequence,
            "digest": f"{self.digest:08x}",
        }
        if self.group:
            line |= {"group": self.group, "generation": self.generation, "asked": self.asked_ms / 1000}
        return line


class History:
    """All events of one run."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.events: list[Event] = []
        self.counts: dict[str, int] = {}
        self.watchers: list[Callable[[Event], None]] = []

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def note(self, event: Event) -> None:
        """Write an event down, and tell those who watch."""
        self.events.append(event)
        self.counts[event.kind] = self.counts.get(event.kind, 0) + 1
        for watch in self.watchers:
            watch(event)
