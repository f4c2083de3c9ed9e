"""The decisions of the authorizer, each rule alone, and beside a naive evaluation over random changes of ACLs."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.security.acls import authorizer as module
from barnabas.security.acls.acls import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.security.acls.authorizer import Authorizer

HOST = "10.0.0.1"


def binding(text):
    """An ACL, written as `Allow User:a Read orders`, `Deny * All ord~` (a prefix), `… orders @10.0.0.9` (a host)."""
    permission, principal, operation, name, *host = text.split()
    pattern = ResourcePattern("Topic", name.removesuffix("~"), "Prefixed" if name.endswith("~") else "Literal")
    return AclBinding(
        pattern,
        AccessControlEntry(
            "User:*" if principal == "*" else principal, host[0][1:] if host else "*", operation, permission
        ),
    )


def add(authorizer, bound):
    authorizer.replace(bound.pattern, authorizer.acls.entries(bound.pattern) | {bound.entry})


def remove(authorizer, bound):
    authorizer.replace(bound.pattern, authorizer.acls.entries(bound.pattern) - {bound.entry})


def with_acls(*texts, **settings):
    authorizer = Authorizer(**settings)
    for text in texts:
        add(authorizer, binding(text))
    return authorizer


def may(authorizer, operation="Read", name="orders", principal="User:a", host=HOST):
    return authorizer.authorize(principal, host, operation, "Topic", name)


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([], "Read", False),
        (["Allow User:a Read orders"], "Read", True),
        (["Allow User:b Read orders"], "Read", False),
        (["Allow User:A Read orders"], "Read", False),
        (["Allow Group:* Read orders"], "Read", False),
        (["Allow * Read orders"], "Read", True),
        (["Allow User:a Read other"], "Read", False),
        (["Allow User:a Read *"], "Read", True),
        (["Allow User:a Read ord~"], "Read", True),
        (["Allow User:a Read orders~"], "Read", True),
        (["Allow User:a Read orders2~"], "Read", False),
        (["Allow User:a Read *~"], "Read", False),  # a prefix that is a star
        (["Allow User:a Read orders @10.0.0.1"], "Read", True),
        (["Allow User:a Read orders @10.0.0.2"], "Read", False),
        (["Allow User:a Read orders @10.0.0.0/8"], "Read", False),
        (["Allow User:a All orders"], "Read", True),
        (["Allow User:a Write orders"], "Read", False),
        (["Allow User:a Any orders"], "Read", False),
        # A DENY comes first, whatever is more exact.
        (["Allow User:a Read orders", "Deny * Read *"], "Read", False),
        (["Allow User:a Read orders", "Deny * All o~"], "Read", False),
        (["Allow User:a Read orders", "Deny User:a Read orders @10.0.0.2"], "Read", True),
        # What an ALLOW implies, and a DENY does not.
        (["Allow User:a Read orders"], "Describe", True),
        (["Allow User:a Write orders"], "Describe", True),
        (["Allow User:a Delete orders"], "Describe", True),
        (["Allow User:a Alter orders"], "Describe", True),
        (["Allow User:a Create orders"], "Describe", False),
        (["Allow User:a AlterConfigs orders"], "DescribeConfigs", True),
        (["Allow User:a AlterConfigs orders"], "Describe", False),
        (["Allow User:a Describe orders"], "Read", False),
        (["Deny User:a Read orders", "Allow User:a Describe orders"], "Describe", True),
        (["Deny User:a All orders", "Allow User:a Describe orders"], "Describe", False),
        # Of another version of the nodes: it fits nothing.
        (["Permit User:a Read orders"], "Read", False),
    ],
)
def test_a_decision(acls, operation, allowed):
    assert may(with_acls(*acls), operation) == allowed


def test_super_users_may_do_everything():
    authorizer = with_acls("Deny * All *", super_users=["User:a"])
    assert may(authorizer, "ClusterAction")
    assert not may(authorizer, principal="User:b")


def test_a_resource_without_acls_is_open_only_if_the_setting_says_so():
    assert may(with_acls(allow_everyone=True))
    # One ACL of another principal and operation closes it.
    for acl in ("Allow User:b Write orders", "Deny User:b Write *", "Allow User:b Write o~"):
        assert not may(with_acls(acl, allow_everyone=True))
    assert may(with_acls("Allow User:b Write other", allow_everyone=True))


def test_types_of_resources_do_not_mix():
    authorizer = with_acls("Allow User:a Read orders", "Allow User:a Read o~")
    assert not authorizer.authorize("User:a", HOST, "Read", "Group", "orders")


def test_a_change_is_seen_at_once():
    authorizer, allowed = with_acls(), binding("Allow User:a Read ord~")
    assert not may(authorizer)
    add(authorizer, allowed)
    assert may(authorizer)
    add(authorizer, binding("Deny User:a Read *"))
    assert not may(authorizer)
    remove(authorizer, binding("Deny User:a Read *"))
    remove(authorizer, allowed)
    assert not may(authorizer)
    assert len(authorizer.acls) == 0


def test_a_question_is_decided_once_until_something_changes(monkeypatch):
    authorizer, asked = with_acls("Allow User:a Read orders"), []
    decide = module.reach_of
    monkeypatch.setattr(module, "reach_of", lambda *given: asked.append(given) or decide(*given))
    assert may(authorizer)
    assert may(authorizer)
    assert len(asked) == 1
    add(authorizer, binding("Allow User:a Read orders"))  # it is there already
    assert may(authorizer)
    assert len(asked) == 1
    add(authorizer, binding("Allow User:z Read other"))
    assert may(authorizer)
    assert len(asked) == 2


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED_MAX", 10)
    authorizer = with_acls("Allow User:a Read o~")
    for number in range(100):
        assert may(authorizer, name=f"o{number}")
        assert authorizer.authorize_any("User:a", f"10.0.0.{number}", "Read", "Topic")
        assert may(authorizer, name="o" * (module.REMEMBERED_NAME_MAX + 1 + number))
    assert len(authorizer._remembered) <= 10
    assert len(authorizer._remembered_any) <= 10


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        (["Allow User:a Write t"], True),
        (["Allow User:a Write t~"], True),
        (["Allow User:a All *"], True),
        (["Allow User:a Read t"], False),
        (["Allow User:a Write t @10.0.0.2"], False),
        (["Allow User:a Write t", "Deny User:a Write *"], False),
        (["Allow User:a Write t", "Deny User:a Write t"], False),
        (["Allow User:a Write t", "Deny User:a Write t~"], False),
        (["Allow User:a Write t", "Deny User:a Write u"], True),
        (["Allow User:a Write t~", "Deny User:a Write t"], True),
        (["Allow User:a Write t~", "Deny User:a Write tt~"], True),
        (["Allow User:a Write tt~", "Deny User:a Write t~"], False),
        (["Allow User:a Write *", "Deny User:a Write t~"], True),
    ],
)
def test_whether_any_topic_may_be_written(acls, allowed):
    assert with_acls(*acls).authorize_any("User:a", HOST, "Write", "Topic") == allowed


def test_any_topic_for_super_users_and_where_everyone_is_allowed():
    assert with_acls("Deny * Write *", super_users=["User:a"]).authorize_any("User:a", HOST, "Write", "Topic")
    assert with_acls(allow_everyone=True).authorize_any("User:a", HOST, "Write", "Topic")
    assert not with_acls("Deny * Write *", allow_everyone=True).authorize_any("User:a", HOST, "Write", "Topic")


def test_the_operations_that_are_allowed_as_bits():
    authorizer = with_acls("Allow User:a Write orders", "Allow User:a AlterConfigs o~")
    bits = authorizer.allowed_operations("User:a", HOST, "Topic", "orders")
    assert bits == 1 << 4 | 1 << 8 | 1 << 10 | 1 << 11  # Write, Describe, DescribeConfigs, AlterConfigs
    everything = with_acls(super_users=["User:a"])
    kinds = {kind: everything.allowed_operations("User:a", HOST, kind, "x") for kind in ("Topic", "Group", "Cluster")}
    assert kinds == {"Topic": 3576, "Group": 328, "Cluster": 8096}


# -- beside a naive evaluation

NAMES = ["a", "ab", "abc", "b", "*"]
PRINCIPALS, HOSTS, OPERATIONS = ["User:a", "User:b"], [HOST, "10.0.0.2"], ["Read", "Write", "Describe"]
TYPES = ["Topic", "Group"]
bindings = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern, st.sampled_from(TYPES), st.sampled_from(NAMES), st.sampled_from(["Literal", "Prefixed"])
    ),
    st.builds(
        AccessControlEntry,
        st.sampled_from([*PRINCIPALS, "User:*"]),
        st.sampled_from([*HOSTS, "*"]),
        st.sampled_from([*OPERATIONS, "All"]),
        st.sampled_from(["Allow", "Allow", "Deny"]),
    ),
)


def concerns(pattern, name):
    if pattern.pattern_type == "Prefixed":
        return name.startswith(pattern.name)
    return pattern.name in ("*", name)


def fits(entry, principal, host, operations):
    return (
        entry.principal in (principal, "User:*")
        and entry.host in (host, "*")
        and entry.operation in ("All", *operations)
    )


def naive(acls, everyone, principal, host, operation, kind, name, implying=("Read", "Write", "Delete", "Alter")):
    about = [entry for pattern, entry in acls if pattern.resource_type == kind and concerns(pattern, name)]
    if not about:
        return everyone
    if any(each.permission_type == "Deny" and fits(each, principal, host, [operation]) for each in about):
        return False
    allowing = [operation, *implying] if operation == "Describe" else [operation]
    return any(each.permission_type == "Allow" and fits(each, principal, host, allowing) for each in about)


def naive_any(acls, everyone, principal, host, operation, kind):
    """Whether there is a name for which the operation is allowed: one of an ACL, or one that continues such a name."""
    if everyone:
        # Kafka asks no more than this: whether every name is denied.
        everything = ResourcePattern(kind, "*")
        denied = [entry for pattern, entry in acls if pattern == everything and entry.permission_type == "Deny"]
        return not any(fits(each, principal, host, [operation]) for each in denied)
    candidates = [pattern.name for pattern, _ in acls if pattern.name != "*" or pattern.pattern_type == "Prefixed"]
    candidates += [f"{name}~" for name in candidates] + ["~"]
    return any(naive(acls, False, principal, host, operation, kind, name, ()) for name in candidates)


ASKED = [(principal, operation) for principal in PRINCIPALS for operation in OPERATIONS]


def follow(steps, everyone, asked=lambda: ASKED):
    """Add and remove ACLs, and compare decisions after each change: of the principals and operations in `asked()`.

    A step adds its ACL, or removes the one of this number; how many were removed.
    """
    authorizer, acls, removed = Authorizer(allow_everyone=everyone), set(), 0
    for number, bound, name in steps:
        if number is None or not acls:
            changed = bound
            add(authorizer, changed)
            acls.add(changed)
        else:
            changed = sorted(acls)[number % len(acls)]
            remove(authorizer, changed)
            acls.remove(changed)
            removed += 1
        for principal, operation in asked():
            question = (principal, HOST, operation, changed.pattern.resource_type)
            expected = naive(acls, everyone, *question, name), naive_any(acls, everyone, *question)
            # Twice: decided, and remembered.
            for _ in range(2):
                assert (authorizer.authorize(*question, name), authorizer.authorize_any(*question)) == expected
    kept = authorizer.acls
    assert {AclBinding(pattern, entry) for pattern in kept.patterns() for entry in kept.entries(pattern)} == acls
    return removed


numbers = st.none() | st.integers(0, 49)
changes = st.lists(st.tuples(numbers, bindings, st.sampled_from([*NAMES, "abcd"])), max_size=50)


@settings(max_examples=100, deadline=None)
@given(changes, st.booleans())
def test_every_decision_is_that_of_a_naive_evaluation(steps, everyone):
    follow(steps, everyone)


@pytest.mark.thorough
def test_every_decision_of_ten_thousand_random_sequences_is_naive():
    rng, removed = random.Random(17), 0
    for number in range(10_000):
        steps = [random_step(rng) for _ in range(50)]
        removed += follow(steps, number % 2 == 0, lambda: [rng.choice(ASKED)])
    assert removed > 10_000 * 50 / 4


def random_step(rng):
    pattern = ResourcePattern(rng.choice(TYPES), rng.choice(NAMES), rng.choice(["Literal", "Prefixed"]))
    who, where = rng.choice([*PRINCIPALS, "User:*"]), rng.choice([*HOSTS, "*"])
    entry = AccessControlEntry(who, where, rng.choice([*OPERATIONS, "All"]), rng.choice(["Allow", "Allow", "Deny"]))
    number = rng.randrange(50) if rng.random() < 0.4 else None
    return number, AclBinding(pattern, entry), rng.choice([*NAMES, "abcd"])
