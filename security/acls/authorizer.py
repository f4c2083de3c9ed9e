"""Who may do what (pure): the ACLs in memory and the decisions on them, as Kafka's AclAuthorizer takes them.

A decision looks at the ACLs of three kinds of patterns: the literal one of the resource's name, the literal `*`, and
every prefixed one with which the name begins. Super users may do everything. Where no such ACL exists,
`allow.everyone.if.no.acl.found` decides, else a DENY that matches comes before an ALLOW, and no match means no.
Reference security.md, S.14.

Most requests repeat the questions of earlier ones, so decisions are remembered, until any ACL changes.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from barnabas.security.acls.acls import (
    ALL,
    ALLOW,
    DENY,
    LITERAL,
    NUMBERS_OF_OPERATIONS,
    OPERATIONS_OF,
    PREFIXED,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    ResourcePattern,
)

# Operation -> the operations whose ALLOW allows it, too. A DENY denies only the operation that it
# names.
IMPLIED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "Describe": ("Read", "Write", "Delete", "Alter"),
    "DescribeConfigs": ("AlterConfigs",),
}
# Clients choose the names that they ask about, so both limit the memory for decisions: how many
# are remembered, and how long their names are.
REMEMBERED_MAX: Final = 1 << 14
REMEMBERED_NAME_MAX: Final = 512

Question = tuple[str, str, str, str, str]  # principal, host, operation, resource type, name


class Reach(enum.Enum):
    """Whether any ACL is about a resource, and if so, what they say."""

    NO_ACL = enum.auto()
    ALLOWED = enum.auto()
    REFUSED = enum.auto()


class AclCache:
    """The ACLs of the cluster. Only whole patterns are replaced, as they are stored."""

    def __init__(self) -> None:
        self._entries: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
        # The same entries are here by type and principal: there may be thousands of patterns, and
        # one of them may have thousands of entries, but a decision is about one principal.
        self._of_principals: dict[tuple[str, str], dict[ResourcePattern, list[AccessControlEntry]]] = {}
        # Resource type -> length -> how many prefixed patterns have a name of this length. Only
        # prefixes of these lengths are looked up.
        self._lengths: dict[str, Counter[int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def replace(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> bool:
        """Take over the entries of a pattern, none if it has no node. Whether that changes anything."""
        before = self._entries.get(pattern, frozenset())
        if before == entries:
            return False
        if pattern.pattern_type == PREFIXED and bool(before) != bool(entries):
            lengths = self._lengths.setdefault(pattern.resource_type, Counter())
            lengths[len(pattern.name)] += 1 if entries else -1
            if not lengths[len(pattern.name)]:
                del lengths[len(pattern.name)]

        for principal in {entry.principal for entry in before}:
            key = pattern.resource_type, principal
            del self._of_principals[key][pattern]
            if not self._of_principals[key]:
                del self._of_principals[key]

        for entry in entries:
            key = pattern.resource_type, entry.principal
            self._of_principals.setdefault(key, {}).setdefault(pattern, []).append(entry)
        if entries:
            self._entries[pattern] = entries
        else:
            del self._entries[pattern]

        return True

    def patterns(self) -> list[ResourcePattern]:
        """All patterns that have entries."""
        return list(self._entries)

    def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """The entries of one pattern."""
        return self._entries.get(pattern, frozenset())

    def about(self, resource_type: str, name: str, principal: str) -> list[list[AccessControlEntry]]:
        """For each pattern that concerns this resource its entries for the principal, which may be none."""
        wanted = [ResourcePattern(resource_type, name), ResourcePattern(resource_type, WILDCARD)]
        wanted += [
            ResourcePattern(resource_type, name[:length], PREFIXED)
            for length in self._lengths.get(resource_type, ())
            if length <= len(name)
        ]
        own, everyones = self._for_principal(resource_type, principal)
        return [[*own.get(pattern, ()), *everyones.get(pattern, ())] for pattern in wanted if pattern in self._entries]

    def of_type(self, resource_type: str, principal: str) -> Iterator[tuple[ResourcePattern, list[AccessControlEntry]]]:
        """Patterns of this type, with entries for the principal. A pattern may come twice."""
        for found in self._for_principal(resource_type, principal):
            yield from found.items()

    def _for_principal(
        self, resource_type: str, principal: str
    ) -> tuple[Mapping[ResourcePattern, list[AccessControlEntry]], Mapping[ResourcePattern, list[AccessControlEntry]]]:
        """By pattern: the entries that name the principal, and those for everyone."""
        of_principals = self._of_principals
        return (
            of_principals.get((resource_type, principal), {}),
            of_principals.get((resource_type, WILDCARD_PRINCIPAL), {}),
        )


class Authorizer:
    """The decisions, on the ACLs as they are now."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        self.acls = AclCache()
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone  # allow.everyone.if.no.acl.found
        self.changes = 0  # how often ACLs changed: what was derived from them under another number is outdated
        self._remembered: dict[Question, bool] = {}
        self._remembered_any: dict[tuple[str, str, str, str], bool] = {}

    def replace(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> None:
        """Take over the entries of a pattern; none if it has no node."""
        if self.acls.replace(pattern, entries):
            # One ACL may change any decision: a prefix covers names that were asked about, and the first ACL of a
            # resource closes it for everyone. A change is rare, and a decision is cheap.
            self._remembered.clear()
            self._remembered_any.clear()
            self.changes += 1

    def authorize(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """Whether this principal at this host may do the operation on the resource of this name."""
        question = (principal, host, operation, resource_type, name)
        known = self._remembered.get(question)
        return self._decide(question) if known is None else known

    def _decide(self, question: Question) -> bool:
        principal, host, operation, resource_type, name = question
        allowed = principal in self._super_users
        if not allowed:
            reach = reach_of(self.acls.about(resource_type, name, principal), principal, host, operation)
            allowed = self._allow_everyone if reach is Reach.NO_ACL else reach is Reach.ALLOWED
        if len(name) <= REMEMBERED_NAME_MAX:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[question] = allowed
        return allowed

    def authorize_any(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        """Whether there may be a resource of this type on which the operation is allowed (KIP-679)."""
        question = (principal, host, operation, resource_type)
        known = self._remembered_any.get(question)
        if known is not None:
            return known
        allowed = principal in self._super_users or self._decide_any(*question)
        if len(self._remembered_any) >= REMEMBERED_MAX:
            self._remembered_any.clear()
        self._remembered_any[question] = allowed
        return allowed

    def _decide_any(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        # Names by (permission, pattern type). Here no operation implies another one, as in Kafka.
        found: dict[tuple[str, str], set[str]] = {}
        for pattern, entries in self.acls.of_type(resource_type, principal):
            for entry in entries:
                if _matches(entry, principal, host, (operation,)):
                    found.setdefault((entry.permission_type, pattern.pattern_type), set()).add(pattern.name)

        denied = found.get((DENY, LITERAL), set())
        denied_prefixes = found.get((DENY, PREFIXED), set())
        if WILDCARD in denied:
            return False
        if self._allow_everyone:
            return True
        allowed = found.get((ALLOW, LITERAL), set())
        allowed_prefixes = found.get((ALLOW, PREFIXED), set())

        # An ALLOW for `*` also allows names that begin with no denied prefix.
        if WILDCARD in allowed:
            return True

        # Prefixes are looked up by length, because comparing each name with each prefix could take
        # long.
        lengths = {len(prefix) for prefix in denied_prefixes}
        return any(
            not any(name[:length] in denied_prefixes for length in lengths)
            for name in allowed_prefixes | (allowed - denied)
        )

    def allowed_operations(self, principal: str, host: str, resource_type: str, name: str) -> int:
        """The operations that the principal may do on a resource, as bits (KIP-430)."""
        return sum(
            1 << NUMBERS_OF_OPERATIONS[operation]
            for operation in OPERATIONS_OF[resource_type]
            if self.authorize(principal, host, operation, resource_type, name)
        )


def reach_of(patterns: Iterable[Iterable[AccessControlEntry]], principal: str, host: str, operation: str) -> Reach:
    """What the entries of all patterns about a resource say about an operation."""
    allowing = (operation, *IMPLIED_BY.get(operation, ()))
    reach = Reach.NO_ACL
    for entries in patterns:
        if reach is Reach.NO_ACL:
            reach = Reach.REFUSED
        for entry in entries:
            if entry.permission_type == DENY:
                if _matches(entry, principal, host, (operation,)):
                    return Reach.REFUSED
            elif entry.permission_type == ALLOW and _matches(entry, principal, host, allowing):
                reach = Reach.ALLOWED
    return reach


def _matches(entry: AccessControlEntry, principal: str, host: str, operations: tuple[str, ...]) -> bool:
    return (
        entry.principal in (principal, WILDCARD_PRINCIPAL)
        and entry.host in (host, WILDCARD)
        and (entry.operation == ALL or entry.operation in operations)
    )
