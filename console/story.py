"""The story of the cluster, as this broker's log tells it: elections, ISR changes, truncations, rebalances.

While HTTP is served, a handler of Python's logging keeps the last EVENTS_MAX lines of the broker's own loggers. Nothing
of a request is logged, so this costs nothing while the broker works. The lines are for callers who may describe the
cluster.
"""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from barnabas.broker.life import Life
from barnabas.console.asking import Asking, asking_for, check
from barnabas.console.exchange import Answer, HttpRequest, json_answer
from barnabas.console.messages import INT64_MAX, number
from barnabas.wire.errors import ErrorCode

EVENTS_MAX = 10_000
TEXT_MAX = 1000  # characters of a line
PAGE_MAX = 1000
OWN = "barnabas"  # the parent of this package's loggers

# What a line is about, by its logger: the first prefix that fits.
KINDS = (
    ("barnabas.controller", "controller"),
    ("barnabas.replication.fetcher", "replication"),
    ("barnabas.replication.logs", "storage"),
    ("barnabas.replication", "replication"),
    ("barnabas.coordinators.transactions", "transactions"),
    ("barnabas.coordinators", "groups"),
    ("barnabas.storage", "storage"),
    ("barnabas.security", "security"),
    ("barnabas.broker.cluster", "cluster"),
)


class Event(NamedTuple):
    """One line."""

    number: int  # from 1, of this process
    time_ms: int
    level: str
    kind: str
    text: str


class Story(logging.Handler):
    """The last lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        # `logging` holds this handler's lock, as threads log, too. A message that does not fit its arguments is
        # reported by the handler of the log itself.
        try:
            text = record.getMessage()[:TEXT_MAX]
        except (TypeError, ValueError):
            text = str(record.msg)[:TEXT_MAX]
        self.count += 1
        self._events.append(
            Event(self.count, int(record.created * 1000), record.levelname.lower(), kind_of(record.name), text)
        )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep lines inside the block."""
        # Several brokers in one process share these loggers: each story has the lines of all.
        own = logging.getLogger(OWN)
        own.addHandler(self)
        try:
            yield
        finally:
            own.removeHandler(self)

    def after(self, number: int, count_max: int) -> list[Event]:
        """The last events behind this one, at most so many."""
        # The ring forgets the oldest ones; a page that was away too long begins with what is left.
        missing = min(self.count - number, len(self._events), count_max)
        if missing <= 0:
            return []
        return [self._events[index] for index in range(len(self._events) - missing, len(self._events))]


def kind_of(logger: str) -> str:
    """What the lines of a logger are about."""
    return next((kind for prefix, kind in KINDS if logger.startswith(prefix)), "broker")


def may_read(asking: Asking) -> bool:
    """Whether the caller may read the story."""
    return asking.may("Describe", "Cluster")


async def story(life: Life, kept: Story, request: HttpRequest) -> Answer:
    """`GET /v1/story?after=17`: the last lines of the log."""
    asking = asking_for(life, request)
    if not may_read(asking):
        check(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the story")
    events = kept.after(number(request, "after", 0, INT64_MAX, 0), PAGE_MAX)
    return json_answer({"events": [event._asdict() for event in events], "count": kept.count})
