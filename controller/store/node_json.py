"""The JSON of a node, its types checked (pure). Any writer may have put anything there: a ValueError names the node.

The methods of `Fields` take a key and return its value in the type that they are named after, or raise that ValueError.
"""

import json
import re
from typing import NamedTuple, NoReturn, TypeGuard, TypeVar

from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition, topic_id_from_text

Element = TypeVar("Element")

LONG_DIGITS_MAX = 20  # characters of an int64 in decimal, with its sign
INT32_MAX = (1 << 31) - 1  # ids, epochs and partition numbers are int32 in every request


def to_json(value: dict[str, object]) -> bytes:
    """JSON as Apache Kafka writes it: compact, UTF-8. UnicodeEncodeError (a ValueError) for a lone surrogate."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def is_int32(value: object) -> TypeGuard[int]:
    """Whether this is a number that an int32 field of a request can carry."""
    # The type is compared, because JSON's true and false are ints in Python and pass isinstance.
    return type(value) is int and -INT32_MAX <= value <= INT32_MAX


class Fields(NamedTuple):
    """A JSON object of a node, and the path of that node, which errors name."""

    value: dict[str, object]
    path: str

    @classmethod
    def parse(cls, data: bytes | None, path: str) -> "Fields":
        try:
            # Null data are refused like empty data: neither is JSON.
            value = json.loads(data or b"")
            # An escape can stand for a lone surrogate, which has no UTF-8 and so fits no request. Encoding finds it.
            if b"\\u" in (data or b""):
                to_json(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise ValueError(f"{path}: a JSON object was expected, not {value!r:.100}")
        return cls(value, path)

    def fail(self, why: str) -> NoReturn:
        raise ValueError(f"{self.path}: {why}")

    def wrong(self, key: str, expected: str) -> NoReturn:
        self.fail(f"{expected} was expected at {key!r}, not {self.value.get(key)!r:.100}")

    def required(self, key: str) -> str:
        return key if key in self.value else self.fail(f"{key!r} is missing")

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.value.get(key, default)
        return value if is_int32(value) else self.wrong(key, "an integer")

    def long(self, key: str, default: int | None = None) -> int:
        """An int64, which Kafka writes as a string of digits; a JSON number is accepted as well."""
        value = self.value.get(key, default)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            return int(value)
        return value if type(value) is int else self.wrong(key, "a number as a string")

    def own_long(self, key: str) -> int | None:
        """An int64 at a key that is not Kafka's; None for anything else there, for other software may use the key."""
        value = self.value.get(key)
        # The length is compared first: `int` of very long digits raises, and takes its time.
        is_number = isinstance(value, str) and len(value) <= LONG_DIGITS_MAX and _NUMBER.fullmatch(value)
        return int(value) if is_number and isinstance(value, str) else None

    def text(self, key: str) -> str:
        value = self.value.get(key)
        return value if isinstance(value, str) else self.wrong(key, "a string")

    def optional_text(self, key: str) -> str | None:
        return None if self.value.get(key) is None else self.text(key)

    def optional_topic_id(self, key: str) -> bytes | None:
        text = self.optional_text(key)
        if text is None:
            return None
        try:
            topic_id = topic_id_from_text(text)
        except ValueError as error:
            self.fail(str(error))
        return topic_id if topic_id != ZERO_TOPIC_ID else self.wrong(key, "an id that is not zero")

    def array(self, key: str, kind: type[Element], expected: str) -> list[Element]:
        value = self.value.get(key)
        # The type is compared for the same reason as in `is_int32`.
        if not isinstance(value, list) or not all(type(each) is kind for each in value):
            self.wrong(key, expected)
        return value

    def integers(self, key: str) -> list[int]:
        numbers = self.array(key, int, "an array of integers")
        return numbers if all(map(is_int32, numbers)) else self.wrong(key, "an array of integers")

    def objects(self, key: str) -> "list[Fields]":
        return [Fields(each, self.path) for each in self.array(key, dict, "an array of objects")]

    def object(self, key: str) -> "Fields":
        """An object; an absent one, and null, are empty."""
        value = self.value.get(key)
        value = {} if value is None else value
        return Fields(value, self.path) if isinstance(value, dict) else self.wrong(key, "an object")

    def all_integers(self) -> dict[str, int]:
        return {name: self.integer(name) for name in self.value}

    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.text("topic"), self.integer("partition"))

    def strings(self, key: str) -> dict[str, str]:
        fields = self.object(key)
        return {name: fields.text(name) for name in fields.value}

    def members(self, key: str) -> "dict[str, Fields]":
        fields = self.object(key)
        return {name: fields.object(name) for name in fields.value}

    def replicas(self, key: str) -> dict[int, list[int]]:
        """Broker ids of each partition, by partition index, ascending."""
        fields = self.object(key)
        # The numbers must be canonical: "01" and "1" would be two entries of one partition.
        if not all(_PARTITION_NUMBER.fullmatch(name) and is_int32(int(name)) for name in fields.value):
            self.wrong(key, "an object keyed by partition numbers")
        return {index: fields.integers(str(index)) for index in sorted(map(int, fields.value))}


_NUMBER = re.compile("-?[0-9]+")
_PARTITION_NUMBER = re.compile("0|[1-9][0-9]*")
