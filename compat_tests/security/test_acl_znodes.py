"""ACLs that a broker of Kafka and one of Barnabas create and delete in one cluster: both, Kafka's tool and the nodes
of ZooKeeper agree.
"""

import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.security.acls.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    ResourcePattern,
)
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess, run_java_tool
from compat_tests.raw import RawClient, ask
from compat_tests.security.matrix_side import OPERATION_NUMBERS, PATTERN_NUMBERS, PERMISSION_NUMBERS, TYPE_NUMBERS
from compat_tests.zookeeper_sessions import client_of
from tests.broker.handlers.authorized import ANY_RULE, codes_in, make

pytestmark = pytest.mark.thorough

SEED = 17
ONE_AT_A_TIME, AT_THE_SAME_TIME, AT_ONCE = 300, 100, 50  # changes: alone, of each broker, between two comparisons
CHANGES = ONE_AT_A_TIME + 2 * AT_THE_SAME_TIME
AGREED_SECONDS_MAX = 2.0
JAVA, OURS = 1, 2  # broker ids
AUTHORIZED = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "User:ANONYMOUS"}
NAMES = ["letters", "let", "*", "a b", "x.y_z-1", "käthe", "100%", "CN=a,O=b"]
HOSTS = ["*", "127.0.0.1", "10.0.0.9", "0:0:0:0:0:0:0:1"]
ANY_ACL = {**ANY_RULE, "pattern_type_filter": 1}


class Party:
    """One of the brokers, and what it knows and does."""

    def __init__(self, process):
        self.process = process

    def ask(self, request, version=3):
        with RawClient(self.process.port) as client:
            answer = ask(client, request, version)
        assert not codes_in(answer), answer
        return answer

    def create(self, bindings):
        self.ask(make("CreateAcls", creations=[creation_of(each) for each in bindings]))

    def delete(self, acl_filter):
        """Delete what the filter finds; what that was."""
        (result,) = self.ask(make("DeleteAcls", filters=[acl_filter])).filter_results
        return [
            binding_of(each.resource_type, each.resource_name, each.pattern_type, each) for each in result.matching_acls
        ]

    def known(self):
        described = self.ask(make("DescribeAcls", **ANY_ACL))
        return {
            binding_of(row.resource_type, row.resource_name, row.pattern_type, each)
            for row in described.resources
            for each in row.acls
        }

    def listed(self):
        """What Kafka's tool prints."""
        ran = run_java_tool("kafka.admin.AclCommand", "--bootstrap-server", self.process.bootstrap, "--list")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return listed_in(ran.stdout)


def creation_of(binding):
    pattern, entry = binding
    return {
        "resource_type": TYPE_NUMBERS[pattern.resource_type],
        "resource_name": pattern.name,
        "resource_pattern_type": PATTERN_NUMBERS[pattern.pattern_type],
        "principal": entry.principal,
        "host": entry.host,
        "operation": OPERATION_NUMBERS[entry.operation],
        "permission_type": PERMISSION_NUMBERS[entry.permission_type],
    }


def binding_of(resource_type, name, pattern_type, acl):
    return AclBinding(
        ResourcePattern(RESOURCE_TYPES[resource_type], name, PATTERN_TYPES[pattern_type]),
        AccessControlEntry(acl.principal, acl.host, OPERATIONS[acl.operation], PERMISSION_TYPES[acl.permission_type]),
    )


def filter_of(binding, *wide):
    """A filter for one ACL; the fields in `wide` are any."""
    exact = creation_of(binding)
    usual = {
        "resource_type_filter": exact["resource_type"],
        "resource_name_filter": exact["resource_name"],
        "pattern_type_filter": exact["resource_pattern_type"],
        "principal_filter": exact["principal"],
        "host_filter": exact["host"],
        "operation": exact["operation"],
        "permission_type": exact["permission_type"],
    }
    return {name: ANY_ACL[name] if name in wide else value for name, value in usual.items()}


WIDE = [
    (),
    ("host_filter", "operation", "permission_type"),  # of one principal and one pattern
    ("resource_type_filter", "resource_name_filter", "pattern_type_filter"),  # this entry on any pattern
    ("pattern_type_filter", "operation", "host_filter", "permission_type"),
]


def random_binding(rng, who):
    kind = rng.choice([name for name in RESOURCE_TYPES.values() if name != "Any"])
    pattern_type = rng.choice(["Literal", "Literal", "Prefixed"])
    name = CLUSTER_NAME if kind == "Cluster" else rng.choice(NAMES)
    operation = rng.choice([name for name in OPERATIONS.values() if name != "Any"])
    entry = AccessControlEntry(
        f"User:{who}{rng.choice(NAMES)}", rng.choice(HOSTS), operation, rng.choice(["Allow", "Deny"])
    )
    return AclBinding(ResourcePattern(kind, name, pattern_type), entry)


def change(rng, party, who, expected):
    """One creation or deletion, whose outcome `expected` follows."""
    mine = sorted(each for each in expected if each.entry.principal.startswith(f"User:{who}"))
    if not mine or rng.random() < 0.55:
        bindings = [random_binding(rng, who) for _ in range(rng.choice([1, 1, 3]))]
        party.create(bindings)
        expected.update(bindings)
        return
    target, wide = rng.choice(mine), rng.choice(WIDE)
    deleted = party.delete(filter_of(target, *wide))
    # A filter of several patterns finds what this broker has heard of; one of a single ACL finds it anyway.
    assert expected.issuperset(deleted)
    assert wide or deleted == [target]
    expected.difference_update(deleted)


def wait_until_known(parties, expected):
    began = time.monotonic()
    while any(party.known() != expected for party in parties):
        if time.monotonic() - began > AGREED_SECONDS_MAX:
            for party in parties:
                assert party.known() == expected, party.process.bootstrap
        time.sleep(0.01)  # the pace of looking
    return time.monotonic() - began


LISTED_RESOURCE = re.compile(
    r"Current ACLs for resource `ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\)`:"
)
LISTED_ENTRY = re.compile(r"\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)")


def listed_in(text):
    by_enum = {name.upper(): name for names in (RESOURCE_TYPES, OPERATIONS) for name in names.values()}
    found, pattern = set(), None
    for line in text.splitlines():
        if match := LISTED_RESOURCE.search(line):
            kind, name, pattern_type = match.groups()
            pattern = ResourcePattern(by_enum[kind.replace("_", "")], name, pattern_type.capitalize())
        elif match := LISTED_ENTRY.search(line):
            principal, host, operation, permission = match.groups()
            entry = AccessControlEntry(principal, host, by_enum[operation.replace("_", "")], permission.capitalize())
            found.add(AclBinding(pattern, entry))
    return found


def nodes_of(zookeeper):
    """Path -> content of every node with ACLs."""
    with client_of(zookeeper.bootstrap) as client:
        found = {}
        for folder in ("/kafka-acl", "/kafka-acl-extended/prefixed"):
            for kind in client.get_children(folder):
                for name in client.get_children(f"{folder}/{kind}"):
                    found[f"{folder}/{kind}/{name}"] = json.loads(client.get(f"{folder}/{kind}/{name}")[0])
        return found


def without_order(nodes):
    return {
        path: {**node, "acls": sorted(node["acls"], key=lambda acl: sorted(acl.items()))}
        for path, node in nodes.items()
    }


def expected_nodes(expected):
    nodes = {}
    for pattern, entry in expected:
        folder = "/kafka-acl" if pattern.pattern_type == "Literal" else "/kafka-acl-extended/prefixed"
        node = nodes.setdefault(f"{folder}/{pattern.resource_type}/{pattern.name}", {"version": 1, "acls": []})
        node["acls"].append(
            {
                "principal": entry.principal,
                "permissionType": entry.permission_type,
                "operation": entry.operation,
                "host": entry.host,
            }
        )
    return nodes


@pytest.fixture
def zookeeper(tmp_path):
    server = ZooKeeperProcess(tmp_path / "zookeeper").start()
    yield server
    server.kill()


@pytest.fixture
def parties(zookeeper, tmp_path):
    """A broker of Kafka and one of Barnabas in one cluster."""
    java = KafkaProcess(tmp_path / "java", zookeeper=zookeeper, **AUTHORIZED, broker_id=JAVA)
    (tmp_path / "ours").mkdir()
    ours = BrokerProcess(tmp_path / "ours", zookeeper_connect=zookeeper.bootstrap, **AUTHORIZED, broker_id=OURS)
    try:
        java.start()
        ours.start()
        yield [Party(java), Party(ours)]
    finally:
        ours.kill()
        java.kill()


def test_both_brokers_the_tool_and_the_nodes_agree_after_random_changes(parties, zookeeper, capsys):
    rng, expected, slowest = random.Random(SEED), set(), 0.0
    for number in range(ONE_AT_A_TIME):
        change(rng, rng.choice(parties), "", expected)
        if number % AT_ONCE == AT_ONCE - 1:
            slowest = max(slowest, wait_until_known(parties, expected))

    # Both at the same time, on the same patterns: each changes the ACLs of its own principals.
    def change_many(party, who):
        own, own_rng = set(), random.Random(f"{SEED} {who}")
        for _ in range(AT_THE_SAME_TIME):
            change(own_rng, party, who, own)
        return own

    with ThreadPoolExecutor() as threads:
        for own in threads.map(change_many, parties, ("java-", "ours-")):
            expected |= own
    slowest = max(slowest, wait_until_known(parties, expected))
    assert len(expected) > AT_THE_SAME_TIME
    for party in parties:
        assert party.listed() == expected
    assert without_order(nodes_of(zookeeper)) == without_order(expected_nodes(expected))
    for party in parties:
        party.process.stop()
        party.process.restart()
        assert party.known() == expected
    with capsys.disabled():
        print(
            f"\nACLs of one cluster: {len(expected)} after {CHANGES} changes, known everywhere within {slowest:.2f} s"
        )
