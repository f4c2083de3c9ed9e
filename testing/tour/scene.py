"""What a scene is, and one moment of it, as data (shell).

A scene has a text, steps and an end. Each step is a sentence and what is done to a cluster. `play.py`
runs it and yields moments, from which every front end makes its own: lines of text, a page, a test.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.testing.tour.picture import GroupPicture, PartitionPicture
from barnabas.testing.tour.stage import Stage, Topic


class Step(NamedTuple):
    """What happens next, in a sentence that is true with the planted bug and without, and how it is done."""

    text: str
    act: Callable[[Stage], None]


class Bug(NamedTuple):
    """A bug that can be planted for the scene, by its name in `simulation/bugs.py`."""

    name: str
    text: str  # what the broker does wrong
    ends: str  # what `judge` says then


@dataclass(frozen=True)
class Scene:
    """One scene. It passes if `judge` says what `ends` says, or with the planted bug what `bug.ends` says."""

    name: str
    title: str
    text: str  # for a student: what to watch, and why it is so
    source: str  # where Kafka's own reasons are
    topics: Sequence[Topic]
    steps: Sequence[Step]
    judge: Callable[[Stage], str]  # what became of everything, in words made from what is seen
    ends: str
    bug: Bug | None = None
    brokers: int = 3
    config: Mapping[str, str] = field(default_factory=dict)  # of all brokers


class Moment(NamedTuple):
    """What is seen after one step."""

    number: int  # of the step, from 1
    text: str
    notes: Sequence[str]  # what clients were answered
    pictures: Sequence[PartitionPicture | GroupPicture]  # those that have changed


class End(NamedTuple):
    """What is seen at the end, and what should be."""

    found: str
    expected: str

    @property
    def is_as_expected(self) -> bool:
        """Whether the scene has ended as its text says."""
        return self.found == self.expected
