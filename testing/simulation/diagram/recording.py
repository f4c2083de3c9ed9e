"""What a recorder keeps of a run (pure). All times are seconds since the run began."""

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.testing.simulation.diagram.frames import UNREADABLE, Summary
from barnabas.testing.simulation.harm import Fault

DOWN, STARTING, UP, PAUSED = "down", "starting", "up", "paused"  # what a broker does
UNDER_WAY = "still under way at the end"
NO_REQUEST = -1
NOT_READ = Summary(UNREADABLE, -1)  # not whole yet, or no answer to a known request

Partition = tuple[str, int]  # a topic's name, and the partition


@dataclass(eq=False, slots=True)
class Sent:
    """One message: a request, a response, or a watch that fires. `number` is its place among all messages.

    `ended` is when its last byte arrived, or when it was lost: then `lost` says why. `answers` is the number of the
    request that a response answers, NO_REQUEST for everything else.
    """

    number: int
    began: float
    source: str
    target: str
    size_bytes: int = 0
    ended: float = -1.0
    lost: str = UNDER_WAY
    answers: int = NO_REQUEST
    summary: Summary = NOT_READ


class Held(NamedTuple):
    """What a broker holds of a partition, from `at` on; `epoch` is None when it holds nothing of it."""

    at: float
    epoch: int | None
    is_leader: bool = False
    log_end_offset: int = -1
    high_watermark: int = -1


class InSync(NamedTuple):
    """The in-sync replicas of a partition in the metadata store, from `at` on."""

    at: float
    leader: int
    in_sync: tuple[int, ...]


class Trouble(NamedTuple):
    """A fault that happened, and the brokers that it took down at once."""

    at: float
    fault: Fault
    took_down: tuple[str, ...]


class Cut(NamedTuple):
    """From `began` to `ended` nothing of `source` reached `target`."""

    source: str
    target: str
    began: float
    ended: float


@dataclass(eq=False, slots=True)
class Recording:
    """Everything. Lists are in the order of time."""

    messages: list[Sent] = field(default_factory=list)
    topic_names: dict[bytes, str] = field(default_factory=dict)  # by id
    replicas: dict[Partition, dict[str, list[Held]]] = field(default_factory=dict)  # by partition, then broker
    in_sync: dict[Partition, list[InSync]] = field(default_factory=dict)
    controllers: list[tuple[float, int]] = field(default_factory=list)  # broker ids; -1: there is none
    states: dict[str, list[tuple[float, str]]] = field(default_factory=dict)  # by broker
    troubles: list[Trouble] = field(default_factory=list)
    troubles_end: float = -1.0
    cuts: list[Cut] = field(default_factory=list)
    end: float = 0.0
