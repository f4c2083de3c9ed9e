"""What must hold between properties, in Kafka's words."""

import pytest

from barnabas.config.listeners import Endpoint, parse_endpoints
from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError

WRONG = [
    (
        {"broker.id": "1001"},
        "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
    ),
    ({"broker.id.generation.enable": "false", "broker.id": "-1"}, "broker.id must be greater than or equal to 0"),
    ({"broker.id": "1", "node.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
    ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
    ({"log.dirs": ""}, "At least one log directory must be defined via log.dirs or log.dir."),
    (
        {"queued.max.request.bytes": "10"},
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    ({"listeners": ""}, "There must be at least one broker advertised listener."),
    ({"listeners": "foo"}, "Unable to parse foo to a broker endpoint"),
    ({"listeners": "FOO://localhost:1"}, "No security protocol defined for listener FOO"),
    ({"listeners": "PLAINTEXT://h:70000"}, "Unable to parse PLAINTEXT://h:70000 to a broker endpoint"),
    ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "Each listener must have a different name"),
    ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "Each listener must have a different port"),
    (
        {"listener.security.protocol.map": "A:B"},
        "Invalid security protocol `B` defined in listener.security.protocol.map",
    ),
    ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot use the nonroutable meta-address 0.0.0.0"),
    ({"advertised.listeners": "SSL://a:9092"}, "must be equal to or a subset of the ones defined in listeners. Found"),
    ({"max.connections.per.ip": "0"}, "max.connections.per.ip can be set to zero only if"),
    ({"max.connections.per.ip.overrides": "a:b"}, "Unable to parse a:b as host:count"),
    ({"offsets.commit.required.acks": "2"}, "offsets.commit.required.acks must be greater or equal to -1"),
    ({"inter.broker.listener.name": "X"}, "Listener with name X defined in inter.broker.listener.name not found in"),
    ({"inter.broker.listener.name": "SSL"}, "inter.broker.listener.name must be a listener name defined in"),
    ({"security.inter.broker.protocol": "SSL"}, "inter.broker.listener.name must be a listener name defined in"),
    (
        {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
    ),
    ({"early.start.listeners": "X"}, "early.start.listeners contains listener X, but this is not contained in"),
]
TWO = {
    "listeners": "A://:9092,B://:9093",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
    "inter.broker.listener.name": "a",
}
WRONG += [
    (TWO | values, message)
    for values, message in [
        ({"listeners": "A://:9092,B://:9092"}, "failed: Each listener must have a different port, listeners: A://:90"),
        ({"listeners": "A://h:9092,B://i:9092"}, "failed: Each listener must have a different port, listeners: A://h"),
        ({"listeners": "A://127.0.0.1:1,B://127.0.0.2:1"}, "then one needs to be IPv4 and the other IPv6, listeners"),
        ({"listeners": "A://[::1]:1,B://[::2]:1"}, "then one needs to be IPv4 and the other IPv6, listeners"),
        ({"listeners": "A://127.0.0.1:1,B://[::1]:1,C://[::2]:1"}, "unless exactly one listener has an IPv4 address"),
        ({"listeners": "A://127.0.0.1:1,B://h:1"}, "unless exactly one listener has an IPv4 address and the other"),
        ({"advertised.listeners": "B://h:1"}, "The valid options based on currently configured listeners are B"),
        ({"advertised.listeners": "A://h:1,C://h:1"}, "Found A,C. The valid options based on the current"),
        ({"advertised.listeners": "A://h:1,A://h:2"}, "Each listener must have a different name, listeners: A://h:1,A"),
        ({"advertised.listeners": ""}, "There must be at least one broker advertised listener."),
        ({"control.plane.listener.name": "A"}, "different value from the inter broker listener name. Currently they"),
        ({"control.plane.listener.name": "X"}, "Listener with X defined in control.plane.listener.name not found in"),
        ({"control.plane.listener.name": "C"}, "control.plane.listener.name must be a listener name defined in"),
        (
            {"control.plane.listener.name": "B", "advertised.listeners": "A://h:1"},
            "control.plane.listener.name must be a listener name defined in advertised.listeners",
        ),
    ]
]
RIGHT = [
    {"listeners": "A://127.0.0.1:9092,B://[::1]:9092"},
    {"listeners": "A://:0,B://:0"},
    {"advertised.listeners": "A://h:1,B://h:1"},
    {"advertised.listeners": "A://h:1"},
    {"advertised.listeners": "A://:1"},
    {"control.plane.listener.name": "b"},
    {"listener.security.protocol.map": "a:plaintext,b:plaintext"},
    {"early.start.listeners": "a"},
]


@pytest.mark.parametrize("values", RIGHT)
def test_what_kafka_takes_is_taken(values):
    assert BrokerConfig(TWO | values).inter_broker_listener == "A"


def test_the_controller_may_have_a_listener_of_its_own():
    assert BrokerConfig(TWO).control_plane_listener == "A"
    assert BrokerConfig(TWO | {"control.plane.listener.name": "b"}).control_plane_listener == "B"


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_a_contradiction_is_refused_with_the_place_to_look_at(values, message):
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(values)
    assert any(problem.startswith("given: ") and message in problem for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://:9092", Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092)),
        ("plaintext://h_x:0", Endpoint("PLAINTEXT", "PLAINTEXT", "h_x", 0)),
        ("PLAINTEXT://[::1]:9092", Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092)),
    ],
)
def test_an_endpoint_is_read_as_kafka_reads_it(text, endpoint):
    assert parse_endpoints(text, {"PLAINTEXT": "PLAINTEXT"}) == (endpoint,)


def test_an_endpoint_prints_as_it_is_written():
    assert str(Endpoint("A", "PLAINTEXT", "::1", 1)) == "A://[::1]:1"
    assert Endpoint("A", "PLAINTEXT", "0.0.0.0", 1).is_wildcard


def test_listeners_of_other_names_are_served_when_they_map_to_plaintext():
    config = BrokerConfig(
        {
            "listeners": "IN://127.0.0.1:1,OUT://0.0.0.0:2",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "advertised.listeners": "OUT://example.org:3,IN://127.0.0.1:1",
            "inter.broker.listener.name": "IN",
        }
    )
    assert [str(endpoint) for endpoint in config.listener_endpoints] == ["IN://127.0.0.1:1", "OUT://0.0.0.0:2"]
    assert config.advertised_endpoints[0] == Endpoint("OUT", "PLAINTEXT", "example.org", 3)
    assert config.inter_broker_listener == "IN"


def test_connection_limits_are_kept_by_host():
    config = BrokerConfig({"max.connections.per.ip.overrides": "127.0.0.1:5, [::1]:6, fe80:0:0:0:0:0:0:A:7"})
    assert config.connection_limits == {"127.0.0.1": 5, "::1": 6, "fe80::a": 7}
