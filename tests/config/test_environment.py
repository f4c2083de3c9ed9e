"""Variables of Kafka's container images, as properties."""

import pytest

from barnabas.config.environment import property_of, translate
from barnabas.config.parse import ConfigError
from tests.images.compose_files import COMPOSE_FILES, THREE_SERVERS


def no_secret(path):
    raise FileNotFoundError(2, "No such file or directory", path)


def properties(environment, **options):
    return {setting.name: setting.text for setting in translate(environment, no_secret, **options).settings}


def problem(environment):
    with pytest.raises(ConfigError) as raised:
        translate(environment, no_secret)
    (text,) = raised.value.problems
    return text


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_CFG_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LISTENER_NAME_IN__SIDE_SSL_KEYSTORE_TYPE", "listener.name.in_side.ssl.keystore.type"),
        (
            "KAFKA_LISTENER_NAME_A_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.a.scram-sha-256.sasl.jaas.config",
        ),
        ("KAFKA_LISTENER_NAME_A_SCRAM-SHA-256_SASL_JAAS_CONFIG", "listener.name.a.scram-sha-256.sasl.jaas.config"),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_PORT_9092_TCP_ADDR", None),
        ("KAFKA_SERVICE_HOST", None),
        ("KAFKA_", None),
        ("PATH", None),
    ],
)
def test_a_variable_is_a_property(variable, name):
    assert property_of(variable) == name


def test_without_variables_clients_on_this_machine_are_served():
    assert properties({}) == {
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "/data",
    }


def test_the_broker_listens_at_the_advertised_ports():
    advertised = "INSIDE://kafka:29092,OUTSIDE://localhost:9092,SIX://[::1]:9093"
    found = properties({"KAFKA_ADVERTISED_LISTENERS": advertised})
    assert found["listeners"] == "INSIDE://0.0.0.0:29092,OUTSIDE://0.0.0.0:9092,SIX://0.0.0.0:9093"


@pytest.mark.parametrize(
    ("mounts", "data"),
    [
        ([], "/data"),
        (["/var/lib/kafka/data"], "/var/lib/kafka/data"),
        (["/bitnami/kafka"], "/bitnami/kafka/data"),
        (["/bitnami/kafka/data"], "/bitnami/kafka/data"),
    ],
)
def test_data_are_where_the_volume_of_the_other_image_was(mounts, data):
    assert properties({}, mounts=mounts)["log.dirs"] == data
    assert properties({"KAFKA_LOG_DIRS": "/d"}, mounts=mounts)["log.dirs"] == "/d"
    assert "log.dirs" not in properties({}, base={"log.dir": "/d"}, mounts=mounts)


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_compose_files_need_no_change_but_the_image(name):
    compose = COMPOSE_FILES[name]
    found = properties(compose.environment())
    assert compose.expected.items() <= found.items()
    assert not found.keys() & {"process.roles", "controller.quorum.voters"}


@pytest.mark.parametrize(
    ("environment", "generation"),
    [
        ({"KAFKA_NODE_ID": "1001", "KAFKA_PROCESS_ROLES": "broker,controller"}, "false"),
        ({"KAFKA_BROKER_ID": "1001", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1001@localhost:9093"}, "false"),
        ({"KAFKA_PROCESS_ROLES": "broker,controller"}, None),
        ({"KAFKA_BROKER_ID": "1001", "KAFKA_ZOOKEEPER_CONNECT": "zoo:2181"}, None),
        ({"KAFKA_BROKER_ID": "1001"}, None),
        (
            {
                "KAFKA_NODE_ID": "1",
                "KAFKA_PROCESS_ROLES": "broker,controller",
                "KAFKA_BROKER_ID_GENERATION_ENABLE": "true",
            },
            "true",
        ),
    ],
)
def test_a_server_of_kraft_mode_may_have_any_id(environment, generation):
    assert properties(environment).get("broker.id.generation.enable") == generation


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"KAFKA_NODE_ID": "1", "KAFKA_BROKER_ID": "2"}, "KAFKA_NODE_ID=1 and KAFKA_BROKER_ID=2 are the same id"),
        (
            {"KAFKA_CFG_NUM_PARTITIONS": "1", "KAFKA_NUM_PARTITIONS": "2"},
            "KAFKA_CFG_NUM_PARTITIONS=1 and KAFKA_NUM_PARTITIONS=2 contradict each other",
        ),
        (
            {"KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_ZOOKEEPER_CONNECT": "zoo:2181"},
            "KAFKA_PROCESS_ROLES asks for KRaft mode, and KAFKA_ZOOKEEPER_CONNECT=zoo:2181 for ZooKeeper: remove one",
        ),
        ({"KAFKA_PROCESS_ROLES": "controller"}, "a controller alone"),
        (THREE_SERVERS, "KAFKA_PROCESS_ROLES and KAFKA_CONTROLLER_QUORUM_VOTERS: a cluster in KRaft mode"),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9,2@b:9,3@c:9"}, "KAFKA_CONTROLLER_QUORUM_VOTERS: a cluster in KRaft"),
        ({"KAFKA_PROCESS_ROLES": "broker"}, "KAFKA_PROCESS_ROLES: a cluster in KRaft mode"),
        ({"KAFKA_SSL_KEY_CREDENTIALS": "pw"}, "KAFKA_SSL_KEY_CREDENTIALS=pw: /etc/kafka/secrets/pw: No such file"),
    ],
)
def test_a_contradiction_names_the_variables(environment, said):
    assert said in problem(environment)


def test_passwords_of_stores_are_read_from_files():
    environment = {"KAFKA_SSL_KEYSTORE_FILENAME": "k.jks", "KAFKA_SSL_KEYSTORE_CREDENTIALS": "k.pw"}
    found = translate(environment, {"/etc/kafka/secrets/k.pw": "s e\n"}.__getitem__).settings
    texts = {setting.name: setting.text for setting in found}
    assert texts["ssl.keystore.location"] == "/etc/kafka/secrets/k.jks"
    assert texts["ssl.keystore.password"] == "s e"


def test_users_of_bitnamis_image_can_log_in():
    environment = {
        "KAFKA_CFG_LISTENERS": "CLIENT://:9092,INTERNAL://:9093",
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "KAFKA_CLIENT_USERS": "alice,bob",
        "KAFKA_CLIENT_PASSWORDS": 'a"1,b',
    }
    jaas = properties(environment)["listener.name.client.plain.sasl.jaas.config"]
    assert jaas.endswith(r'required user_alice="a\"1" user_bob="b";')
    assert problem({**environment, "KAFKA_CLIENT_USERS": "alice"}) == (
        "KAFKA_CLIENT_USERS has 1 names, KAFKA_CLIENT_PASSWORDS 2"
    )
    assert "SCRAM-SHA-256" in problem({**environment, "KAFKA_CFG_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256"})


def test_stores_of_bitnamis_image_are_where_it_looks_for_them():
    environment = {"KAFKA_CFG_LISTENERS": "SSL://:9092", "KAFKA_CERTIFICATE_PASSWORD": "p", "KAFKA_TLS_TYPE": "JKS"}
    found = properties(environment)
    assert found["ssl.keystore.location"] == "/opt/bitnami/kafka/config/certs/kafka.keystore.jks"
    assert found["ssl.truststore.password"] == "p"


def test_what_has_no_effect_is_said_in_a_line():
    environment = {"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_PORT": "tcp://10.0.0.7:9092", "CLUSTER_ID": "x"}
    assert translate(environment, no_secret).notes == [
        "CLUSTER_ID: a new cluster gets an id of its own",
        "without effect here: KAFKA_HEAP_OPTS, KAFKA_PORT",
    ]
    jaas = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/kafka/jaas.conf"}
    assert "JAAS file, which is not read" in translate(jaas, no_secret).notes[-1]
