"""The integration tests of the rdkafka crate, which wraps librdkafka."""

import pathlib

from compat_tests.clients.client import Client, Outcome, Session
from compat_tests.clients.rust import crate_sources, run_integration_tests

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
PUBLISHED = ".published"

# Some tests have an address written into them, where the others ask KAFKA_HOST: ours is put in its place.
ADDRESSES = {
    "test_high_producers": ('"bootstrap.servers", "localhost"', '"bootstrap.servers", "{bootstrap}"'),
    "test_metadata": (".port(), 9092", ".port(), {port}"),
}


def run(session: Session) -> list[Outcome]:
    sources = crate_sources(session, "rdkafka", VERSION)
    point_at(session.bootstrap, sources / "tests")
    environment = {"KAFKA_HOST": session.bootstrap, "KAFKA_VERSION": "3.9", "RUST_LOG": "off"}
    outcomes = run_integration_tests(session, sources, TARGETS, environment)
    # Every file brings the same test of what they share along: it counts once.
    return [outcome for outcome in outcomes if "::utils::" not in outcome.test or outcome.test.startswith(TARGETS[0])]


def point_at(bootstrap: str, tests: pathlib.Path) -> None:
    """Write the tests that name an address, from what was published, with this one."""
    for target, (theirs, ours) in ADDRESSES.items():
        published = tests / f"{target}{PUBLISHED}"
        if not published.exists():
            (tests / f"{target}.rs").rename(published)
        text = published.read_text()
        assert theirs in text, f"{published} names its address in another way"
        here = ours.format(bootstrap=bootstrap, port=bootstrap.rpartition(":")[2])
        (tests / f"{target}.rs").write_text(text.replace(theirs, here))


CLIENT = Client(
    name="rdkafka",
    version=VERSION,
    language="Rust, C",
    covers="its own integration tests, over librdkafka 2.12: admin, base and stream consumers, base and future"
    " producers, metadata, transactions",
    run=run,
    tools=("cargo", "gcc", "make"),
    settings={"num.partitions": "3", "broker.id": "0"},
)
