"""What the Kafka modules of Testcontainers do to a container: its variables, the script that they put into it, and the
line of the log for which they wait.

The facts are those of testcontainers-java 1.21, testcontainers-go 0.40, @testcontainers/kafka 12.2 and
testcontainers-python 4.15. Ports stand in braces, because a test takes free ones.
"""

from typing import NamedTuple


class Module(NamedTuple):
    """One module: `shell` runs `script` in the container, and the module waits for `awaited`."""

    variables: dict[str, str]
    shell: str
    script: str
    awaited: str


ONE_REPLICA = {
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
TRANSACTIONS = {
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}
OWN_CONTROLLER = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:{client},BROKER://0.0.0.0:{broker},CONTROLLER://0.0.0.0:{controller}",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
}
NO_CONTROLLER = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:{client},BROKER://0.0.0.0:{broker}",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
}
JAVA = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:{controller}",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    **OWN_CONTROLLER,
    **ONE_REPLICA,
    **TRANSACTIONS,
}
PYTHON = {"KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000", **ONE_REPLICA}
FORMAT = """sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t {id} -c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure
"""
ADVERTISE = "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{client},BROKER://localhost:{broker}\n"
CONFIGURE = ". /etc/confluent/docker/bash-config\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch"
ZOOKEEPER = """echo 'clientPort=2181' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
echo 'dataLogDir=/var/lib/zookeeper/log' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
"""
RUNNING = r"Transitioning from RECOVERY to RUNNING"

MODULES = {
    "java": Module(JAVA, "bash", ADVERTISE + "/etc/kafka/docker/run \n", RUNNING),
    "java-confluent": Module(JAVA, "bash", ADVERTISE + "/etc/confluent/docker/run \n", RUNNING),
    "java-deprecated": Module(
        {"KAFKA_ZOOKEEPER_CONNECT": "localhost:2181", **NO_CONTROLLER, **ONE_REPLICA, **TRANSACTIONS},
        "bash",
        f"{ADVERTISE}echo '' > /etc/confluent/docker/ensure \n{ZOOKEEPER}/etc/confluent/docker/run \n",
        r"\[KafkaServer id=\d+\] started",
    ),
    "go": Module(
        {
            "KAFKA_REST_BOOTSTRAP_SERVERS": OWN_CONTROLLER["KAFKA_LISTENERS"],
            "KAFKA_BROKER_ID": "1",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:{controller}",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
            **OWN_CONTROLLER,
            **ONE_REPLICA,
            **TRANSACTIONS,
        },
        "bash",
        "source /etc/confluent/docker/bash-config\n"
        + ADVERTISE
        + FORMAT.replace("{id}", '"$(kafka-storage random-uuid)"')
        + "echo '' > /etc/confluent/docker/ensure\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch",
        RUNNING,
    ),
    "node": Module(
        {
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
            "KAFKA_BROKER_ID": "1",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:{controller}",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
            **OWN_CONTROLLER,
            **ONE_REPLICA,
            **TRANSACTIONS,
        },
        "bash",
        f"{ADVERTISE}{FORMAT.replace('{id}', '4L6g3nShT-eMCtK--X86sw')}/etc/confluent/docker/run \n",
        r"\[KafkaServer id=\d+\] started",
    ),
    "python": Module(
        {**NO_CONTROLLER, **PYTHON},
        "sh",
        f"{ZOOKEEPER}export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'\n{ADVERTISE}{CONFIGURE}",
        r"\[KafkaServer id=\d+\] started",
    ),
    "python-kraft": Module(
        {
            "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
            "KAFKA_BROKER_ID": "1",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:{controller}",
            **OWN_CONTROLLER,
            **PYTHON,
        },
        "sh",
        FORMAT.replace("{id}", "MkU3OEVBNTcwNTJENDM2Qk") + ADVERTISE + CONFIGURE,
        r"Kafka Server started",
    ),
}
