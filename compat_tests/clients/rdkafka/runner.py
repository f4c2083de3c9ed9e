"""The integration tests of the rdkafka crate, which wraps librdkafka."""

from compat_tests.clients.client import Client, Outcome, Session
from compat_tests.clients.rust import crate_sources, rewrite, run_integration_tests, secured_program

VERSION = "0.39.0"
TARGETS = (
    "test_admin",
    "test_high_consumers",
    "test_high_producers",
    "test_low_consumers",
    "test_low_producers",
    "test_metadata",
    "test_topic_partition_list",
    "test_transactions",
)

# Some tests have an address written into them, where the others ask KAFKA_HOST: ours is put in its place. So is the
# number of replicas of the topics that all of them make.
WRITTEN = {
    "test_high_producers": ('"bootstrap.servers", "localhost"', '"bootstrap.servers", "{bootstrap}"'),
    "test_metadata": (".port(), 9092", ".port(), {port}"),
    "utils": ("TopicReplication::Fixed(1)", "TopicReplication::Fixed({replicas})"),
}


def run(session: Session) -> list[Outcome]:
    sources = crate_sources(session, "rdkafka", VERSION)
    for name, (theirs, ours) in WRITTEN.items():
        port = session.first.rpartition(":")[2]
        here = ours.format(bootstrap=session.bootstrap, port=port, replicas=session.brokers)
        rewrite(sources / "tests" / f"{name}.rs", {theirs: here})
    environment = {"KAFKA_HOST": session.bootstrap, "KAFKA_VERSION": "3.9", "RUST_LOG": "off"}
    outcomes = run_integration_tests(session, sources, TARGETS, environment)
    # Every file brings the same test of what they share along: it counts once.
    return [outcome for outcome in outcomes if "::utils::" not in outcome.test or outcome.test.startswith(TARGETS[0])]


CLIENT = Client(
    name="rdkafka",
    version=VERSION,
    language="Rust, C",
    covers="its own integration tests, over librdkafka 2.12: admin, base and stream consumers, base and future"
    " producers, metadata, transactions",
    run=run,
    secured=secured_program,
    tools=("cargo", "gcc", "make"),
    settings={"num.partitions": "3", "broker.id": "0"},
)
