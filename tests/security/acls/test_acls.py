"""ACLs as values: their nodes are Apache Kafka's, byte for byte, and filters find what Kafka's find."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.call import AUTHORIZED_OPERATIONS
from barnabas.security.acls.acls import (
    NUMBERS_OF_OPERATIONS,
    OPERATIONS_OF,
    PARENTS,
    STORED_TYPES,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    ResourcePattern,
    address_text,
    can_be_stored,
    decode_change,
    decode_entries,
    encode_change,
    encode_entries,
)

READ = AccessControlEntry("User:a", "*", "Read", "Allow")
DENIED = AccessControlEntry("User:CN=b,O=c", "10.0.0.1", "DescribeConfigs", "Deny")
READ_JSON = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
EVERYTHING = AclFilter("Any", None, "Any", None, None, "Any", "Any")

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
entries = st.builds(
    AccessControlEntry,
    texts.map(lambda name: f"User:{name}"),
    texts,
    st.sampled_from(sorted(NUMBERS_OF_OPERATIONS)),
    st.sampled_from(["Allow", "Deny"]),
)


# -- nodes


def test_a_node_is_kafkas():
    assert encode_entries([READ]) == READ_JSON
    assert ResourcePattern("Topic", "orders").node == "/kafka-acl/Topic/orders"
    assert ResourcePattern("TransactionalId", "o", "Prefixed").node == "/kafka-acl-extended/prefixed/TransactionalId/o"


def test_a_node_of_another_writer_is_read_in_any_order_of_keys():
    assert decode_entries(READ_JSON, "/n") == {READ}
    rows = [
        {"host": DENIED.host, "operation": "DescribeConfigs", "permissionType": "Deny", "principal": DENIED.principal},
        {"operation": "Read", "extra": 1, "host": "*", "permissionType": "Allow", "principal": "User:a"},
    ]
    assert decode_entries(json.dumps({"acls": rows, "version": 1}).encode(), "/n") == {READ, DENIED}


@given(st.frozensets(entries))
def test_entries_are_read_as_they_were_written(written):
    assert decode_entries(encode_entries(written), "/n") == written


@pytest.mark.parametrize("data", [None, b""])
def test_a_node_without_data_has_no_entries(data):
    assert decode_entries(data, "/n") == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"acls":[]}',
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[1]}',
        READ_JSON.replace(b"User:a", b"a"),
        READ_JSON.replace(b'"*"', b"1"),
    ],
)
def test_a_malformed_node_is_named(data):
    with pytest.raises(ValueError, match=r"^/kafka-acl/Topic/t: "):
        decode_entries(data, "/kafka-acl/Topic/t")


def test_every_parent_of_a_node_is_created_parents_first():
    for kind in STORED_TYPES:
        for pattern in (ResourcePattern(kind, "x"), ResourcePattern(kind, "x", "Prefixed")):
            assert pattern.node.rpartition("/")[0] in PARENTS
    assert len(set(PARENTS)) == len(PARENTS) == 17
    for place, path in enumerate(PARENTS):
        folder = path.rpartition("/")[0]
        assert folder in ("", *PARENTS[:place])


# -- announcements


def test_announcements_are_kafkas():
    literal, prefixed = ResourcePattern("TransactionalId", "a:b"), ResourcePattern("Topic", "n", "Prefixed")
    assert encode_change(literal) == ("/kafka-acl-changes/acl_changes_", b"TRANSACTIONAL_ID:a:b")
    assert encode_change(prefixed) == (
        "/kafka-acl-extended-changes/acl_changes_",
        b'{"version":1,"resourceType":"TOPIC","name":"n","patternType":"PREFIXED"}',
    )
    for pattern in (literal, prefixed):
        prefix, data = encode_change(pattern)
        assert decode_change(data, f"{prefix}0000000001") == pattern


def test_an_announcement_of_an_older_broker_has_the_type_as_in_the_path():
    assert decode_change(b"Topic:t", "/kafka-acl-changes/acl_changes_0000000001") == ResourcePattern("Topic", "t")


@pytest.mark.parametrize(
    "data", [None, b"", b"TOPIC", b"CASTLE:x", b"TOPIC:", b"TOPIC:a/b", b"TOPIC:\x00", b"TOPIC:.", b"\xff"]
)
def test_a_malformed_announcement_is_refused(data):
    with pytest.raises(ValueError, match=r"^/kafka-acl-changes/acl_changes_0000000001: "):
        decode_change(data, "/kafka-acl-changes/acl_changes_0000000001")


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"version":2,"resourceType":"TOPIC","name":"n","patternType":"PREFIXED"}',
        b'{"version":1,"resourceType":"TOPIC","name":"n","patternType":"MATCH"}',
        b'{"version":1,"resourceType":"ANY","name":"n","patternType":"PREFIXED"}',
    ],
)
def test_a_malformed_announcement_of_a_prefix_is_refused(data):
    with pytest.raises(ValueError, match=r"^/kafka-acl-extended-changes/acl_changes_0000000001: "):
        decode_change(data, "/kafka-acl-extended-changes/acl_changes_0000000001")


@pytest.mark.parametrize(
    ("name", "fits"), [("t", True), ("*", True), ("a b", True), ("a/b", False), ("\x01", False), ("..", False)]
)
def test_names_that_the_store_cannot_have(name, fits):
    assert can_be_stored(ResourcePattern("Topic", name)) == fits


# -- filters


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"resource_type": "Topic"}, True),
        ({"resource_type": "Group"}, False),
        ({"resource_type": "Unknown"}, False),
        ({"pattern_type": "Prefixed"}, True),
        ({"pattern_type": "Literal"}, False),
        ({"pattern_type": "Unknown"}, False),
        ({"name": "ord"}, True),
        ({"name": "orders"}, False),
        ({"name": "orders", "pattern_type": "Match"}, True),
        ({"name": "or", "pattern_type": "Match"}, False),
        ({"name": "orders", "pattern_type": "Prefixed"}, False),
        ({"principal": "User:a"}, True),
        ({"principal": "User:*"}, False),
        ({"host": "*"}, True),
        ({"host": "10.0.0.1"}, False),
        ({"operation": "Read"}, True),
        ({"operation": "All"}, False),
        ({"operation": "Describe"}, False),
        ({"permission_type": "Allow"}, True),
        ({"permission_type": "Deny"}, False),
        ({"permission_type": "Unknown"}, False),
    ],
)
def test_a_filter_finds_a_prefixed_acl(changed, fits):
    binding = AclBinding(ResourcePattern("Topic", "ord", "Prefixed"), READ)
    assert EVERYTHING._replace(**changed).fits(binding) == fits


@pytest.mark.parametrize(("name", "fits"), [("orders", True), ("*", True), ("order", False), ("ord", False)])
def test_match_finds_the_literal_patterns_that_concern_a_name(name, fits):
    wanted = EVERYTHING._replace(name="orders", pattern_type="Match")
    assert wanted.fits_pattern(ResourcePattern("Topic", name)) == fits


def test_a_filter_of_one_pattern_names_it():
    one = AclFilter("Topic", "t", "Literal", None, None, "Any", "Any")
    assert one.only_pattern == ResourcePattern("Topic", "t")
    for changed in ({"name": None}, {"resource_type": "Any"}, {"pattern_type": "Match"}, {"resource_type": "Unknown"}):
        assert one._replace(**changed).only_pattern is None


# -- others


def test_all_operations_of_a_resource_are_what_a_broker_without_authorizer_answers():
    for kind, bits in AUTHORIZED_OPERATIONS.items():
        assert sum(1 << NUMBERS_OF_OPERATIONS[each] for each in OPERATIONS_OF[kind]) == bits


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::00ab", "2001:db8:0:0:0:0:0:ab"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("localhost", "localhost"),
        ("memory:1", "memory:1"),
    ],
)
def test_addresses_are_written_as_java_writes_them(address, text):
    assert address_text(address) == text
