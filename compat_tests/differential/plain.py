"""Answers as plain values that can be compared: error codes, and values that differ by chance, are replaced by names.

Topic ids, member ids, producer ids, ports, the cluster id and times differ by chance. Ids are named by what is known of
them ("the id of topic x", "member 2"), in the order in which they appear in a scenario, so that a wrong id is still a
difference. Lists of structs are compared as sets: Kafka lists topics and partitions in the order of its hash
tables. The order of records, of numbers and of strings counts.

Times about now are all called "NOW". Those near `PAST_MS`, which scenarios choose, are named by their distance from it.
"""

import math
import pathlib
import re
import time
from typing import Any

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import (
    BATCH_OVERHEAD_BYTES,
    read_all_records,
    read_batch_header,
    read_records,
    walk_entries,
)
from barnabas.wire.topics import topic_id_text
from compat_tests.differential.asking import PAST_MS, YEAR_MS

NO_ID = bytes(16)
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MILLISECONDS = re.compile(r"\b1[6-9]\d{11}\b")
MAGIC_OFFSET = 16  # in entries of all formats
OLD_FORMATS = (0, 1)
NEAR_NOW_SECONDS = 120
NEAR_PAST_MS = 1_000_000
CODECS = 7  # the bits of a batch's attributes that name its codec

# Fields whose value belongs to the run and not to the broker's behaviour.
BY_CHANCE = {"cluster_id", "session_id", "broker_epoch", "total_bytes", "usable_bytes"}
ORDERED = {"synonyms"}  # lists of structs whose order says something
TIMES = {
    "timestamp",
    "base_timestamp",
    "max_timestamp",
    "log_append_time_ms",
    "last_timestamp",
    "transaction_start_time_ms",
}


class Names:
    """What the ids in one side's answers are called."""

    def __init__(self, port: int, directory: pathlib.Path) -> None:
        self.ports = {port: "PORT"}
        self.places = {f":{port}": ":PORT", str(directory): "DIRECTORY"}  # as texts name them
        self._topics: dict[bytes, str] = {}
        self._members: dict[str, str] = {}
        self._producers: dict[int, str] = {}

    def learn(self, answer: m.Message) -> None:
        """Give names to the ids that this answer brings."""
        if isinstance(answer, m.JoinGroupResponse):
            for uuid in UUID.findall(answer.member_id):
                self._members.setdefault(uuid, f"member {len(self._members) + 1}")
        if isinstance(answer, m.InitProducerIdResponse) and answer.producer_id >= 0:
            self._producers.setdefault(answer.producer_id, f"producer {len(self._producers) + 1}")
        for topic in getattr(answer, "topics", None) or ():
            if getattr(topic, "topic_id", NO_ID) != NO_ID and getattr(topic, "name", ""):
                self.learn_topic(bytes(topic.topic_id), topic.name)

    def learn_topic(self, topic_id: bytes, name: str) -> None:
        """A topic that was deleted and created again gets a second name."""
        if topic_id not in self._topics:
            earlier = sum(known.endswith(f" of {name}") for known in self._topics.values())
            self._topics[topic_id] = f"id {earlier + 1} of {name}"

    def topic(self, topic_id: bytes) -> str:
        return "no id" if topic_id == NO_ID else self._topics.get(topic_id, topic_id.hex())

    def producer(self, producer_id: int) -> int | str:
        return self._producers.get(producer_id, producer_id)

    def text(self, text: str) -> str:
        """A text without what differs by chance."""
        for place, name in self.places.items():
            text = text.replace(place, name)
        text = UUID.sub(lambda found: self._members.get(found[0], "UUID"), text)
        for topic_id, name in self._topics.items():
            text = text.replace(topic_id_text(topic_id), name)
        return MILLISECONDS.sub(lambda found: _past(int(found[0])) or "NOW", text)


def plain(value: Any, names: Names, field: str = "") -> Any:  # one case a type
    """The value as strings, numbers, lists and dicts."""
    match value:
        case None | bool() | float():
            # NaN is not equal to itself.
            return value if value is None or math.isfinite(value) else str(value)
        case str():
            return "CHANCE" if field == "cluster_id" else names.text(value)
        case int():
            return _number(value, names, field)
        case bytes() | bytearray() | memoryview():
            content = bytes(value)
            if field.endswith("topic_id"):
                return names.topic(content)
            if field == "records":
                return _batches(content, names)
            return names.text(content.decode("latin-1"))
        # Kafka lists the partitions of a transaction in the order of its hash table.
        case m.DescribeTransactionsResponse.TopicData():
            return {"topic": names.text(value.topic), "partitions": sorted(value.partitions)}
        case m.Struct():
            return {name: plain(getattr(value, name), names, name) for name in value.FIELDS}
        case dict():
            return {plain(key, names): plain(item, names, str(key)) for key, item in value.items()}
        case _:
            items = [plain(item, names, field) for item in value]
            are_structs = bool(items) and all(isinstance(item, m.Struct) for item in value)
            return sorted(items, key=repr) if are_structs and field not in ORDERED else items


def _past(time_ms: int) -> str | None:
    """What a time near PAST_MS, or a year after it, is called: each run has another past."""
    distance_ms = time_ms - PAST_MS
    is_named = any(abs(distance_ms - known_ms) < NEAR_PAST_MS for known_ms in (0, YEAR_MS))
    return f"PAST{distance_ms:+}" if is_named else None


def _number(value: int, names: Names, field: str) -> Any:
    if field in BY_CHANCE and value > 0:
        return "CHANCE"
    if field == "port" and value in names.ports:
        return names.ports[value]
    if field == "producer_id":
        return names.producer(value)
    if field in TIMES and abs(value / 1000 - time.time()) < NEAR_NOW_SECONDS:
        return "NOW"
    if field.endswith("error_code"):
        return _error_name(value)
    return _past(value) or int(value)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _batches(content: bytes, names: Names) -> list[Any]:
    """The batches of a fetched chunk, header by header and record by record; the last one may be cut."""
    if len(content) > MAGIC_OFFSET and content[MAGIC_OFFSET] in OLD_FORMATS:
        return _old_messages(content, names)
    found: list[Any] = []
    position = 0
    while len(content) - position >= BATCH_OVERHEAD_BYTES:
        header = read_batch_header(content, position)
        shown = {name: plain(value, names, name) for name, value in header._asdict().items()}
        del shown["crc"]  # it covers times
        if header.attributes & CODECS:
            del shown["batch_length"]  # compressors differ
        shown["is cut"] = position + header.size_bytes > len(content)
        if not shown["is cut"]:
            shown["records"] = [_record(record, names) for record in read_records(content, position)]
        found.append(shown)
        position += header.size_bytes
    return found if position >= len(content) else [*found, f"{len(content) - position} bytes"]


def _old_messages(content: bytes, names: Names) -> list[Any]:
    """The records of messages of format 0 or 1, compressed or not; a part of another may follow."""
    found: list[Any] = []
    for position, entry in walk_entries(content):
        message = content[position : position + entry.size_bytes]
        found += [[entry.magic, *_record(record, names)] for _, record in read_all_records(message)]
    return found


def _record(record: Any, names: Names) -> list[Any]:
    time_ms = plain(record.timestamp, names, "timestamp")
    return [record.offset, time_ms, plain(record.key, names), plain(record.value, names), repr(record.headers)]
