"""Values from text and back, and Kafka's words for what is wrong with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.property import InvalidValue, attribute_name, format_value, parse_value
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE

# What Apache Kafka 3.9.1 answers, word for word.
REFUSED_TOPIC_VALUES = [
    ("retention.ms", "x", "Invalid value x for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
    ("retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "1.5", "Invalid value 1.5 for configuration retention.ms: Not a number of type LONG"),
    (
        "flush.ms",
        str(1 << 63),
        f"Invalid value {1 << 63} for configuration flush.ms: Not a number of type LONG",
    ),
    # Python's int() raises another error for so many.
    ("flush.ms", "9" * 5000, f"Invalid value {'9' * 5000} for configuration flush.ms: Not a number of type LONG"),
    ("segment.bytes", "3", "Invalid value 3 for configuration segment.bytes: Value must be at least 14"),
    (
        "segment.bytes",
        "3000000000",
        "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
    ),
    ("segment.bytes", "", "Invalid value  for configuration segment.bytes: Not a number of type INT"),
    (
        "cleanup.policy",
        "delete,bad",
        "Invalid value bad for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (
        "compression.type",
        "lzma",
        "Invalid value lzma for configuration compression.type: String must be one of: "
        "uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        "compression.zstd.level",
        "99",
        "Invalid value 99 for configuration compression.zstd.level: Value must be no more than 22",
    ),
    (
        "min.cleanable.dirty.ratio",
        "2",
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "message.format.version",
        "x",
        "Invalid value x for configuration message.format.version: Version x is not a valid version",
    ),
    (
        "leader.replication.throttled.replicas",
        "x",
        "Invalid value [x] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
]


@pytest.mark.parametrize(("name", "text", "message"), REFUSED_TOPIC_VALUES)
def test_a_refused_value_is_explained_in_kafkas_words(name, text, message):
    with pytest.raises(InvalidValue) as refused:
        parse_value(TOPIC_TABLE[name], text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 1000 ", 1000),
        ("retention.ms", "+5", 5),
        ("unclean.leader.election.enable", "TRUE", True),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("min.cleanable.dirty.ratio", "0.5d", 0.5),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("message.format.version", "3.0", "3.0"),
        ("message.format.version", "3.9.1", "3.9.1"),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
    ],
)
def test_an_unusual_but_valid_value_is_taken_as_kafka_takes_it(name, text, value):
    assert parse_value(TOPIC_TABLE[name], text) == value


@given(st.integers(min_value=-(1 << 70), max_value=1 << 70))
def test_a_long_is_taken_exactly_when_it_fits_64_bits(number):
    row = BROKER_TABLE["connections.max.idle.ms"]
    try:
        assert parse_value(row, str(number)) == number
    except InvalidValue:
        assert not -(1 << 63) <= number < 1 << 63


def test_numbers_are_printed_as_java_prints_them():
    assert format_value(BROKER_TABLE["log.cleaner.io.max.bytes.per.second"].default) == "1.7976931348623157E308"
    assert format_value(0.5) == "0.5"
    assert format_value(True) == "true"
    assert format_value(("a", "b")) == "a,b"


def test_a_password_is_never_shown():
    row = BROKER_TABLE["ssl.keystore.password"]
    assert row.sensitive
    assert parse_value(row, "secret") == "secret"


def test_attribute_names_are_snake_case():
    assert attribute_name("zookeeper.clientCnxnSocket") == "zookeeper_client_cnxn_socket"
    assert attribute_name("log.segment.bytes") == "log_segment_bytes"
