"""Files for Kafka's KRaft mode: each says what to do, and works once that is done."""

import pytest

from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError, parse_properties

# The keys of the files that come with Apache Kafka, which matter here.
QUORUM = "controller.quorum.voters=1@localhost:9093\n"
MAP = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
COMBINED = (
    "process.roles=broker,controller\n"
    "node.id=1\n"
    f"{QUORUM}"
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
    "inter.broker.listener.name=PLAINTEXT\n"
    "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
    "controller.listener.names=CONTROLLER\n"
    f"{MAP}"
    "log.dirs=kraft-combined-logs\n"
)
BROKER = (
    "process.roles=broker\n"
    "node.id=2\n"
    f"{QUORUM}"
    "listeners=PLAINTEXT://localhost:9092\n"
    "inter.broker.listener.name=PLAINTEXT\n"
    "advertised.listeners=PLAINTEXT://localhost:9092\n"
    "controller.listener.names=CONTROLLER\n"
    f"{MAP}"
    "log.dirs=kraft-broker-logs\n"
)
CONTROLLER = (
    "process.roles=controller\n"
    "node.id=1\n"
    f"{QUORUM}"
    "listeners=CONTROLLER://:9093\n"
    "controller.listener.names=CONTROLLER\n"
    "log.dirs=kraft-controller-logs\n"
)
OF_A_QUORUM = ("process.roles", "controller.quorum")


def configured(text: str) -> BrokerConfig:
    return BrokerConfig(parse_properties(text, "server.properties"))


def problem_of(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        configured(text)
    (problem,) = refused.value.problems
    return problem


@pytest.mark.parametrize("text", [COMBINED, BROKER])
def test_one_message_names_the_lines_to_remove(text):
    assert problem_of(text) == (
        "server.properties:1: this is a configuration for KRaft mode, which Barnabas does not have. One broker needs "
        "neither ZooKeeper nor a controller: remove process.roles (server.properties:1) and controller.quorum.voters "
        "(server.properties:3). Brokers of a cluster need zookeeper.connect instead"
    )


def test_the_newer_way_to_name_the_quorum_is_refused_as_well():
    text = COMBINED.replace(QUORUM, "controller.quorum.bootstrap.servers=localhost:9093\n")
    assert "and controller.quorum.bootstrap.servers (server.properties:3)" in problem_of(text)


def test_the_file_of_a_controller_starts_nothing():
    problem = problem_of(CONTROLLER)
    assert "this is the configuration of a KRaft controller" in problem
    assert "start brokers alone" in problem


@pytest.mark.parametrize(
    ("text", "broker_id", "left_out"),
    [(COMBINED, 1, ["server.properties:2: listeners", "server.properties:4: advertised.listeners"]), (BROKER, 2, [])],
)
def test_without_these_lines_it_starts_and_the_controllers_listeners_are_left_out(text, broker_id, left_out):
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(OF_A_QUORUM)]
    config = configured("".join(lines))
    assert config.broker_id == broker_id
    assert [str(each) for each in config.advertised_endpoints] == ["PLAINTEXT://localhost:9092"]
    assert [each.listener for each in config.listener_endpoints] == ["PLAINTEXT"]
    why = "has CONTROLLER, which is left out: Barnabas has no KRaft controller (controller.listener.names)"
    assert config.warnings() == [f"{place} {why}" for place in left_out]


def test_names_of_listeners_are_compared_without_case():
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://:9092, Controller://:9093 ,OTHER://:9094",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            "controller.listener.names": " controller , other",
        }
    )
    assert [each.listener for each in config.listener_endpoints] == ["PLAINTEXT"]
    assert len(config.warnings()) == 2


def test_with_nothing_but_controllers_listeners_there_is_none():
    with pytest.raises(ConfigError, match="There must be at least one broker advertised listener"):
        BrokerConfig({"listeners": "PLAINTEXT://:9092", "controller.listener.names": "PLAINTEXT"})
