"""The rules about groups: who owns a partition, and what a member finds committed."""

from collections.abc import Callable, Sequence

from barnabas.testing.simulation.history import Event
from barnabas.wire.topics import partition_for

Violate = Callable[[str, str], None]  # rule, what has happened
Place = tuple[str, bytes | None, int]  # group, topic id, partition


class GroupRules:
    """I8 and I9: what members of all groups were answered."""

    def __init__(self, violate: Violate) -> None:
        self._violate = violate
        self._owners: dict[tuple[str, int, str, int], str] = {}
        self._generations: dict[str, int] = {}
        self._offsets: dict[Place, list[tuple[int, int]]] = {}  # (answered at, largest so far)
        self._unanswered: dict[Place, set[int]] = {}

    def owns(self, group: str, generation: int, member: str, topic: str, partitions: Sequence[int]) -> None:
        """A member learned what it owns in this generation."""
        self._generations[group] = max(generation, self._generations.get(group, -1))
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, topic, partition), member)
            if owner != member:
                self._violate(
                    "I8", f"{topic}-{partition} in generation {generation} of {group} belongs to {owner} and {member}"
                )

    def committed(self, event: Event) -> None:
        """A commit was acknowledged."""
        known = self._offsets.setdefault(_place(event), [])
        largest = max(event.offset, known[-1][1] if known else 0)
        known.append((event.time_ms, largest))

    def unanswered(self, event: Event) -> None:
        """A commit got no answer."""
        self._unanswered.setdefault(_place(event), set()).add(event.offset)

    def resumed(self, event: Event) -> None:
        """A member read the committed offset of a partition that it owns now."""
        if event.generation < self._generations.get(event.group, -1):
            return  # the response may come from a deposed coordinator; the member's next request is refused
        known = self._offsets.get(_place(event), [])
        expected = max((offset for at, offset in known if at <= event.asked_ms), default=-1)
        # A commit without an answer may arrive after a later one, on another connection. It takes
        # effect if its member and generation are still current. Kafka does not order such requests
        # either.
        if event.offset < expected and event.offset not in self._unanswered.get(_place(event), ()):
            where = f"{event.topic}-{event.partition}"
            self._violate("I9", f"{event.group} goes back to {event.offset} in {where}; {expected} was committed")

    def forgive(self, partition: int, partition_count: int) -> None:
        """A partition of the offsets topic lost records, as the rules permit: what its groups committed is void."""
        for place in [place for place in self._offsets if partition_for(place[0], partition_count) == partition]:
            del self._offsets[place]
        for owner in [owner for owner in self._owners if partition_for(owner[0], partition_count) == partition]:
            del self._owners[owner]


def _place(event: Event) -> Place:
    return event.group, event.topic_id, event.partition
