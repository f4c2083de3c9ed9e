"""Settings from files and the command line: where an error points, and what is only a warning."""

import pytest

from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError, Setting, parse_assignment, parse_properties

FILE = """\
# A comment
log.segment.bytes = 1000000

listeners=PLAINTEXT://127.0.0.1:0,\\
          OTHER://127.0.0.1:0
num.partitions: 3
"""


def test_each_setting_knows_its_line():
    assert parse_properties(FILE, "server.properties") == [
        Setting("log.segment.bytes", "1000000", "server.properties:2"),
        Setting("listeners", "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0", "server.properties:4"),
        Setting("num.partitions", "3", "server.properties:6"),
    ]


def test_a_malformed_value_names_file_line_key_and_allowed_range():
    settings = parse_properties("\nlog.segment.bytes=13\nnum.partitions=many\n", "server.properties")
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(settings)
    assert refused.value.problems == (
        "server.properties:2: Invalid value 13 for configuration log.segment.bytes: Value must be at least 14 "
        "(allowed: int [14,...])",
        "server.properties:3: Invalid value many for configuration num.partitions: Not a number of type INT "
        "(allowed: int [1,...])",
    )


def test_the_last_setting_of_a_name_holds_and_gives_the_origin():
    config = BrokerConfig([Setting("num.partitions", "3", "a:1"), parse_assignment("num.partitions=5")])
    entry = next(entry for entry in config.entries() if entry.row.name == "num.partitions")
    assert (config.num_partitions, entry.origin, entry.text) == (5, "--set", "5")


@pytest.mark.parametrize("text", ["num.partitions", "=5", ""])
def test_an_assignment_without_key_or_value_is_refused(text):
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        parse_assignment(text)


def test_an_assignment_may_hold_an_equals_sign_in_its_value():
    assert parse_assignment("a=b=c") == Setting("a", "b=c", "--set")


def test_an_unknown_property_is_a_warning_that_names_the_nearest():
    config = BrokerConfig({"log.segment.byte": "1", "confluent.metrics": "x", "retention.ms": "1"})
    assert config.warnings() == [
        "given: log.segment.byte is not a known property; did you mean log.segment.bytes?",
        "given: confluent.metrics is not a known property",
        "given: retention.ms is a property of topics; the broker's is log.retention.ms or log.retention.minutes or "
        "log.retention.hours",
    ]


def test_a_property_that_does_not_act_is_a_warning_unless_it_has_its_default():
    config = BrokerConfig({"num.io.threads": "16", "num.network.threads": "3"})
    assert config.warnings() == ["given: num.io.threads has no effect in this version"]


@pytest.mark.parametrize("name", ["create.topic.policy.class.name", "principal.builder.class"])
def test_what_would_be_unsafe_to_ignore_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} is not served by this version"):
        BrokerConfig({name: "broker"})


@pytest.mark.parametrize("text", ["log.dirs=C:\\users\\kafka", "ssl.key.password=so\\u00g0rtini", "a\\u=b"])
def test_a_malformed_escape_names_file_and_line_and_no_secret(text):
    with pytest.raises(ConfigError) as refused:
        parse_properties(f"# A comment\nbroker.id=1\n{text}\n", "server.properties")
    assert refused.value.problems == ("server.properties:3: Malformed \\uxxxx encoding.",)


def test_a_property_of_a_mechanism_that_no_listener_reads_is_a_warning():
    names = ("plain.sasl.jaas.config", "scram-sha-256.castle", "plain.connections.max.reauth.ms")
    warnings = BrokerConfig(dict.fromkeys(names, "5")).warnings()
    assert [warning.split()[1] for warning in warnings] == list(names)
