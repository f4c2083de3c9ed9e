"""A broker and a ZooKeeper over TLS, with a DIGEST-MD5 login, and ACLs on the nodes that the broker creates."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import kazoo.exceptions
import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.wire import messages as m
from compat_tests.brokers import run_barnabas
from compat_tests.raw import RawClient, ask, create_topic, eventually
from compat_tests.secured import STORE_PASSWORD, Certificates, create_scram_user
from compat_tests.secured_zookeeper import (
    CLIENT_JAAS,
    LOGIN,
    PASSWORD,
    SESSION_MS,
    USER,
    Broker,
    SecuredZooKeeper,
    properties_of,
)
from compat_tests.zookeeper_sessions import client_of


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredZooKeeper]:
    server = SecuredZooKeeper(tmp_path_factory.mktemp("zookeeper"), certificates)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def broker(zookeeper: SecuredZooKeeper, certificates: Certificates, tmp_path: Path) -> Iterator[Broker]:
    jaas = LOGIN
    made = Broker(tmp_path / "broker", properties_of(zookeeper, certificates), jaas)
    made.start()
    yield made
    made.kill()


def test_nodes_are_for_the_broker_to_change_and_those_with_credentials_to_read(
    broker: Broker, zookeeper: SecuredZooKeeper
) -> None:
    create_topic(broker.port, "letters")
    create_scram_user(broker.port, "SCRAM-SHA-256", "alice", "alice-secret-1202")
    plain = broker.properties["zookeeper.connect"].replace(zookeeper.over_tls, zookeeper.bootstrap)
    with client_of(plain) as stranger:
        assert stranger.get("/brokers/topics/letters")[0]
        with pytest.raises(kazoo.exceptions.NoAuthError):
            stranger.set("/brokers/topics/letters", b"{}")
        for path in ("/config/users", "/config/users/alice", "/config/brokers"):
            with pytest.raises(kazoo.exceptions.NoAuthError):
                stranger.get(path)
        acls, _ = stranger.get_acls("/brokers/topics/letters")
        assert {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls} == {("sasl", USER, 31), ("world", "anyone", 1)}
        stranger.create("/consumers/an-old-group", b"")
        # Its parent is open, as for Kafka; what a broker creates in it would not be.
        assert stranger.get_acls("/consumers")[0] == OPEN_ACL_UNSAFE
    assert PASSWORD not in broker.log_text()


def test_users_are_written_before_the_first_start(
    zookeeper: SecuredZooKeeper, certificates: Certificates, tmp_path: Path
) -> None:
    properties = properties_of(zookeeper, certificates)
    file, jaas = tmp_path / "server.properties", tmp_path / "client.jaas"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    jaas.write_text(LOGIN)
    login = {"KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"}
    password = ("--password-file", "-")
    added = run_barnabas("store", "scram", "add", "bob", *password, "--config", str(file), stdin="bob-1", **login)
    assert added.returncode == 0, added.stderr
    listed = run_barnabas("store", "scram", "list", "--config", str(file), **login)
    assert "bob" in listed.stdout
    # The nodes are its own: without the login they cannot be read, and the reason is one line.
    plain = properties["zookeeper.connect"].replace(zookeeper.over_tls, zookeeper.bootstrap)
    stranger = run_barnabas("store", "scram", "list", "--zookeeper", plain)
    assert (stranger.returncode, stranger.stdout, stranger.stderr.count("\n")) == (1, "", 1)


@pytest.fixture
def zookeeper_of_certificates(tmp_path: Path, certificates: Certificates) -> Iterator[SecuredZooKeeper]:
    server = SecuredZooKeeper(
        tmp_path / "zookeeper", certificates, ssl_clientAuth="need", ssl_trustStore_location=certificates.trusted
    )
    server.start()
    yield server
    server.kill()


def test_a_certificate_is_a_user_as_well(
    zookeeper_of_certificates: SecuredZooKeeper, certificates: Certificates, tmp_path: Path
) -> None:
    zookeeper = zookeeper_of_certificates
    # With the names of this machine: ZooKeeper checks those of its clients, and Java reads no empty list of them.
    own = certificates.issue("localhost", "127.0.0.1", common_name="writer")
    properties = properties_of(zookeeper, certificates) | {
        "zookeeper.ssl.keystore.location": certificates.pkcs12("own.p12", own),
        "zookeeper.ssl.keystore.password": STORE_PASSWORD,
    }
    broker = Broker(tmp_path / "broker", properties, "")
    broker.start()
    plain = properties["zookeeper.connect"].replace(zookeeper.over_tls, zookeeper.bootstrap)
    try:
        create_topic(broker.port, "letters")
        with client_of(plain) as stranger:
            acls, _ = stranger.get_acls("/brokers/topics/letters")
            (owner,) = [acl for acl in acls if acl.id.scheme != "world"]
            assert (owner.id.scheme, owner.perms) == ("x509", 31)
            assert "CN=writer" in owner.id.id
            with pytest.raises(kazoo.exceptions.NoAuthError):
                stranger.get("/config/users")
    finally:
        broker.kill()
    assert STORE_PASSWORD not in broker.log_text()


def test_a_session_goes_on_and_begins_again_over_tls(broker: Broker, zookeeper: SecuredZooKeeper) -> None:
    zookeeper.kill()
    time.sleep(2 * SESSION_MS / 1000)  # the session ends
    zookeeper.start()

    def controller() -> int:
        with RawClient(broker.port) as client:
            return int(ask(client, m.MetadataRequest(topics=[]), 9).controller_id)

    eventually(controller, lambda found: found == 1)
    eventually(lambda: created(broker.port, f"again-{time.time_ns()}"), bool)
    assert "Traceback" not in broker.log_text()


def created(port: int, name: str) -> bool:
    try:
        create_topic(port, name)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("jaas", "changed", "why"),
    [
        (CLIENT_JAAS.format(user=USER, password="wrong"), {}, "ZooKeeper refuses the login"),
        (
            LOGIN,
            {"zookeeper.ssl.truststore.location": "other"},
            "certificate verify failed",
        ),
        ("", {}, "zookeeper.set.acl is true, and this broker neither logs in"),
        ("Client { com.sun.security.auth.module.Krb5LoginModule required; };", {}, "which is not served"),
        (
            LOGIN,
            {"zookeeper.ssl.protocol": "SSLv3"},
            "zookeeper.ssl.protocol",
        ),
        (
            LOGIN,
            {"zookeeper.ssl.truststore.location": "/nowhere.pem"},
            "zookeeper.ssl.truststore.location",
        ),
    ],
)
def test_what_is_wrong_ends_the_start_with_its_reason(
    jaas: str,
    changed: dict[str, str],
    why: str,
    zookeeper: SecuredZooKeeper,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    changed = {name: certificates.other_trusted if value == "other" else value for name, value in changed.items()}
    properties = properties_of(zookeeper, certificates) | changed
    broker = Broker(tmp_path / "broker", properties, jaas)
    ran = subprocess.run(
        [*broker.program(), "serve", *broker.arguments()], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode != 0
    assert why in ran.stderr
    assert "Traceback" not in ran.stderr
    assert PASSWORD not in ran.stderr


def test_the_command_line_hides_the_passwords(certificates: Certificates) -> None:
    shown = run_barnabas("config", "--set", f"zookeeper.ssl.keystore.password={STORE_PASSWORD}")
    assert STORE_PASSWORD not in shown.stdout
