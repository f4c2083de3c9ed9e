"""Kafka's own command-line tools, which log in with `--command-config`, against a broker with TLS, SCRAM and ACLs."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from compat_tests.kafka import run_java_tool
from compat_tests.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    PASSWORD,
    USER,
    Certificates,
    SecuredBroker,
    create_scram_user,
    jaas,
    scram_login,
)
from compat_tests.test_secured import serial_number

MECHANISM = "SCRAM-SHA-256"
ACLS, CONFIGS = "kafka.admin.AclCommand", "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
NAMES = {"common_name": "broker", "organization_name": "Castle", "organization_unit_name": "Brokers"}

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def key_store(certificates: Certificates) -> Path:
    """The broker's key store, which a test replaces."""
    store = Path(certificates.folder) / "replaced.pem"
    store.write_text(Path(certificates.pem("first.pem", issued(certificates))).read_text())
    return store


def issued(certificates: Certificates):
    return certificates.issue("localhost", "127.0.0.1", **NAMES)


@pytest.fixture(scope="module")
def broker(
    certificates: Certificates, key_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    properties = {
        "broker.id": 1,
        **certificates.pem_stores("listener.name.both."),
        "listener.name.both.ssl.keystore.location": str(key_store),
        **jaas("BOTH"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": "token-secret-4402",
    }
    listeners = {"BROKERS": "PLAINTEXT", "BOTH": "SASL_SSL"}
    with SecuredBroker(tmp_path_factory.mktemp("secured"), listeners, properties) as broker:
        create_scram_user(broker.ports["BROKERS"], MECHANISM, ADMIN, ADMIN_PASSWORD)
        create_scram_user(broker.ports["BROKERS"], MECHANISM, USER, PASSWORD)
        yield broker


@pytest.fixture
def tool(broker: SecuredBroker, certificates: Certificates, tmp_path: Path) -> Tool:
    """Run a tool as the administrator; what it printed, after it has ended well."""
    escaped = certificates.trusted.replace("\\", "\\\\")
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": escaped,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": scram_login(ADMIN, ADMIN_PASSWORD),
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def run(main_class: str, *arguments: str) -> str:
        where = ("--bootstrap-server", broker.at("BOTH"), "--command-config", str(file))
        ran = run_java_tool(main_class, *where, *arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def test_acls_of_every_resource_are_added_listed_and_removed(tool: Tool) -> None:
    principal = ("--allow-principal", f"User:{USER}")
    resources = {
        ("--topic", "letters"): ("Read", "TOPIC", "LITERAL"),
        ("--topic", "let", "--resource-pattern-type", "prefixed"): ("Write", "TOPIC", "PREFIXED"),
        ("--group", "surveyors"): ("Read", "GROUP", "LITERAL"),
        ("--cluster",): ("IdempotentWrite", "CLUSTER", "LITERAL"),
        ("--transactional-id", "bills"): ("Write", "TRANSACTIONAL_ID", "LITERAL"),
        ("--delegation-token", "some-id"): ("Describe", "DELEGATION_TOKEN", "LITERAL"),
        ("--user-principal", "User:bob"): ("CreateTokens", "USER", "LITERAL"),
    }
    for resource, (operation, kind, pattern) in resources.items():
        printed = tool(ACLS, "--add", *principal, "--operation", operation, *resource)
        assert f"resourceType={kind}" in printed
        assert f"patternType={pattern}" in printed
    listed = tool(ACLS, "--list")
    assert len(re.findall(r"Current ACLs for resource", listed)) == len(resources)
    tool(ACLS, "--remove", "--force", "--topic", "let", "--resource-pattern-type", "prefixed")
    tool(ACLS, "--remove", "--force", *principal, "--operation", "Read", "--topic", "letters")
    assert "TOPIC" not in tool(ACLS, "--list")


def test_users_quotas_and_a_key_store_are_configured(
    tool: Tool, broker: SecuredBroker, certificates: Certificates, key_store: Path
) -> None:
    of_user = ("--entity-type", "users", "--entity-name", "carol")
    tool(CONFIGS, "--alter", *of_user, "--add-config", f"SCRAM-SHA-512=[iterations=4096,password={PASSWORD}]")
    tool(CONFIGS, "--alter", *of_user, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    described = tool(CONFIGS, "--describe", *of_user)
    assert "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-512=iterations=4096" in described
    assert "producer_byte_rate=1024.0" in described
    before = serial_number(broker, certificates, "BOTH")
    renewed = issued(certificates)
    key_store.write_text(Path(certificates.pem("renewed.pem", renewed)).read_text())
    changed = f"listener.name.both.ssl.keystore.location={key_store}"
    tool(CONFIGS, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", changed)
    after = serial_number(broker, certificates, "BOTH")
    assert after != before
    assert after == x509.load_pem_x509_certificate(renewed.cert_chain_pems[0].bytes()).serial_number


def test_delegation_tokens_are_created_described_renewed_and_expired(tool: Tool) -> None:
    created = tool(TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", f"User:{USER}")
    token_id, hmac = created.splitlines()[-1].split()[:2]
    assert token_id in tool(TOKENS, "--describe", "--owner-principal", f"User:{ADMIN}")
    assert "Completed renew operation" in tool(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in tool(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in tool(TOKENS, "--describe", "--owner-principal", f"User:{ADMIN}")


def test_partitions_are_reassigned_with_a_throttle(tool: Tool, tmp_path: Path) -> None:
    tool(TOPICS, "--create", "--topic", "moved")
    wanted = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1]}]}
    file = tmp_path / "wanted.json"
    file.write_text(json.dumps(wanted))
    printed = tool(REASSIGN, "--execute", "--reassignment-json-file", str(file), "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in printed
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "leader.replication.throttled.rate=1000000" in tool(CONFIGS, "--describe", *of_broker)
    printed = tool(REASSIGN, "--verify", "--reassignment-json-file", str(file))
    assert "Reassignment of partition moved-0 is completed." in printed
    assert "throttled" not in tool(CONFIGS, "--describe", *of_broker)
