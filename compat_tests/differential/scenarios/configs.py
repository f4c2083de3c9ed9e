"""Configuration: every property is described, every validator is tried with values that fit and values that do not.

The names are those of our table; `what_is_described` shows that they are Kafka's. The values are the same for all
properties, chosen at the edges of the validators that Kafka has.
"""

from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE
from barnabas.wire import messages as m
from compat_tests.differential.asking import new_topic
from compat_tests.differential.scenario import scenario

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # kinds of resource
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
VALUES = (
    *(
        "",
        " ",
        "abc",
        "true",
        "FALSE",
        "0",
        "1",
        "-1",
        "-2",
        "4",
        "13",
        "14",
        "  7 ",
        "+7",
        "0x10",
        "1.5",
        "0.5",
        "1.0",
    ),
    *("-0.1", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "1e3", "NaN"),
    *("delete", "compact", "compact,delete", "delete,delete", "compact,x", "gzip", "zstd", "GZIP", "producer", "none"),
    *(
        "CreateTime",
        "LogAppendTime",
        "logappendtime",
        "*",
        "0:1",
        "0:1,1:2",
        "0:x",
        ":",
        "3.9",
        "0.8.0",
        "3.9-IV0",
        "9.9",
    ),
)
# Properties that would disturb the scenarios after this one, or that depend on the machine.
NOT_DESCRIBED = {"log.dirs", "log.dir", "zookeeper.connect", "zookeeper.connection.timeout.ms"}


def describe(*resources, names=None, synonyms=False, documentation=False):
    """[(kind, name)]"""
    Resource = m.DescribeConfigsRequest.DescribeConfigsResource
    return m.DescribeConfigsRequest(
        resources=[
            Resource(resource_type=kind, resource_name=name, configuration_keys=names) for kind, name in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


def alter(kind, name, *changes, validate_only=False):
    """[(property, operation, value)]"""
    Request = m.IncrementalAlterConfigsRequest
    configs = [
        Request.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
    ]
    resource = Request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return Request(resources=[resource], validate_only=validate_only)


def replace(kind, name, *configs, validate_only=False):
    """[(property, value)]"""
    Request = m.AlterConfigsRequest
    rows = [Request.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = Request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return Request(resources=[resource], validate_only=validate_only)


def is_kafkas(name):
    """Whether a property is one of Kafka's: it does not know ours, and takes any value for them."""
    return not name.startswith("barnabas.")


@scenario
def every_topic_property_with_every_value(side):
    with side.connect() as client:
        for name in TOPIC_TABLE:
            for value in VALUES:
                topic = new_topic(side.name("one"), configs=[(name, value)])
                request = m.CreateTopicsRequest(topics=[topic], timeout_ms=15_000, validate_only=True)
                answer = client.ask(request, 5)
                answer.topics[0].configs = [row for row in answer.topics[0].configs or () if row.name == name]
                yield f"{name}={value!r}", answer


@scenario
def every_changeable_broker_property_with_every_value(side):
    """For the one broker, and for all: which may be changed at all, and to what."""
    with side.connect() as client:
        for name in filter(is_kafkas, BROKER_TABLE):
            values = VALUES if BROKER_TABLE[name].update.value != "read-only" else ("1",)
            for value in values:
                for broker in ("1", ""):
                    request = alter(BROKER, broker, (name, SET, value), validate_only=True)
                    yield f"{name}={value!r} of {broker!r}", client.ask(request, 1)


@scenario
def what_is_described(side):
    """Each property of a topic, and of the broker: type, default, source, synonyms, and whether it is secret."""
    topic = side.create_topic("one", retention_ms="1234", cleanup_policy="compact,delete")
    for version in range(5):
        for kind, name in ((TOPIC, topic), (BROKER, "1"), (BROKER, "")):
            for synonyms in (False, True):
                answer = side.ask(describe((kind, name), synonyms=synonyms), version)
                for result in answer.results:
                    result.configs = [
                        row for row in result.configs if is_kafkas(row.name) and row.name not in NOT_DESCRIBED
                    ]
                    for row in result.configs:
                        row.synonyms = [same for same in row.synonyms if same.name not in NOT_DESCRIBED]
                yield f"v{version} {kind} {name!r}, synonyms {synonyms}", answer


@scenario
def what_is_documented(side):
    """That there is a text; it is in our own words."""
    topic = side.create_topic("one")
    for version in (3, 4):
        for kind, name in ((TOPIC, topic), (BROKER, "1")):
            (result,) = side.ask(describe((kind, name), documentation=True), version).results
            texts = {row.name: bool(row.documentation) for row in result.configs if is_kafkas(row.name)}
            yield f"v{version} {kind}", texts


@scenario
def odd_questions_about_configs(side):
    topic, unknown = side.create_topic("one"), side.name("unknown")
    cases = {
        "one property": describe((TOPIC, topic), names=["retention.ms"]),
        "unknown property": describe((TOPIC, topic), names=["nope", "retention.ms"]),
        "no properties": describe((TOPIC, topic), names=[]),
        "a property twice": describe((TOPIC, topic), names=["retention.ms", "retention.ms"]),
        "unknown topic": describe((TOPIC, unknown)),
        "bad name": describe((TOPIC, "..")),
        "empty name": describe((TOPIC, "")),
        "broker 7": describe((BROKER, "7"), names=["log.retention.ms"]),
        "broker x": describe((BROKER, "x"), names=["log.retention.ms"]),
        "broker 9999...": describe((BROKER, "9" * 20), names=["log.retention.ms"]),
        "kind 0": describe((0, "x")),
        "kind 1": describe((1, "x")),
        "kind 3": describe((3, "x")),
        "kind 5": describe((5, "x")),
        "kind 99": describe((99, "x")),
        "client metrics": describe((CLIENT_METRICS, "x")),
        "client metrics without a name": describe((CLIENT_METRICS, "")),
        "group": describe((GROUP, "x")),
        "loggers of broker 7": describe((BROKER_LOGGER, "7"), names=["root"]),
        "loggers of x": describe((BROKER_LOGGER, "x"), names=["root"]),
        "loggers of no one": describe((BROKER_LOGGER, ""), names=["root"]),
        "twice": describe((TOPIC, topic), (TOPIC, topic), names=["retention.ms"]),
        "nothing": describe(),
        "good and bad": describe((TOPIC, topic), (TOPIC, unknown), (BROKER, "7"), names=["retention.ms"]),
    }
    for version in range(5):
        with side.connect() as client:
            yield from client.ask_all(version, cases)


def _own(answer, *names):
    """The described rows of these names: value, source, whether it is a default."""
    (result,) = answer.results
    return {row.name: [row.value, row.config_source, row.is_default] for row in result.configs if row.name in names}


@scenario
def topic_configs_are_changed_one_by_one(side):
    topic, unknown = side.create_topic("one"), side.name("unknown")
    steps = {
        "set": alter(TOPIC, topic, ("retention.ms", SET, "1000")),
        "set two": alter(TOPIC, topic, ("retention.ms", SET, "2000"), ("segment.ms", SET, "3000")),
        "set the same": alter(TOPIC, topic, ("retention.ms", SET, "2000")),
        "delete": alter(TOPIC, topic, ("retention.ms", DELETE, None)),
        "delete again": alter(TOPIC, topic, ("retention.ms", DELETE, "x")),
        "append": alter(TOPIC, topic, ("cleanup.policy", APPEND, "compact")),
        "append the same": alter(TOPIC, topic, ("cleanup.policy", APPEND, "compact")),
        "subtract": alter(TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")),
        "subtract what is not there": alter(TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")),
        "subtract all": alter(TOPIC, topic, ("cleanup.policy", SUBTRACT, "compact,delete")),
        "append to a number": alter(TOPIC, topic, ("retention.ms", APPEND, "1")),
        "subtract from a number": alter(TOPIC, topic, ("retention.ms", SUBTRACT, "1")),
        "operation 9": alter(TOPIC, topic, ("retention.ms", 9, "1")),
        "set to null": alter(TOPIC, topic, ("retention.ms", SET, None)),
        "append null": alter(TOPIC, topic, ("cleanup.policy", APPEND, None)),
        "unknown property": alter(TOPIC, topic, ("nope", SET, "1")),
        "delete an unknown property": alter(TOPIC, topic, ("nope", DELETE, None)),
        "bad value": alter(TOPIC, topic, ("retention.ms", SET, "abc")),
        "good and bad": alter(TOPIC, topic, ("retention.ms", SET, "5000"), ("segment.bytes", SET, "1")),
        "twice": alter(TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "set and deleted": alter(TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        "nothing": alter(TOPIC, topic),
        "unknown topic": alter(TOPIC, unknown, ("retention.ms", SET, "1")),
        "bad name": alter(TOPIC, "..", ("retention.ms", SET, "1")),
        "empty name": alter(TOPIC, "", ("retention.ms", SET, "1")),
        "validate": alter(TOPIC, topic, ("retention.ms", SET, "7777"), validate_only=True),
        "validate badly": alter(TOPIC, topic, ("retention.ms", SET, "x"), validate_only=True),
        "contradiction": alter(TOPIC, topic, ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")),
        "local retention": alter(TOPIC, topic, ("local.retention.ms", SET, "999999999999")),
        "remote storage": alter(TOPIC, topic, ("remote.storage.enable", SET, "true")),
    }
    for version in range(2):
        with side.connect() as client:
            for name, request in steps.items():
                yield f"v{version} {name}", client.ask(request, version)
                described = client.ask(describe((TOPIC, topic)), 4)
                own = _own(described, "retention.ms", "segment.ms", "cleanup.policy", "segment.bytes")
                yield f"v{version} {name}: then", own


@scenario
def topic_configs_are_replaced(side):
    topic, unknown = side.create_topic("one"), side.name("unknown")
    steps = {
        "set": replace(TOPIC, topic, ("retention.ms", "1000"), ("segment.ms", "2000")),
        "others": replace(TOPIC, topic, ("cleanup.policy", "compact")),
        "bad value": replace(TOPIC, topic, ("retention.ms", "abc")),
        "unknown property": replace(TOPIC, topic, ("nope", "1")),
        "null": replace(TOPIC, topic, ("retention.ms", None)),
        "twice": replace(TOPIC, topic, ("retention.ms", "1"), ("retention.ms", "2")),
        "validate": replace(TOPIC, topic, ("retention.ms", "1"), validate_only=True),
        "nothing": replace(TOPIC, topic),
        "unknown topic": replace(TOPIC, unknown, ("retention.ms", "1")),
        "bad name": replace(TOPIC, "..", ("retention.ms", "1")),
        "broker 7": replace(BROKER, "7", ("log.retention.ms", "1"), validate_only=True),
        "broker x": replace(BROKER, "x", ("log.retention.ms", "1"), validate_only=True),
        "kind 0": replace(0, "x", ("retention.ms", "1")),
        "kind 99": replace(99, "x", ("retention.ms", "1")),
        "client metrics": replace(CLIENT_METRICS, "x", ("interval.ms", "1000")),
        "group": replace(GROUP, "x", ("consumer.session.timeout.ms", "45000")),
        "loggers": replace(BROKER_LOGGER, "1", ("root", "INFO")),
    }
    for version in range(3):
        with side.connect() as client:
            for name, request in steps.items():
                yield f"v{version} {name}", client.ask(request, version)
                described = client.ask(describe((TOPIC, topic)), 4)
                own = _own(described, "retention.ms", "segment.ms", "cleanup.policy")
                yield f"v{version} {name}: then", own


@scenario
def several_resources_in_one_request(side):
    topic = side.create_topic("one")

    def merged(*requests):
        return type(requests[0])(resources=[request.resources[0] for request in requests])

    good, bad = alter(TOPIC, topic, ("retention.ms", SET, "1")), alter(TOPIC, side.name("none"), ("x", SET, "1"))
    old_good, old_bad = replace(TOPIC, topic, ("retention.ms", "1")), replace(TOPIC, side.name("none"), ("x", "1"))
    with side.connect() as client:
        yield "two topics", client.ask(merged(good, bad), 1)
        yield "a topic twice", client.ask(merged(good, good), 1)
        yield "no resources", client.ask(m.IncrementalAlterConfigsRequest(resources=[]), 1)
        yield "two topics, replaced", client.ask(merged(old_good, old_bad), 2)
        yield "a topic twice, replaced", client.ask(merged(old_good, old_good), 2, seconds=1)
        yield "no resources, replaced", client.ask(m.AlterConfigsRequest(resources=[]), 2)


@scenario
def broker_configs_are_refused(side):
    cases = {
        "read-only": alter(BROKER, "1", ("broker.id", SET, "5")),
        "unknown": alter(BROKER, "1", ("nope", SET, "5")),
        "unknown for all": alter(BROKER, "", ("nope", SET, "5")),
        "topic's name": alter(BROKER, "1", ("retention.ms", SET, "5")),
        "too many threads": alter(BROKER, "1", ("background.threads", SET, "100000")),
        "bad value": alter(BROKER, "1", ("log.cleaner.backoff.ms", SET, "x")),
        "of one broker, for all": alter(BROKER, "", ("listeners", SET, "PLAINTEXT://127.0.0.1:1")),
        "append to a list": alter(BROKER, "", ("log.cleanup.policy", APPEND, "compact"), validate_only=True),
        "operation 9": alter(BROKER, "1", ("log.cleaner.backoff.ms", 9, "1")),
        "broker 7": alter(BROKER, "7", ("log.cleaner.backoff.ms", SET, "1")),
        "broker x": alter(BROKER, "x", ("log.cleaner.backoff.ms", SET, "1")),
        "broker ' 1'": alter(BROKER, " 1", ("log.cleaner.backoff.ms", SET, "1")),
        "kind 0": alter(0, "x", ("a", SET, "1")),
        "kind 99": alter(99, "x", ("a", SET, "1")),
        "client metrics": alter(CLIENT_METRICS, "x", ("interval.ms", SET, "1000")),
        "group": alter(GROUP, "x", ("consumer.session.timeout.ms", SET, "45000")),
    }
    for version in range(2):
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def passwords_are_refused_without_an_encoder_secret(side):
    jaas = "listener.name.later.plain.sasl.jaas.config"
    values = {
        "of a mechanism": ("1", jaas),
        "of a mechanism, for all": ("", jaas),
        "of a listener": ("1", "listener.name.later.ssl.key.password"),
        "of no listener": ("1", "sasl.jaas.config"),
        "of no listener, for all": ("", "sasl.jaas.config"),
        "of a key, without a listener": ("1", "ssl.keystore.password"),
        "of another name": ("1", "plain.ssl.truststore.certificates"),
        "of another name, for all": ("", "plain.ssl.truststore.certificates"),
        "of the broker": ("1", "delegation.token.secret.key"),
    }
    for validate_only in (False, True):
        cases = {
            f"{case}, {validate_only}": alter(BROKER, broker, (name, SET, ""), validate_only=validate_only)
            for case, (broker, name) in values.items()
        }
        appended = alter(BROKER, "1", (jaas, APPEND, "x"), validate_only=validate_only)
        with side.connect() as client:
            yield from client.ask_all(1, cases | {f"appended, {validate_only}": appended})
    with side.connect() as client:
        yield "replaced", client.ask(replace(BROKER, "1", (jaas, "x")), 2)


@scenario
def broker_configs_are_changed(side):
    """A change without effect on other scenarios, undone at the end; Kafka applies it a moment after its response."""
    name = "log.cleaner.backoff.ms"

    def described(broker):
        return _own(side.ask(describe((BROKER, broker)), 4), name)

    steps = {
        "set for one": ("1", SET, "14000", ("1", "14000")),
        "set for all": ("", SET, "13000", ("", "13000")),
        "delete for one": ("1", DELETE, None, ("1", "13000")),
        "delete for all": ("", DELETE, None, ("1", "15000")),
    }
    for step, (broker, operation, value, (seen_at, seen)) in steps.items():
        yield step, side.ask(alter(BROKER, broker, (name, operation, value)), 1)
        side.wait(lambda seen_at=seen_at, seen=seen: described(seen_at).get(name, [None])[0] == seen)
        yield f"{step}: then", {broker: described(broker) for broker in ("1", "")}


@scenario
def levels_of_loggers_are_refused(side):
    """Which loggers there are is each broker's own affair; what cannot be said of any is not."""
    changes = {
        "unknown logger": ("nope", SET, "INFO"),
        "unknown logger, no level": ("nope", SET, "LOUD"),
        "delete an unknown one": ("nope", DELETE, None),
        "root, no level": ("root", SET, "LOUD"),
        "root, no value": ("root", SET, None),
        "delete root": ("root", DELETE, None),
        "append": ("root", APPEND, "INFO"),
        "subtract": ("root", SUBTRACT, "INFO"),
    }
    with side.connect() as client:
        for name, change in changes.items():
            for only in (True, False):
                request = alter(BROKER_LOGGER, "1", change, validate_only=only)
                yield f"{name}, validate {only}", client.ask(request, 1)
        for broker in ("7", "x", ""):
            yield f"broker {broker!r}", client.ask(alter(BROKER_LOGGER, broker, ("root", SET, "INFO")), 1)
        yield "root", client.ask(describe((BROKER_LOGGER, "1"), names=["nope"]), 4)
