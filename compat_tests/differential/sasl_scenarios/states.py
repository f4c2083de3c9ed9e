"""Each state of a login, and what may not come in it."""

import struct

from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from compat_tests.differential.asking import batch, fetch, metadata, produce_one
from compat_tests.differential.asking_sasl import (
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    api_versions,
    bearer_message,
    client_final,
    client_first,
    handshake,
    plain,
    token,
)
from compat_tests.differential.sasl_side import Ask, Frame, Pipelined
from compat_tests.differential.scenario import sasl_scenario
from tests.broker.handlers.authorized import NEEDS

SIZE_MAX = 524288  # sasl.server.max.receive.size
SHA_256 = "SCRAM-SHA-256"


def header(key, version, correlation_id=7, client_id=b"raw"):
    """A request header of the versions before flexible ones."""
    return struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id


STATES = {
    "at first": [],
    "after ApiVersions": [api_versions(3)],
    "after a handshake": [handshake(PLAIN)],
    "after ApiVersions and a handshake": [api_versions(0), handshake(PLAIN)],
    "within SCRAM": [handshake(SHA_256), token(client_first())],
    "after an old handshake": [handshake(PLAIN, 0)],
    "logged in": [handshake(PLAIN), token(plain())],
    "logged in by the old way": [handshake(PLAIN, 0), Frame(plain())],
}
REQUESTS = {
    "Metadata": Ask(metadata(), 9),
    "Produce": Ask(produce_one("t", batch()), 9),
    "Fetch": Ask(fetch([("t", [(0, 0)])]), 4),
    "Heartbeat": Ask(m.HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), 1),
    "ListGroups": Ask(m.ListGroupsRequest(), 3),
    "DescribeCluster": Ask(m.DescribeClusterRequest(), 0),
    "ControlledShutdown": Ask(m.ControlledShutdownRequest(broker_id=9, broker_epoch=-1), 2),
    **{f"ApiVersions v{version}": api_versions(version) for version in range(5)},
    "ApiVersions v9": Frame(header(18, 9) + b"\0"),
    "a handshake v0": handshake(PLAIN, 0),
    "a handshake v1": handshake(PLAIN),
    "a handshake v2": Frame(header(17, 2) + b"\0\5PLAIN"),
    "a handshake without a mechanism": Frame(header(17, 1)),
    "a token v0": token(plain(), 0),
    "a token v1": token(plain(), 1),
    "a token v2": token(plain(), 2),
    "a token v3": Frame(header(36, 3) + b"\0\0\0"),
    "a token with more behind it": Frame(header(36, 1) + struct.pack(">i", len(plain())) + plain() + b"more"),
    "a token that is cut": Frame(header(36, 1) + struct.pack(">i", 50) + plain()),
    "a token of size -1": Frame(header(36, 1) + struct.pack(">i", -1)),
    "API 999": Frame(header(999, 0)),
    "API -1": Frame(header(-1, 0)),
    "a size of -1": Frame(b"", -1),
    "a size of 0": Frame(b""),
    "a size above the limit": Frame(b"x" * 10, SIZE_MAX + 1),
    "half a header": Frame(header(3, 9)[:5]),
    "random bytes": Frame(bytes(range(7, 60))),
    "two requests in one piece": Pipelined([Ask(metadata(), 1), Ask(metadata(), 1)]),
}


@sasl_scenario
def what_may_not_come_in_each_state(side):
    cases = {
        f"{state}: {name}": [*before, request] for state, before in STATES.items() for name, request in REQUESTS.items()
    }
    yield from side.play_all(cases)


@sasl_scenario
def every_api_instead_of_a_token(side):
    cases = {}
    for number, (request, version, _, _) in enumerate(NEEDS):
        api = APIS[request.API_KEY]
        asked = Ask(request, api.max_version if version is None else version)
        cases[f"{api.name} {number}"] = [handshake(PLAIN), asked]
    yield from side.play_all(cases)


@sasl_scenario
def versions_before_a_login(side):
    names = {
        "usual": ("apache-kafka-java", "3.9.1"),
        "no name": ("", "1"),
        "no version": ("x", ""),
        "spaces": ("a b", "1"),
        "a slash": ("a/b", "1"),
        "ends with a dash": ("a-", "1"),
        "of one letter": ("a", "1"),
        "not ASCII": ("ä", "1"),
    }
    cases = {
        f"v3, {name}": [api_versions(3, *asked), handshake(PLAIN), token(plain())] for name, asked in names.items()
    }
    for version in range(5):
        first = api_versions(version)
        cases[f"v{version}, then a login"] = [first, handshake(PLAIN), token(plain()), Ask(metadata(), 1)]
        cases[f"v{version}, twice"] = [first, first]
    cases["of a version that does not exist, then one that does"] = [Frame(header(18, 77) + b"\0"), api_versions(0)]
    yield from side.play_all(cases)


@sasl_scenario
def handshakes(side):
    mechanisms = [PLAIN, *SCRAM, OAUTHBEARER, "GSSAPI", "plain", "", "SCRAM-SHA-1", "x" * 300, "PLAIN ", "ü"]
    cases = {
        f"v{version} {mechanism[:20]!r}": [handshake(mechanism, version)]
        for version in (0, 1)
        for mechanism in mechanisms
    }
    cases["twice"] = [handshake(PLAIN), handshake(PLAIN)]
    cases["refused, then a good one"] = [handshake("nope"), handshake(PLAIN)]
    yield from side.play_all(cases)


@sasl_scenario
def logins_that_succeed(side):
    cases = {
        f"{mechanism}, tokens v{version}": [
            handshake(mechanism),
            *tokens,
            Ask(metadata(), 1),
            handshake(mechanism),
            Ask(metadata(), 1),
        ]
        for version in (0, 1, 2)
        for mechanism, tokens in {
            PLAIN: [token(plain(), version)],
            OAUTHBEARER: [token(bearer_message(), version)],
            **{name: [token(client_first(), version), client_final(name)] for name in SCRAM},
        }.items()
    }
    cases["as many as come"] = [handshake(PLAIN), token(plain()), Pipelined([Ask(metadata(), 1)] * 5)]
    cases["a token and a request in one piece"] = [
        handshake(PLAIN),
        Pipelined([token(plain()), Ask(metadata(), 1)]),
    ]
    cases["all in one piece"] = [Pipelined([api_versions(3), handshake(PLAIN), token(plain()), Ask(metadata(), 1)])]
    yield from side.play_all(cases)
