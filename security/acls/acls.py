"""ACLs as values (pure): patterns, entries, filters, and their nodes in the store; reference security.md, S.1 and S.14.

An ACL is a resource pattern and an entry: who (principal, host) may, or may not, do what (operation) on the resources
that the pattern stands for. The store has one node for each pattern, with the entries as JSON, and nodes that announce
each change; both are Kafka's, so brokers of both kinds can share them.

The names of types, operations and permissions are those in the nodes: `TransactionalId`, `DescribeConfigs`, `Allow`.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from barnabas.controller.store import paths
from barnabas.controller.store.node_json import Fields, to_json
from barnabas.controller.store.store import check_path

# Number in requests -> name. Any other number, also 0 (UNKNOWN), has no meaning.
RESOURCE_TYPES = {
    1: "Any", 2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 6: "DelegationToken", 7: "User",
}  # fmt: skip
PATTERN_TYPES = {1: "Any", 2: "Match", 3: "Literal", 4: "Prefixed"}
OPERATIONS = {
    1: "Any", 2: "All", 3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe", 9: "ClusterAction",
    10: "DescribeConfigs", 11: "AlterConfigs", 12: "IdempotentWrite", 13: "CreateTokens", 14: "DescribeTokens",
}  # fmt: skip
PERMISSION_TYPES = {1: "Any", 2: "Deny", 3: "Allow"}
UNKNOWN = "Unknown"
ANY, MATCH, LITERAL, PREFIXED, ALL, DENY, ALLOW = "Any", "Match", "Literal", "Prefixed", "All", "Deny", "Allow"
STORED_TYPES = tuple(name for name in RESOURCE_TYPES.values() if name != ANY)

WILDCARD = "*"  # as the name of a literal pattern, and as a host
WILDCARD_PRINCIPAL = "User:*"  # other types of principals have no wildcard
CLUSTER_NAME = "kafka-cluster"  # the only resource of type Cluster

# The operations that a resource of a type has: they make up its `authorized_operations` (KIP-430).
OPERATIONS_OF = {
    "Topic": ("Read", "Write", "Create", "Describe", "Delete", "Alter", "DescribeConfigs", "AlterConfigs"),
    "Group": ("Read", "Describe", "Delete"),
    "Cluster": (
        "Create", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite", "Alter", "Describe",
    ),
    "TransactionalId": ("Describe", "Write"),
    "DelegationToken": ("Describe",),
    "User": ("CreateTokens", "DescribeTokens"),
}  # fmt: skip
NUMBERS_OF_OPERATIONS = {name: number for number, name in OPERATIONS.items()}

_TYPE_OF_ENUM = {"TRANSACTIONAL_ID": "TransactionalId", "DELEGATION_TOKEN": "DelegationToken"} | {
    name.upper(): name for name in ("Topic", "Group", "Cluster", "User")
}
_ENUM_OF_TYPE = {name: enum for enum, name in _TYPE_OF_ENUM.items()}


class ResourcePattern(NamedTuple):
    """What an ACL is about: one resource, every one of a type (`*`), or, prefixed, all whose names begin so."""

    resource_type: str
    name: str
    pattern_type: str = LITERAL

    @property
    def node(self) -> str:
        """The path of the node with the entries."""
        return paths.acl(self.resource_type, self.name, prefixed=self.pattern_type == PREFIXED)


class AccessControlEntry(NamedTuple):
    """Who may, or may not, do what. The principal is written `Type:name`; the host is an address or `*`."""

    principal: str
    host: str
    operation: str
    permission_type: str


class AclBinding(NamedTuple):
    """One ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclFilter(NamedTuple):
    """Which ACLs a request is about: None and `Any` fit everything, `Unknown` fits nothing."""

    resource_type: str
    name: str | None
    pattern_type: str
    principal: str | None
    host: str | None
    operation: str
    permission_type: str

    def fits_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether ACLs of this pattern may fit."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != MATCH:
            return self.name == pattern.name
        # MATCH finds all patterns that apply to the resource of this name.
        if pattern.pattern_type == PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def fits_entry(self, entry: AccessControlEntry) -> bool:
        """Whether this entry fits, whatever its pattern."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission_type in (ANY, entry.permission_type)
        )

    def fits(self, binding: AclBinding) -> bool:
        """Whether this ACL fits."""
        return self.fits_pattern(binding.pattern) and self.fits_entry(binding.entry)

    @property
    def only_pattern(self) -> ResourcePattern | None:
        """The pattern, if no other can fit."""
        if self.name is None or self.resource_type not in STORED_TYPES or self.pattern_type not in (LITERAL, PREFIXED):
            return None
        return ResourcePattern(self.resource_type, self.name, self.pattern_type)


def can_be_stored(pattern: ResourcePattern) -> bool:
    """Whether the store can have a node for this pattern."""
    if "/" in pattern.name:
        return False
    try:
        check_path(pattern.node)
    except ValueError:
        return False
    return True


# -- nodes


def parent(resource_type: str, pattern_type: str) -> str:
    """The parent of the nodes of these patterns."""
    return ResourcePattern(resource_type, "", pattern_type).node.removesuffix("/")


# All these nodes exist in every cluster with an authorizer; each broker creates those that are missing, in this order.
PARENTS = (
    "/kafka-acl",
    "/kafka-acl-extended",
    "/kafka-acl-extended/prefixed",
    paths.ACL_CHANGES,
    paths.EXTENDED_ACL_CHANGES,
    *(parent(resource_type, LITERAL) for resource_type in STORED_TYPES),
    *(parent(resource_type, PREFIXED) for resource_type in STORED_TYPES),
)


def encode_entries(entries: Iterable[AccessControlEntry]) -> bytes:
    """The data of a pattern's node. The order of the entries means nothing; it is sorted."""
    rows = [
        {
            "principal": each.principal,
            "permissionType": each.permission_type,
            "operation": each.operation,
            "host": each.host,
        }
        for each in sorted(entries)
    ]
    return to_json({"version": 1, "acls": rows})


def decode_entries(data: bytes | None, path: str) -> frozenset[AccessControlEntry]:
    """The entries in a pattern's node. ValueError when it is malformed, or of another version.

    Operations and permissions of other names stay as they are: they fit no request, and are written back.
    """
    if not data:
        return frozenset()
    fields = Fields.parse(data, path)
    if fields.integer("version") != 1:
        fields.fail("this version of ACLs is not known")
    return frozenset(_entry(each) for each in fields.objects("acls"))


def _entry(row: Fields) -> AccessControlEntry:
    if ":" not in row.text("principal"):
        row.wrong("principal", "a principal, Type:name,")
    return AccessControlEntry(
        row.text("principal"), row.text("host"), row.text("operation"), row.text("permissionType")
    )


class AclChange(NamedTuple):
    """The announcement of a change: the path to create, and its data."""

    prefix: str
    data: bytes


def encode_change(pattern: ResourcePattern) -> AclChange:
    """The announcement that the ACLs of this pattern changed."""
    kind = _ENUM_OF_TYPE[pattern.resource_type]
    # Brokers before 2.0 know only literal patterns, and read only the first of the two folders.
    if pattern.pattern_type == LITERAL:
        return AclChange(paths.ACL_CHANGE_PREFIX, f"{kind}:{pattern.name}".encode())
    value = {"version": 1, "resourceType": kind, "name": pattern.name, "patternType": "PREFIXED"}
    return AclChange(paths.EXTENDED_ACL_CHANGE_PREFIX, to_json(value))


def decode_change(data: bytes | None, path: str) -> ResourcePattern:
    """The pattern that a node below one of the two folders of changes names; ValueError when it is malformed."""
    if path.startswith(paths.ACL_CHANGE_PREFIX):
        kind, colon, name = (data or b"").decode(errors="replace").partition(":")
        pattern_type = "LITERAL" if colon else ""
    else:
        fields = Fields.parse(data, path)
        if fields.integer("version") != 1:
            fields.fail("this version of a change of ACLs is not known")
        kind = fields.text("resourceType")
        name = fields.text("name")
        pattern_type = fields.text("patternType")

    found = {"LITERAL": LITERAL, "PREFIXED": PREFIXED}.get(pattern_type)
    if found is None or kind.upper() not in _TYPE_OF_ENUM:
        raise ValueError(f"{path}: {data!r:.100} does not name a pattern of ACLs")
    pattern = ResourcePattern(_TYPE_OF_ENUM[kind.upper()], name, found)

    # A path that the store does not accept would make every later read of the ACLs fail.
    if not can_be_stored(pattern):
        raise ValueError(f"{path}: no node can have the name {name!r:.100}")
    return pattern


def address_text(address: str) -> str:
    """An address as Java prints it, and so as the hosts of ACLs are written: IPv6 in full, without leading zeros."""
    return address if ":" not in address else _ipv6_text(address)


@lru_cache(maxsize=1024)
def _ipv6_text(address: str) -> str:
    from ipaddress import IPv6Address  # most connections have none

    bare, percent, scope = address.partition("%")
    try:
        parsed = IPv6Address(bare)
    except ValueError:
        return address
    # Such an address is that of an IPv4 client at a dual-stack socket; Java gives its IPv4 address.
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + scope
