"""Splits long work into slices, so that the event loop serves clients in between (pure).

A handler of an event owns the image while it works, so it may let other tasks run at any point
(`ControllerContext.decide`, `commit`, `tell`). Pure functions get a slice of their subjects at a time.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TypeVar

from barnabas.wire.topics import TopicPartition

# A topic of up to this many partitions is announced as a whole. A client that saw only some of its
# partitions would take their number for the topic's: it would choose other partitions for its keys
# than later, and leave partitions without a reader.
PARTITIONS_SEEN_TOGETHER = 1000
SUBJECTS_A_SLICE = 100  # decided on, or replayed, before other tasks get a turn: about a millisecond

Item = TypeVar("Item")


def in_slices(items: Iterable[Item], size: int = SUBJECTS_A_SLICE) -> Iterator[list[Item]]:
    """Lists of at most `size` items; `items` is read one list at a time."""
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def in_whole_topics(topic_partitions: Iterable[TopicPartition], size: int) -> Iterator[list[TopicPartition]]:
    """Lists of at most `size` partitions, or of one topic with up to PARTITIONS_SEEN_TOGETHER; larger ones are cut.

    The partitions of a topic stand together.
    """
    part: list[TopicPartition] = []
    for _, partitions in groupby(topic_partitions, key=lambda each: each.topic):
        for run in in_slices(partitions, PARTITIONS_SEEN_TOGETHER):
            if part and len(part) + len(run) > size:
                yield part
                part = []
            part += run
    if part:
        yield part
