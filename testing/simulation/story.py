"""The story of a run: one line an event.

    12.345  orders-0: 2 leads in epoch 3, from 57

Partition 0 of the topic `orders` has a new leader, broker-2, in leader epoch 3; its log ends at offset 57.

Faults, elections, roles, truncations, ISR changes, assignments of groups, permitted losses, violations. The latest
`LINES_MAX` lines are kept. Events of single records are in the history of the clients, the steps of tasks in the trace.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

LINES_MAX = 20_000
# What a party does, by the beginning of its name; the first row that fits.
CAST = (
    ("broker-", "a broker; the story calls it by its number"),
    ("store", "the metadata store, in the place of ZooKeeper"),
    ("admin", "the administrator: creates, deletes, grows and moves topics, deletes records, elects leaders"),
    ("writer-acks-", "a producer with acks=0 or acks=1, as its name says"),
    ("writer-", "a producer with acks=all; topic and partition are in its name"),
    ("twin-", "a producer that has the id of the writer of the same topic and partition"),
    ("reader-", "a consumer of the topic in its name"),
    ("committed-", "a consumer of the topic in its name that reads committed records only"),
    ("member-", "a member of a consumer group: member-0-1 is the second one of group-0"),
    ("transactional-", "a producer with a transactional id"),
    ("rival-", "a producer with the transactional id of the transactional-… of the same number"),
    ("patient", "a producer whose first transaction is open for most of the run"),
    ("processor-", "reads, processes and writes in transactions; …-producer is its producer"),
    ("bookkeeper", "commits offsets in transactions, and deletes them; …-producer is its producer"),
    ("keeper-", "adds and removes ACLs and credentials of the user in its name"),
    ("stranger", "asks for what it has no right to"),
    ("intruder", "logs in with a wrong password"),
    ("hostile-", "uses up each limit of memory in the cheapest way"),
)
NOT_IN_CAST = "another party"


def who_is_who(parties: Iterable[str]) -> Iterator[str]:
    """One line for each kind of party: the names, and what they do."""
    names: dict[str, list[str]] = {}
    for party in parties:
        names.setdefault(purpose_of(party), []).append(party)
    return (f"{', '.join(each)}: {what}" for what, each in names.items())


def purpose_of(party: str) -> str:
    """What a party does."""
    return next((what for prefix, what in CAST if party.startswith(prefix)), NOT_IN_CAST)


class Story:
    """The lines of one run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._lines: deque[tuple[float, str]] = deque(maxlen=LINES_MAX)

    @property
    def seconds(self) -> float:
        """How long the run has lasted, in virtual time."""
        return self._now() - self._began

    def tell(self, line: str) -> None:
        """Something happened."""
        self._lines.append((self.seconds, line))

    @property
    def events(self) -> list[tuple[float, str]]:
        """The lines, each with its time in seconds since the run began."""
        return list(self._lines)

    def __iter__(self) -> Iterator[str]:
        return (f"{seconds:9.3f}  {line}" for seconds, line in self._lines)
