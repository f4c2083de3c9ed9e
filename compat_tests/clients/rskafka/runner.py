"""rskafka's integration tests: client, controller, partition client, streams, and what it and librdkafka write and
read of each other."""

import pathlib

from compat_tests.clients.client import SKIPPED, Client, Outcome, SecuredBrokers, SecuredSuite, Session
from compat_tests.clients.rust import crate_sources, rewrite, run_integration_tests, secured_program

VERSION = "0.6.0"
TARGETS = ("client", "consumer", "produce_consume", "producer")
RSASL = "2.3.1"  # the crate's lock names 2.2.0, which compilers since Rust 1.89 refuse

ONE_REPLICA = ", 1, 5_000)"  # how its tests end what they ask of a new topic

SECURED_TESTS = ("test_sasl", "test_tls")
SILENTLY_SKIPPED = {"client::test_sasl"}  # returns at once, as passed, when nothing tells it of a listener with SASL


def run(session: Session) -> list[Outcome]:
    sources = prepared_sources(session)
    for name in TARGETS:
        rewrite(sources / "tests" / f"{name}.rs", {ONE_REPLICA: f", {session.brokers}, 5_000)"})
    environment = {
        "TEST_INTEGRATION": "1",
        "TEST_BROKER_IMPL": "kafka",
        "TEST_JAVA_INTEROPT": "1",
        "KAFKA_CONNECT": session.bootstrap,
    }
    outcomes = run_integration_tests(session, sources, TARGETS, environment)
    return [Outcome(test, SKIPPED if test in SILENTLY_SKIPPED else status) for test, status in outcomes]


def run_secured(session: Session, brokers: SecuredBrokers) -> list[Outcome]:
    """Those that `run` leaves out: their addresses, files and users are written into the tests."""
    sources = prepared_sources(session)
    replaced = {
        "#[ignore]\n": "",
        '"/tmp/cluster-ca.crt"': f'"{brokers.authority}"',
        '"/tmp/ca.crt"': f'"{brokers.certificate}"',
        '"/tmp/ca.key"': f'"{brokers.key}"',
        '"admin".to_string()': f'"{brokers.username}".to_string()',
        '"admin-secret".to_string()': f'"{brokers.password}".to_string()',
    }
    rewrite(sources / "tests" / "client.rs", replaced)
    environment = {
        "TEST_INTEGRATION": "1",
        "TEST_BROKER_IMPL": "kafka",
        "KAFKA_CONNECT": brokers.at("MTLS"),
        "KAFKA_SASL_CONNECT": brokers.at("SASL_PLAINTEXT").split(",")[0],  # it is taken as one address
    }
    return run_integration_tests(session, sources, ("client",), environment, SECURED_TESTS, "transport-tls")


def prepared_sources(session: Session) -> pathlib.Path:
    sources = crate_sources(session, "rskafka", VERSION)
    (sources / "rust-toolchain.toml").unlink(missing_ok=True)  # asks for a compiler of its own
    session.prepare("cargo", "update", "--quiet", "--package", "rsasl", "--precise", RSASL, cwd=sources)
    return sources


CLIENT = Client(
    name="rskafka",
    version=VERSION,
    language="Rust",
    covers="its own integration tests: topics, produce and fetch in every codec, offsets, DeleteRecords, streams, and"
    " the same records written and read by the Java client and by librdkafka",
    run=run,
    secured=secured_program,
    secured_suite=SecuredSuite(covers="a login with PLAIN, and TLS with a client's certificate", run=run_secured),
    tools=("cargo", "cmake", "gcc", "java"),
    settings={"auto.create.topics.enable": "false", "log.retention.ms": "-1"},  # its records are of 1970
)
