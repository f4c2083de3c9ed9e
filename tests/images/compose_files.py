"""Brokers of compose files that well-known projects publish: their variables as they are, and names of hosts.

The facts are those of the files at the end of 2025. None of them starts Barnabas; a user changes the name of the image.
"""

from typing import NamedTuple


class ComposeFile(NamedTuple):
    """One broker: its variables, as lines `NAME=value`.

    `hosts`: the names of its container, and of others to which it connects. `clients`: an address for clients in other
    containers. `expected`: some properties that the variables have to give.
    """

    image: str
    variables: str
    hosts: tuple[str, ...]
    clients: str
    expected: dict[str, str]
    zookeeper: str | None = None  # where it expects one

    def environment(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.variables.split("\n") if line)


COMPOSE_FILES = {
    "Apache Kafka, single node": ComposeFile(
        image="apache/kafka",
        variables="""
KAFKA_NODE_ID=1
KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
KAFKA_ADVERTISED_LISTENERS=PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092
KAFKA_PROCESS_ROLES=broker,controller
KAFKA_CONTROLLER_QUORUM_VOTERS=1@broker:29093
KAFKA_LISTENERS=CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092
KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT
KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
CLUSTER_ID=4L6g3nShT-eMCtK--X86sw
KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0
KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
KAFKA_LOG_DIRS=/tmp/kraft-combined-logs
""",
        hosts=("broker",),
        clients="broker:19092",
        expected={"node.id": "1", "inter.broker.listener.name": "PLAINTEXT", "log.dirs": "/tmp/kraft-combined-logs"},
    ),
    "Confluent, cp-all-in-one": ComposeFile(
        image="confluentinc/cp-server",
        variables="""
KAFKA_NODE_ID=1
KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092
KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0
KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR=1
KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR=1
KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
KAFKA_JMX_PORT=9101
KAFKA_JMX_HOSTNAME=localhost
KAFKA_CONFLUENT_SCHEMA_REGISTRY_URL=http://schema-registry:8081
CONFLUENT_METRICS_ENABLE=true
CONFLUENT_SUPPORT_CUSTOMER_ID=anonymous
KAFKA_PROCESS_ROLES=broker,controller
KAFKA_CONTROLLER_QUORUM_VOTERS=1@broker:29093
KAFKA_LISTENERS=PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092
KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT
KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
KAFKA_LOG_DIRS=/tmp/kraft-combined-logs
CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk
""",
        hosts=("broker",),
        clients="broker:29092",
        expected={"log.dirs": "/tmp/kraft-combined-logs", "inter.broker.listener.name": "PLAINTEXT"},
    ),
    "Kafka UI": ComposeFile(
        image="confluentinc/cp-kafka",
        variables="""
KAFKA_BROKER_ID=1
KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://kafka0:29092,PLAINTEXT_HOST://localhost:9092
KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0
KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
KAFKA_JMX_PORT=9997
KAFKA_JMX_OPTS=-Dcom.sun.management.jmxremote -Djava.rmi.server.hostname=kafka0
KAFKA_PROCESS_ROLES=broker,controller
KAFKA_NODE_ID=1
KAFKA_CONTROLLER_QUORUM_VOTERS=1@kafka0:29093
KAFKA_LISTENERS=PLAINTEXT://kafka0:29092,CONTROLLER://kafka0:29093,PLAINTEXT_HOST://0.0.0.0:9092
KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT
KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
KAFKA_LOG_DIRS=/tmp/kraft-combined-logs
CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk
""",
        hosts=("kafka0",),
        clients="kafka0:29092",
        expected={
            "node.id": "1",
            "broker.id": "1",
            "advertised.listeners": "PLAINTEXT://kafka0:29092,PLAINTEXT_HOST://localhost:9092",
        },
    ),
    "Sentry, self-hosted": ComposeFile(
        image="confluentinc/cp-kafka",
        variables="""
KAFKA_PROCESS_ROLES=broker,controller
KAFKA_CONTROLLER_QUORUM_VOTERS=1001@127.0.0.1:29093
KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
KAFKA_NODE_ID=1001
CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk
KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:29092,INTERNAL://0.0.0.0:9093,EXTERNAL://0.0.0.0:9092,CONTROLLER://0.0.0.0:29093
KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:29092,INTERNAL://kafka:9093,EXTERNAL://kafka:9092
KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT
KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=1
KAFKA_LOG_RETENTION_HOURS=24
KAFKA_MESSAGE_MAX_BYTES=50000000
KAFKA_MAX_REQUEST_SIZE=50000000
CONFLUENT_SUPPORT_METRICS_ENABLE=false
KAFKA_LOG4J_LOGGERS=kafka.cluster=WARN,kafka.controller=WARN,kafka.coordinator=WARN,kafka.log=WARN,kafka.server=WARN
KAFKA_LOG4J_ROOT_LOGLEVEL=WARN
KAFKA_TOOLS_LOG4J_LOGLEVEL=WARN
""",
        hosts=("kafka",),
        clients="kafka:9092",
        expected={"node.id": "1001", "broker.id.generation.enable": "false", "message.max.bytes": "50000000"},
    ),
    "Conduktor, one ZooKeeper and one broker": ComposeFile(
        image="confluentinc/cp-kafka",
        variables="""
KAFKA_ADVERTISED_LISTENERS=INTERNAL://kafka1:19092,EXTERNAL://127.0.0.1:9092,DOCKER://host.docker.internal:29092
KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,DOCKER:PLAINTEXT
KAFKA_INTER_BROKER_LISTENER_NAME=INTERNAL
KAFKA_ZOOKEEPER_CONNECT=zoo1:2181
KAFKA_BROKER_ID=1
KAFKA_LOG4J_LOGGERS=kafka.controller=INFO,kafka.producer.async.DefaultEventHandler=INFO,state.change.logger=INFO
KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
KAFKA_JMX_PORT=9999
KAFKA_JMX_HOSTNAME=127.0.0.1
KAFKA_AUTHORIZER_CLASS_NAME=kafka.security.authorizer.AclAuthorizer
KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND=true
""",
        hosts=("kafka1", "zoo1"),
        clients="kafka1:19092",
        expected={
            "zookeeper.connect": "zoo1:2181",
            "listeners": "INTERNAL://0.0.0.0:19092,EXTERNAL://0.0.0.0:9092,DOCKER://0.0.0.0:29092",
        },
        zookeeper="zoo1:2181",
    ),
    "PostHog": ComposeFile(
        image="bitnami/kafka",
        variables="""
KAFKA_BROKER_ID=1001
KAFKA_CFG_RESERVED_BROKER_MAX_ID=1001
KAFKA_CFG_LISTENERS=PLAINTEXT://:9092
KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://kafka:9092
KAFKA_CFG_ZOOKEEPER_CONNECT=zookeeper:2181
ALLOW_PLAINTEXT_LISTENER=true
""",
        hosts=("kafka", "zookeeper"),
        clients="kafka:9092",
        expected={"broker.id": "1001", "reserved.broker.max.id": "1001"},
        zookeeper="zookeeper:2181",
    ),
    "Bitnami, the example of its page": ComposeFile(
        image="bitnami/kafka",
        variables="""
KAFKA_CFG_NODE_ID=0
KAFKA_CFG_PROCESS_ROLES=controller,broker
KAFKA_CFG_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093
KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=0@kafka:9093
KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER
""",
        hosts=("kafka",),
        clients="kafka:9092",
        expected={"node.id": "0", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
    ),
    "Bitnami, clients inside and outside": ComposeFile(
        image="bitnami/kafka",
        variables="""
ALLOW_PLAINTEXT_LISTENER=yes
KAFKA_ENABLE_KRAFT=yes
KAFKA_BROKER_ID=1
KAFKA_KRAFT_CLUSTER_ID=abcdefghijklmnopqrstuv
KAFKA_CFG_PROCESS_ROLES=broker,controller
KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER
KAFKA_CFG_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094
KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094
KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT
KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=1@127.0.0.1:9093
""",
        hosts=("kafka",),
        clients="kafka:9092",
        expected={"broker.id": "1", "advertised.listeners": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094"},
    ),
}

# The file with three servers that Apache Kafka publishes, which are brokers and controllers of each other.
THREE_SERVERS = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,PLAINTEXT_HOST://:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka-1:19092,PLAINTEXT_HOST://localhost:29092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
}
