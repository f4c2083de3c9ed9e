"""The checks of one property's value, with Kafka's messages.

Each check has `describe()`, the allowed range for documentation and errors, and `complaint(value)`, which returns None
or the wrong part of the value with Kafka's reason. The texts are copied from a running Apache Kafka 3.9, because
programs match on them.
"""

import math
import re
from typing import NamedTuple, Protocol

Value = bool | int | float | str | tuple[str, ...] | None

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
PORT_MAX = 65535
DOUBLE_MAX = 1.7976931348623157e308


class Complaint(NamedTuple):
    """What is wrong with a value: the part that is wrong, as text, and why."""

    shown: str
    why: str


class Check(Protocol):
    """What every check can do."""

    def describe(self) -> str: ...

    def complaint(self, value: Value) -> Complaint | None: ...


def show_number(number: float) -> str:
    """A number as Java prints it: a double keeps its point, and from ten million on has an exponent: `1.0E7`."""
    if not isinstance(number, float):
        return str(number)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    # These are the bounds between which Java's `Double.toString` writes no exponent.
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    from decimal import Decimal  # rarely needed

    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{exponent + len(rest)}"


class Range:
    """A number from `minimum` up, to `maximum` where there is one."""

    def __init__(self, minimum: float, maximum: float | None = None) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def describe(self) -> str:
        return f"[{show_number(self.minimum)},...{'' if self.maximum is None else ',' + show_number(self.maximum)}]"

    def complaint(self, value: Value) -> Complaint | None:
        assert isinstance(value, int | float)
        if value < self.minimum:
            return Complaint(show_number(value), f"Value must be at least {show_number(self.minimum)}")
        if self.maximum is not None and value > self.maximum:
            return Complaint(show_number(value), f"Value must be no more than {show_number(self.maximum)}")
        return None


class GzipLevel:
    """A level of gzip, or -1 for the codec's own."""

    def describe(self) -> str:
        return "[1,...,9] or -1"

    def complaint(self, value: Value) -> Complaint | None:
        if isinstance(value, int) and (value == -1 or 1 <= value <= 9):
            return None
        return Complaint(str(value), "Value must be between 1 and 9 or equal to -1")


class Choice:
    """One of a few words."""

    def __init__(self, words: tuple[str, ...], *, any_case: bool = False) -> None:
        self.words = words
        self.any_case = any_case

    def describe(self) -> str:
        return f"{'(case insensitive) ' if self.any_case else ''}[{', '.join(self.words)}]"

    def complaint(self, value: Value) -> Complaint | None:
        # The words of the table are in upper case if the case does not matter.
        word = str(value).upper() if self.any_case else value
        if word in self.words:
            return None
        hint = " (case insensitive)" if self.any_case else ""
        return Complaint(str(value), f"String must be one of{hint}: {', '.join(self.words)}")


class Choices:
    """A list of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def describe(self) -> str:
        return f"[{', '.join(self.words)}]"

    def complaint(self, value: Value) -> Complaint | None:
        assert isinstance(value, tuple)
        for word in value:
            if word not in self.words:
                return Complaint(word, f"String must be one of: {', '.join(self.words)}")
        return None


class NonEmpty:
    """Any text but the empty one."""

    def describe(self) -> str:
        return "non-empty string"

    def complaint(self, value: Value) -> Complaint | None:
        return Complaint("", "String must be non-empty") if value == "" else None


class HostPort:
    """An address to listen at; an empty text is none."""

    def describe(self) -> str:
        return "host:port, or nothing"

    def complaint(self, value: Value) -> Complaint | None:
        assert isinstance(value, str)
        if not value or parse_host_port(value) is not None:
            return None
        return Complaint(value, "Value must be host:port, with an IPv6 address in brackets and a port up to 65535")


def parse_host_port(text: str) -> tuple[str, int] | None:
    """("::1", 9644) of "[::1]:9644"; None if it is no such text. The host may be empty: every interface."""
    # An IPv6 address has colons itself, so it stands in brackets.
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]/]*)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > PORT_MAX:
        return None
    return match[1] or match[2] or "", int(match[3])


class KafkaVersion:
    """A version of the protocol among brokers, with or without its `-IV` suffix or patch number."""

    def describe(self) -> str:
        return f"a Kafka version from {KAFKA_VERSIONS[0]} to {KAFKA_VERSIONS[-1]}"

    def complaint(self, value: Value) -> Complaint | None:
        text = str(value)
        parts = text.split(".")
        # A version below 1.0 has its major version in the second number, so three numbers identify
        # a release.
        major_minor = ".".join(parts[: 3 if text.startswith("0.") else 2])
        known = major_minor in KAFKA_VERSIONS or any(name.startswith(f"{major_minor}-IV") for name in KAFKA_VERSIONS)
        return None if known and len(parts) > 1 else Complaint(text, f"Version {text} is not a valid version")


class ThrottledReplicas:
    """`*`, or pairs partition:broker."""

    def __init__(self, name: str) -> None:
        self.name = name

    def describe(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

    def complaint(self, value: Value) -> Complaint | None:
        assert isinstance(value, tuple)
        if value[:1] == ("*",) or all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in value):
            return None
        why = f"{self.name} must be the literal '*' or a list of replicas in the following format: {self.describe()}"
        return Complaint(f"[{', '.join(value)}]", why)


# fmt: off
KAFKA_VERSIONS = (
    "0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0-IV0", "0.10.0-IV1", "0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2",
    "0.10.2-IV0", "0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2", "1.0-IV0", "1.1-IV0", "2.0-IV0", "2.0-IV1", "2.1-IV0",
    "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0", "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.5-IV0", "2.6-IV0",
    "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0",
    "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
    "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1",
)
# fmt: on


def at_least(minimum: float) -> Range:
    """Any number from `minimum` up."""
    return Range(minimum)


def between(minimum: float, maximum: float) -> Range:
    """Any number from `minimum` to `maximum`, both included."""
    return Range(minimum, maximum)


def one_of(*words: str) -> Choice:
    """Exactly one of these words."""
    return Choice(words)


def some_of(*words: str) -> Choices:
    """A list of any of these words."""
    return Choices(words)
