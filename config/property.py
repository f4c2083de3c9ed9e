"""What one row of the configuration table is, and how its value is read from text and printed as text.

Types and their parsing are Kafka's (`ConfigDef`): values are trimmed, booleans are written in any case, numbers are
decimal with an optional sign and must fit their width, lists are separated by commas.
"""

import re
from enum import Enum, IntEnum
from typing import NamedTuple

from barnabas.config.checks import Check, Value, one_of, show_number


class Type(IntEnum):
    """Kafka's types of properties; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """Whether a broker property can change while brokers run, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Effect(Enum):
    """What Barnabas does with a property."""

    SERVED = "served"  # it has its effect
    ACCEPTED = "accepted"  # it has no effect; a value other than the default is logged as a warning
    REFUSED = "refused"  # with a value other than the default the broker does not start: ignoring it would be unsafe


class Property(NamedTuple):
    """One row: a property of the broker, or of a topic."""

    name: str
    type: Type
    default: Value
    check: Check | None
    update: Update
    effect: Effect
    doc: str
    # Only topic properties have synonyms: the broker properties of which the first that is set
    # gives the default, each with the factor into this property's unit.
    synonyms: tuple[tuple[str, int], ...] = ()
    internal: bool = False  # Kafka does not show it in DescribeConfigs

    @property
    def sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return self.type is Type.PASSWORD

    @property
    def attribute(self) -> str:
        """The name of the attribute that holds the value: `log.segment.bytes` is `log_segment_bytes`."""
        return attribute_name(self.name)

    @property
    def allowed(self) -> str:
        """Type and allowed range, for documentation and error messages."""
        return f"{self.type.name.lower()} {self.check.describe() if self.check is not None else ''}".rstrip()


# The words in which the tables are written.
BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
SHORT = Type.SHORT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
LIST = Type.LIST
CLASS = Type.CLASS
PASSWORD = Type.PASSWORD
READ_ONLY = Update.READ_ONLY
PER_BROKER = Update.PER_BROKER
CLUSTER_WIDE = Update.CLUSTER_WIDE
SERVED = Effect.SERVED
ACCEPTED = Effect.ACCEPTED
REFUSED = Effect.REFUSED
CODECS = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MS_PER_MINUTE = 60_000
MS_PER_HOUR = 60 * MS_PER_MINUTE

row = Property


def topic(  # in the order of a row, and by position, so that the table stays narrow
    name: str,
    type: Type,
    default: Value,
    check: Check | None,
    effect: Effect,
    doc: str,
    *,
    synonyms: tuple[tuple[str, int], ...] = (),
) -> Property:
    """A row of the table of topic properties, which can all change while brokers run."""
    return Property(name, type, default, check, CLUSTER_WIDE, effect, doc, synonyms)


class InvalidValue(ValueError):
    """A value that its property does not allow; the text is Kafka's."""

    def __init__(self, name: str, shown: str, why: str) -> None:
        super().__init__(f"Invalid value {shown} for configuration {name}: {why}")


def attribute_name(name: str) -> str:
    """`zookeeper.clientCnxnSocket` is `zookeeper_client_cnxn_socket`."""
    if not name.islower():
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return name.replace(".", "_")


DIGITS_MAX = 1000  # leading zeros included: Python's int() raises another error for more than 4300
_WIDTH_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_DOUBLE = (  # as Java's, without hexadecimal
    r"([+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|NaN|Infinity))[dDfF]?"
)


def parse_value(row: Property, text: str) -> Value:
    """The value that `text` stands for; InvalidValue when the property does not allow it."""
    value = _parse(row, text.strip(), text)
    complaint = row.check.complaint(value) if row.check is not None else None
    if complaint is not None:
        raise InvalidValue(row.name, "[hidden]" if row.sensitive else complaint.shown, complaint.why)
    return value


def _parse(row: Property, trimmed: str, text: str) -> Value:
    match row.type:
        case Type.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise InvalidValue(row.name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case Type.SHORT | Type.INT | Type.LONG:
            bound = 1 << (_WIDTH_BITS[row.type] - 1)
            if not _is_integer(trimmed) or not -bound <= int(trimmed) < bound:
                raise InvalidValue(row.name, text, f"Not a number of type {row.type.name}")
            return int(trimmed)
        case Type.DOUBLE:
            number = re.fullmatch(_DOUBLE, trimmed)
            if not number:
                raise InvalidValue(row.name, text, "Not a number of type DOUBLE")
            return float(number[1])
        case Type.LIST:
            return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
        case Type.STRING | Type.CLASS | Type.PASSWORD:
            return trimmed


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX


def format_value(value: Value) -> str | None:
    """A value as Kafka prints it, so that `parse_value` reads it back; None where there is none."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case int() | float():
            return show_number(value)
        case _:
            return value
