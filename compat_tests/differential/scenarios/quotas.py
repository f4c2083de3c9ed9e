"""Client quotas: valid values for each kind of entity, and filters that find them."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import alter_quotas
from compat_tests.differential.scenario import scenario

EXACT, DEFAULT, ANY = 0, 1, 2


def _described(*components, strict=False):
    """[(kind, how to match, name)]"""
    Component = m.DescribeClientQuotasRequest.ComponentData
    rows = [Component(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return m.DescribeClientQuotasRequest(components=rows, strict=strict)


RATE = ("consumer_byte_rate", 1000.0)


@scenario
def quotas_are_altered(side):
    user, client_id = side.name("user"), side.name("client")
    entities = {
        "user": [("user", user)],
        "client": [("client-id", client_id)],
        "user and client": [("user", user), ("client-id", client_id)],
        "client and user": [("client-id", client_id), ("user", user)],
        "default user": [("user", None)],
        "default client": [("client-id", None)],
        "user and default client": [("user", user), ("client-id", None)],
        "address": [("ip", "127.0.0.9")],
        "default address": [("ip", None)],
        "bad address": [("ip", "not an address")],
        "address and user": [("ip", "127.0.0.9"), ("user", user)],
        "unknown kind": [("nope", "x")],
        "user twice": [("user", user), ("user", user)],
        "empty user": [("user", "")],
        "empty entity": [],
    }
    changes = {
        "rate": [RATE],
        "both rates": [RATE, ("producer_byte_rate", 2000.5)],
        "requests": [("request_percentage", 50.0)],
        "mutations": [("controller_mutation_rate", 5.0)],
        "connections": [("connection_creation_rate", 5.0)],
        "unknown quota": [("nope", 1.0)],
        "fraction": [("consumer_byte_rate", 1.5)],
        "zero": [("consumer_byte_rate", 0.0)],
        "negative": [("consumer_byte_rate", -1.0)],
        "huge": [("consumer_byte_rate", 1e300)],
        "not a number": [("consumer_byte_rate", float("nan"))],
        "twice": [RATE, RATE],
        "nothing": [],
        "removed": [("consumer_byte_rate", None), ("producer_byte_rate", None)],
        "removed again": [("consumer_byte_rate", None)],
        "unknown removed": [("nope", None)],
    }
    with side.connect() as client:
        for version in range(2):
            for who, entity in entities.items():
                for what, ops in changes.items():
                    request = alter_quotas(entity, *ops, validate_only=True)
                    yield f"v{version} {who}, {what}, to validate", client.ask(request, version)
            yield f"v{version} no entries", client.ask(m.AlterClientQuotasRequest(entries=[]), version)


@scenario
def quotas_are_found(side):
    user, other, client_id = map(side.name, ("user", "other", "client"))
    steps = {
        "user": alter_quotas([("user", user)], RATE, ("request_percentage", 50.0)),
        "other": alter_quotas([("user", other)], ("producer_byte_rate", 7.0)),
        "client": alter_quotas([("client-id", client_id)], RATE),
        "both": alter_quotas([("user", user), ("client-id", client_id)], ("producer_byte_rate", 5.0)),
        "user, any client": alter_quotas([("user", user), ("client-id", None)], ("producer_byte_rate", 6.0)),
        "any user": alter_quotas([("user", None)], ("controller_mutation_rate", 500000.0)),
        "address": alter_quotas([("ip", "127.0.0.9")], ("connection_creation_rate", 1000.0)),
        "removed": alter_quotas([("user", user)], ("request_percentage", None)),
    }
    questions = {
        "all": _described(),
        "all, strictly": _described(strict=True),
        "user": _described(("user", EXACT, user)),
        "user, strictly": _described(("user", EXACT, user), strict=True),
        "default user": _described(("user", DEFAULT, None)),
        "default user, strictly": _described(("user", DEFAULT, None), strict=True),
        "users": _described(("user", ANY, None)),
        "users, strictly": _described(("user", ANY, None), strict=True),
        "a client": _described(("client-id", EXACT, client_id)),
        "a client, strictly": _described(("client-id", EXACT, client_id), strict=True),
        "users and clients, strictly": _described(("user", ANY, None), ("client-id", ANY, None), strict=True),
        "clients": _described(("client-id", ANY, None)),
        "user and client": _described(("user", EXACT, user), ("client-id", EXACT, client_id)),
        "user and any client": _described(("user", EXACT, user), ("client-id", ANY, None)),
        "user and default client": _described(("user", EXACT, user), ("client-id", DEFAULT, None), strict=True),
        "address": _described(("ip", EXACT, "127.0.0.9")),
        "addresses": _described(("ip", ANY, None)),
        "address and user": _described(("ip", ANY, None), ("user", ANY, None)),
        "unknown user": _described(("user", EXACT, side.name("none"))),
        "unknown kind": _described(("nope", EXACT, "x")),
        "user twice": _described(("user", EXACT, user), ("user", EXACT, other)),
        "match 9": _described(("user", 9, "x")),
        "empty kind": _described(("", EXACT, "x")),
        "exact without a name": _described(("user", EXACT, None)),
        "default with a name": _described(("user", DEFAULT, "x")),
        "any with a name": _described(("user", ANY, "x")),
    }
    with side.connect() as client:
        for name, request in steps.items():
            yield f"set {name}", client.ask(request, 1)
        side.wait(lambda: len(side.ask(_described(), 1).entries or ()) >= 7)
        for version in range(2):
            yield from client.ask_all(version, questions)
        for name, request in steps.items():
            entry = request.entries[0]
            entry.ops = [m.AlterClientQuotasRequest.OpData(key=op.key, value=0.0, remove=True) for op in entry.ops]
            yield f"remove {name}", client.ask(request, 1)
        side.wait(lambda: not side.ask(_described(), 1).entries)
        yield "all removed", client.ask(_described(), 1)


@scenario
def several_entities_in_one_request(side):
    """Each succeeds or fails by itself; of one that is named twice the last rates count."""
    user, other = side.name("user"), side.name("other")
    rate, twice = ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)

    def merged(*requests):
        entries = [request.entries[0] for request in requests]
        return m.AlterClientQuotasRequest(entries=entries)

    steps = {
        "good and bad": merged(
            alter_quotas([("user", user)], rate),
            alter_quotas([("nope", "x")]),
            alter_quotas([("user", other)], ("nope", 1.0)),
            alter_quotas([]),
        ),
        "one twice": merged(alter_quotas([("user", user)], rate), alter_quotas([("user", user)], twice)),
        "what no node is called": merged(alter_quotas([("user", ".")], rate), alter_quotas([("user", user)], rate)),
        "removed": merged(alter_quotas([("user", user)], ("producer_byte_rate", None))),
    }
    expected = {"good and bad": [1.0], "one twice": [2.0], "what no node is called": [1.0], "removed": []}
    found = _described(("user", EXACT, user))

    def rates():
        return [value.value for entry in side.ask(found, 1).entries for value in entry.values]

    for name, request in steps.items():
        yield name, side.ask(request, 1)
        side.wait(lambda name=name: rates() == expected[name])
        yield f"{name}, others", side.ask(_described(("user", EXACT, other)), 1)


@scenario
def rates_at_the_limits_are_stored(side):
    """What is accepted is described as it is stored: NaN as a whole number is 0."""
    user = side.name("user")
    whole, decimal, connections = "producer_byte_rate", "request_percentage", "connection_creation_rate"
    entities = {whole: ("user", user), decimal: ("user", user), connections: ("ip", "127.0.0.10")}
    rates = {
        "not a number": float("nan"),
        "infinity": float("inf"),
        "negative infinity": float("-inf"),
        "zero": 0.0,
        "negative zero": -0.0,
        "negative": -1.0,
        "nearly zero": -1e-7,
        "the highest INT": 2.0**31 - 1,
        "above the highest INT": 2.0**31,
        "above the highest LONG": 2.0**63,
        "far above it": 1e20,
        "the smallest": 5e-324,
    }
    for name, (kind, who) in entities.items():
        for what, rate in rates.items():
            altered = side.ask(alter_quotas([(kind, who)], (name, rate)), 1)
            yield f"{name}, {what}", altered
            if altered.entries[0].error_code == 0:
                side.wait(lambda kind=kind, who=who: side.ask(_described((kind, EXACT, who)), 1).entries)
                yield f"{name}, {what}, described", side.ask(_described((kind, EXACT, who)), 1)
            side.ask(alter_quotas([(kind, who)], (name, None)), 1)
            side.wait(lambda kind=kind, who=who: not side.ask(_described((kind, EXACT, who)), 1).entries)
