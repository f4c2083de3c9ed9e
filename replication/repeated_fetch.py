"""The requests of a follower's session, encoded from a template where only offsets have changed (pure).

A follower that keeps up names the same partitions in request after request. These differ in the epoch of the session
and in the fetch offsets, so a request is the bytes of an earlier one with other numbers.
"""

import struct
from typing import NamedTuple

from barnabas.replication.follower_state import Asked, FetchLimits, Position, fetch_request
from barnabas.wire import messages as m
from barnabas.wire.templates import parts_around
from barnabas.wire.topics import TopicPartition

PARTITIONS_MAX = 20  # of a template
TEMPLATES_MAX = 8  # of a fetcher, each of other partitions

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
# Placeholders that no field of a request has as its value; those of the fetch offsets count down from `_OFFSET_MARK`.
_EPOCH_MARK = 0x71929394
_OFFSET_MARK = -0x0102030405060708

Partitions = tuple[TopicPartition, ...]


class Common(NamedTuple):
    """What is the same in all requests of a template, beside its partitions."""

    session_id: int
    version: int
    limits: FetchLimits
    broker_id: int
    broker_epoch: int


class FetchRequests:
    """The requests of one fetcher."""

    def __init__(self) -> None:
        # By the partitions of an incremental request; None while they were named only once. A template costs as much as
        # three requests, and with many partitions each request may name others.
        self._templates: dict[Partitions, _Template | None] = {}

    def next(
        self, asked: Asked, limits: FetchLimits, version: int, broker_id: int, broker_epoch: int
    ) -> tuple[m.FetchRequest, bytes | None]:
        """The next request, and its body if a template has it. The message may change with the request after it."""
        if asked.is_full or asked.forgotten or len(asked.named) > PARTITIONS_MAX:
            return fetch_request(asked, limits, version, broker_id, broker_epoch), None
        common = Common(asked.session_id, version, limits, broker_id, broker_epoch)
        partitions = tuple(asked.named)
        template = self._templates.get(partitions)
        if template is not None:
            body = template.filled(asked, common)
            if body is not None:
                return template.request, body

        request = fetch_request(asked, limits, version, broker_id, broker_epoch)
        was_named = partitions in self._templates
        if not was_named and len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        self._templates[partitions] = _template_of(request, asked, common) if was_named else None
        return request, None


class _Template:
    """Requests that name the same partitions."""

    __slots__ = ("_common", "_members", "_parts", "_places", "_positions", "request")

    def __init__(self, request: m.FetchRequest, common: Common, positions: list[Position], parts: list[bytes]) -> None:
        """`parts`: the bytes of the request around its session epoch and its fetch offsets."""
        self.request = request
        self._common = common
        self._members = [partition for topic in request.topics for partition in topic.partitions]
        self._positions = positions
        self._parts = parts
        self._places = struct.Struct(f">{len(parts[0])}si" + "".join(f"{len(part)}sq" for part in parts[1:-1]))

    def filled(self, asked: Asked, common: Common) -> bytes | None:
        """The body of this request, and `request` says the same. None if more than session epoch and offsets differ."""
        if common != self._common:
            return None
        positions = asked.named.values()
        for position, known in zip(positions, self._positions, strict=True):
            topic_id, leader_epoch, _, last_fetched_epoch, log_start_offset = position
            if (topic_id, leader_epoch, known.fetch_offset, last_fetched_epoch, log_start_offset) != known:
                return None

        self.request.session_epoch = asked.session_epoch
        values: list[bytes | int] = [self._parts[0], asked.session_epoch]
        for member, part, position in zip(self._members, self._parts[1:-1], positions, strict=True):
            member.fetch_offset = position.fetch_offset
            values += part, position.fetch_offset
        return self._places.pack(*values) + self._parts[-1]


def _template_of(request: m.FetchRequest, asked: Asked, common: Common) -> _Template | None:
    """The template of this request; None if other bytes of it look like a mark."""
    marked = fetch_request(
        asked._replace(
            session_epoch=_EPOCH_MARK,
            named={
                key: position._replace(fetch_offset=_OFFSET_MARK - number)
                for number, (key, position) in enumerate(asked.named.items())
            },
        ),
        *(common.limits, common.version, common.broker_id, common.broker_epoch),
    )
    offsets = [_INT64.pack(_OFFSET_MARK - number) for number in range(len(asked.named))]
    parts = parts_around(m.encode(marked, common.version), [_INT32.pack(_EPOCH_MARK), *offsets])
    return None if parts is None else _Template(request, common, list(asked.named.values()), parts)
