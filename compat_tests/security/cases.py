"""The columns of the ACL matrix: for a row, who asks it, and with which ACLs.

Each case of a user who logged in has a user of its own, so the ACLs of all cases can exist at the same time. Users
who did not log in share a principal, and `User:*` is about every one: such cases are asked in rounds, each with the
ACLs of one column, and with rights on the cluster of one kind.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.security.acls.acls import ALL, ALLOW, DENY, LITERAL, OPERATIONS_OF, PREFIXED, WILDCARD
from compat_tests.security.requests import Need, Row

EVERYONE, ANONYMOUS, ANOTHER = "User:*", "User:ANONYMOUS", "User:another"
HERE, ELSEWHERE = "127.0.0.1", "10.0.0.9"
CLUSTER = "Cluster"


class Asker(enum.Enum):
    """Who asks."""

    USER = "a user of the case"
    SUPER_USER = "a super user"
    ANONYMOUS = "a client of the listener without a login"


class Pattern(enum.Enum):
    """What an ACL is about, beside the name of the resource that is needed."""

    EXACT = "literal"
    BEGINNING = "prefixed, with the beginning of the name"
    LONGER = "prefixed, with a longer name"
    WHOLE_PREFIX = "prefixed, with the whole name"
    ANY = "every resource of the type"


class Rule(NamedTuple):
    """One ACL. The principal is None for that of the case."""

    need: Need
    operation: str
    permission: str = ALLOW
    pattern: Pattern = Pattern.EXACT
    host: str = WILDCARD
    principal: str | None = None

    def of(self, principal: str) -> "Rule":
        return self if self.principal else self._replace(principal=principal)

    def pattern_of(self, name: str) -> tuple[str, str]:
        """The name and the type of the pattern, if the resource has this name."""
        return {
            Pattern.EXACT: (name, LITERAL),
            Pattern.BEGINNING: (name[:-1], PREFIXED),
            Pattern.LONGER: (f"{name}~", PREFIXED),
            Pattern.WHOLE_PREFIX: (name, PREFIXED),
            Pattern.ANY: (WILDCARD, LITERAL),
        }[self.pattern]


class Case(NamedTuple):
    """One cell of the matrix."""

    row: Row
    name: str
    asker: Asker
    rules: tuple[Rule, ...] = ()


Rules = Callable[[Need], list[Rule]]


def allow(need: Need, **fields: object) -> Rule:
    return Rule(need, need.operation)._replace(**fields)


def deny(need: Need, **fields: object) -> Rule:
    return allow(need, permission=DENY)._replace(**fields)


def another_operation(need: Need) -> str:
    return next((each for each in OPERATIONS_OF[need.resource_type] if each != need.operation), ALL)


# The ACLs about one resource, while whatever else the row needs is allowed.
OF_ONE_RESOURCE: Mapping[str, Rules] = {
    "allow, deny": lambda need: [allow(need), deny(need)],
    "allow All, deny": lambda need: [allow(need, operation=ALL), deny(need)],
    "allow, deny All": lambda need: [allow(need), deny(need, operation=ALL)],
    "allow, deny another operation": lambda need: [allow(need), deny(need, operation=another_operation(need))],
    "deny only": lambda need: [deny(need)],
    "allow, host matches": lambda need: [allow(need, host=HERE)],
    "allow, another host": lambda need: [allow(need, host=ELSEWHERE)],
    "allow, deny for this host": lambda need: [allow(need), deny(need, host=HERE)],
    "allow, deny for another host": lambda need: [allow(need), deny(need, host=ELSEWHERE)],
    "allow, another principal": lambda need: [allow(need, principal=ANOTHER)],
    "allow, deny for another principal": lambda need: [allow(need), deny(need, principal=ANOTHER)],
    "allow, principal of another type": lambda need: [allow(need, principal="Team:{name}")],
}
# Patterns of names: the cluster has only one name.
OF_PATTERNS: Mapping[str, Rules] = {
    "prefixed allow": lambda need: [allow(need, pattern=Pattern.BEGINNING)],
    "prefixed allow, longer name": lambda need: [allow(need, pattern=Pattern.LONGER)],
    "prefixed allow, deny": lambda need: [allow(need, pattern=Pattern.BEGINNING), deny(need)],
    "allow, prefixed deny": lambda need: [allow(need), deny(need, pattern=Pattern.BEGINNING)],
    "allow, prefixed deny, longer name": lambda need: [allow(need), deny(need, pattern=Pattern.LONGER)],
    "prefixed allow, prefixed deny, longer name": lambda need: [
        allow(need, pattern=Pattern.BEGINNING),
        deny(need, pattern=Pattern.LONGER),
    ],
    "allow *": lambda need: [allow(need, pattern=Pattern.ANY)],
    "allow, deny *": lambda need: [allow(need), deny(need, pattern=Pattern.ANY)],
    "allow *, deny": lambda need: [allow(need, pattern=Pattern.ANY), deny(need)],
    "allow *, prefixed deny": lambda need: [allow(need, pattern=Pattern.ANY), deny(need, pattern=Pattern.BEGINNING)],
}
OF_THE_CLUSTER: Mapping[str, Rules] = {
    "prefixed allow": lambda need: [allow(need, pattern=Pattern.WHOLE_PREFIX)],
    "allow, prefixed deny": lambda need: [allow(need), deny(need, pattern=Pattern.WHOLE_PREFIX)],
}


class Round(NamedTuple):
    """Who asks; the principal to whom everything that a row needs is allowed, the one to whom it is denied."""

    asker: Asker
    allowed: str | None = None
    denied: str | None = None
    pattern: Pattern = Pattern.EXACT


ROUNDS: Mapping[str, Round] = {
    # First, for a super user sees all topics, those of other rounds included, some of which are created late.
    "a super user, deny everyone": Round(Asker.SUPER_USER, denied=EVERYONE),
    "anonymous, no ACL": Round(Asker.ANONYMOUS),
    "anonymous, allow": Round(Asker.ANONYMOUS, ANONYMOUS),
    "anonymous, allow and deny": Round(Asker.ANONYMOUS, ANONYMOUS, ANONYMOUS),
    "anonymous, allow everyone": Round(Asker.ANONYMOUS, EVERYONE),
    "anonymous, allow, deny everyone": Round(Asker.ANONYMOUS, ANONYMOUS, EVERYONE),
    "a user, allow anonymous": Round(Asker.USER, ANONYMOUS),
    "a user, allow everyone": Round(Asker.USER, EVERYONE),
}
# With `allow.everyone.if.no.acl.found`: any ACL on a resource closes it.
ROUNDS_IF_OPEN: Mapping[str, Round] = {
    "open, no ACL": Round(Asker.USER),
    "open, anonymous, no ACL": Round(Asker.ANONYMOUS),
    "open, allow another": Round(Asker.USER, ANOTHER),
    "open, deny another": Round(Asker.USER, denied=ANOTHER),
    "open, prefixed allow another": Round(Asker.USER, ANOTHER, pattern=Pattern.BEGINNING),
    "open, prefixed allow another, longer name": Round(Asker.USER, ANOTHER, pattern=Pattern.LONGER),
    "open, allow another *": Round(Asker.USER, ANOTHER, pattern=Pattern.ANY),
    "open, allow everyone": Round(Asker.USER, EVERYONE),
    "open, deny everyone": Round(Asker.USER, denied=EVERYONE),
    "open, deny everyone *": Round(Asker.USER, denied=EVERYONE, pattern=Pattern.ANY),
}
# Of a sample: these rounds, and one of so many of the other cases, beside the most telling ones.
SAMPLED_ROUNDS = {name: ROUNDS[name] for name in ("anonymous, no ACL", "anonymous, allow everyone")}
SAMPLED_OF = 9


def cases_of(row: Row) -> Iterator[Case]:
    """The cases of a row whose ACLs can exist together with those of all others."""
    yield Case(row, "no ACL", Asker.USER)
    yield Case(row, "super user", Asker.SUPER_USER)
    for number, need in enumerate(row.needs):
        others = tuple(allow(each) for each in row.needs if each != need)
        for name, rules in _columns(row, need).items():
            yield Case(row, f"{number + 1} {need}: {name}", Asker.USER, (*others, *rules(need)))


def _columns(row: Row, need: Need) -> Mapping[str, Rules]:
    # Each refusal takes the time that the client waits.
    if row.is_unanswered:
        return {f"{need.operation} alone": lambda need: [allow(need)]}
    operations = (*OPERATIONS_OF[need.resource_type], ALL)
    alone: dict[str, Rules] = {f"{each} alone": partial(_allow_alone, each) for each in operations}
    return {**alone, **OF_ONE_RESOURCE, **(OF_THE_CLUSTER if need.resource_type == CLUSTER else OF_PATTERNS)}


def _allow_alone(operation: str, need: Need) -> list[Rule]:
    return [allow(need, operation=operation)]


def rounds_of(rows: Sequence[Row], rounds: Mapping[str, Round] = ROUNDS) -> Iterator[list[Case]]:
    """The other cases, by round."""
    asked = [row for row in rows if not row.is_unanswered]
    for name, round_ in rounds.items():
        for kind in dict.fromkeys(map(_operation_on_cluster, asked)):
            of_kind = [row for row in asked if _operation_on_cluster(row) == kind]
            yield [Case(row, name, round_.asker, _rules(row, round_)) for row in of_kind]


def _operation_on_cluster(row: Row) -> str | None:
    return next((need.operation for need in row.needs if need.resource_type == CLUSTER), None)


def _rules(row: Row, round_: Round) -> tuple[Rule, ...]:
    granted = [
        allow(need, principal=round_.allowed, pattern=_pattern(need, round_)) for need in row.needs if round_.allowed
    ]
    refused = [
        deny(need, principal=round_.denied, pattern=_pattern(need, round_)) for need in row.needs if round_.denied
    ]
    return (*granted, *refused)


def _pattern(need: Need, round_: Round) -> Pattern:
    # The cluster has one name, which is its whole prefix.
    if need.resource_type == CLUSTER and round_.pattern is not Pattern.EXACT:
        return Pattern.WHOLE_PREFIX
    return round_.pattern


def sample(cases: Sequence[Case]) -> list[Case]:
    """A part of the cases: of every row those without an ACL, with each right alone and without it, and some others."""
    return [case for number, case in enumerate(cases) if number % SAMPLED_OF == 0 or _is_telling(case)]


def _is_telling(case: Case) -> bool:
    alone = tuple(f"{need}: {need.operation} alone" for need in case.row.needs)
    return case.name.endswith(("no ACL", ": deny only", *alone))
