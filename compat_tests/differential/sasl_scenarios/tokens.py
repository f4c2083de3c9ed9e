"""Tokens of each mechanism that are wrong: which error, which message, and whether the connection stays."""

import time
from base64 import b64encode

from compat_tests.differential.asking_sasl import (
    NONCE,
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    bearer,
    bearer_message,
    client_final,
    client_first,
    handshake,
    plain,
    token,
)
from compat_tests.differential.sasl_side import Frame
from compat_tests.differential.scenario import sasl_scenario
from compat_tests.secured import PASSWORD, USER

PLAIN_TOKENS = {
    "right": plain(),
    "wrong password": plain(password="wrong"),
    "empty password": plain(password=""),
    "unknown user": plain("unknown"),
    "empty user": plain(""),
    "user in capitals": plain(USER.upper()),
    "itself as authzid": plain(authzid=USER),
    "another as authzid": plain(authzid="admin"),
    "empty": b"",
    "no NUL": b"alice",
    "one NUL": b"alice\0secret",
    "only NULs": b"\0\0",
    "three NULs": plain() + b"\0",
    "NUL first": b"\0" + plain(),
    "not UTF-8": b"\0\xff\xfe\0\xff",
    "a long user": plain("u" * 10_000),
    "a long password": plain(password="p" * 500_000),
}


@sasl_scenario
def tokens_of_plain(side):
    cases = {}
    for name, data in PLAIN_TOKENS.items():
        for version in (0, 1, 2):
            cases[f"v{version}: {name}"] = [handshake(PLAIN), token(data, version)]
        cases[f"old: {name}"] = [handshake(PLAIN, 0), Frame(data)]
    cases["a second token after a wrong one"] = [handshake(PLAIN), token(plain(password="wrong")), token(plain())]
    yield from side.play_all(cases)


FIRST_MESSAGES = {
    "empty": b"",
    "random": b"\x00\x01\x02\xff",
    "no GS2 header": f"n={USER},r={NONCE}".encode(),
    "channel binding": client_first(header="p=tls-unique,,"),
    "y as channel flag": client_first(header="y,,"),
    "another channel flag": client_first(header="x,,"),
    "itself as authzid": client_first(header=f"n,a={USER},"),
    "another as authzid": client_first(header="n,a=admin,"),
    "an empty authzid": client_first(header="n,a=,"),
    "no user": b"n,,r=" + NONCE.encode(),
    "an empty user": client_first(""),
    "unknown user": client_first("unknown"),
    "no nonce": f"n,,n={USER}".encode(),
    "an empty nonce": f"n,,n={USER},r=".encode(),
    "a nonce with a comma": f"n,,n={USER},r=a,b".encode(),
    "a nonce with a control character": f"n,,n={USER},r=a\x01b".encode(),
    "a nonce that is not ASCII": f"n,,n={USER},r=ä".encode(),
    "fields in another order": f"n,,r={NONCE},n={USER}".encode(),
    "escaped user": client_first("a=3Db=2Cc"),
    "a user with another escape": client_first("a=41"),
    "a user with a bare equals sign": client_first("a=b"),
    "a user that is not ASCII": client_first("käthe"),
    "a mandatory extension": f"n,,m=x,n={USER},r={NONCE}".encode(),
    "an extension": client_first(extensions=",x=y"),
    "a token's extension": client_first(extensions=",tokenauth=true"),
    "a token's extension that is false": client_first(extensions=",tokenauth=false"),
    "a token's extension twice": client_first(extensions=",tokenauth=true,tokenauth=true"),
    "an extension without a value": client_first(extensions=",x="),
    "an extension without a name": client_first(extensions=",=y"),
    "a comma at the end": client_first(extensions=","),
    "not UTF-8": b"n,,n=\xff\xfe,r=" + NONCE.encode(),
    "a NUL in the user": client_first("al\0ice"),
    "a long nonce": b"n,,n=alice,r=" + b"x" * 100_000,
    "a PLAIN token": plain(),
    "the text of a server": b"r=abc,s=c2FsdA==,i=4096",
}


@sasl_scenario
def first_messages_of_scram(side):
    cases = {}
    for mechanism in SCRAM:
        for name, data in FIRST_MESSAGES.items():
            cases[f"{mechanism}: {name}"] = [handshake(mechanism), token(data)]
            cases[f"{mechanism}, old: {name}"] = [handshake(mechanism, 0), Frame(data)]
    yield from side.play_all(cases)


@sasl_scenario
def final_messages_of_scram(side):
    cases = {}
    for mechanism in SCRAM:
        changes = {
            "right": {},
            "wrong password": {"password": "wrong"},
            "another nonce": {"nonce": lambda nonce: nonce + "x"},
            "the client's nonce alone": {"nonce": lambda _: NONCE},
            "an empty nonce": {"nonce": lambda _: ""},
            "a proof of zeros": {"proof": lambda proof: bytes(len(proof))},
            "a short proof": {"proof": lambda proof: proof[:-1]},
            "a long proof": {"proof": lambda proof: proof + b"x"},
            "an empty proof": {"proof": lambda _: b""},
            "another header": {"header": "y,,"},
            "no proof": {"text": lambda text: text.rpartition(",p=")[0]},
            "no channel": {"text": lambda text: text.partition(",")[2]},
            "a proof that is not base64": {"text": lambda text: text.rpartition("p=")[0] + "p=!!!"},
            "an extension": {"text": lambda text: text.replace(",p=", ",x=y,p=")},
            "spare text": {"text": lambda text: text + ",x=y"},
            "a comma at the end": {"text": lambda text: text + ","},
            "empty": {"text": lambda _: ""},
            "random": {"text": lambda _: "\x00\x01\x02"},
            "the first message again": {"text": lambda _: client_first().decode()},
            "the proof twice": {"text": lambda text: text + "," + text.rpartition(",")[2]},
            "channel of binding": {"text": lambda text: f"c={b64encode(b'p=x,,').decode()}," + text.partition(",")[2]},
        }
        for name, change in changes.items():
            cases[f"{mechanism}: {name}"] = [
                handshake(mechanism),
                token(client_first()),
                client_final(mechanism, **change),
            ]
        users = {"a=3Db=2Cc": "escaped", "käthe": "not ASCII"}
        for user, name in users.items():
            cases[f"{mechanism}: a user {name}"] = [
                handshake(mechanism),
                token(client_first(user)),
                client_final(mechanism, user=user),
            ]
        cases[f"{mechanism}: after a final message another"] = [
            handshake(mechanism),
            token(client_first()),
            client_final(mechanism),
            token(b"x"),
        ]
        itself = {"header": f"n,a={USER},"}
        cases[f"{mechanism}: itself as authzid"] = [
            handshake(mechanism),
            token(client_first(**itself)),
            client_final(mechanism, **itself),
        ]
    yield from side.play_all(cases)


def access_tokens(now_s):
    good = {"sub": USER, "iat": now_s - 10, "exp": now_s + 3600}
    return {
        "good": bearer(good),
        "expired": bearer(good | {"exp": now_s - 100}),
        "expires with the second": bearer(good | {"exp": now_s}),
        "issued later": bearer(good | {"iat": now_s + 1000, "exp": now_s + 3600}),
        "issued after it expires": bearer(good | {"iat": now_s + 5000}),
        "without exp": bearer({"sub": USER, "iat": now_s}),
        "without iat": bearer({"sub": USER, "exp": now_s + 3600}),
        "without sub": bearer({"iat": now_s, "exp": now_s + 3600}),
        "empty sub": bearer(good | {"sub": ""}),
        "sub of spaces": bearer(good | {"sub": "  "}),
        "sub a number": bearer(good | {"sub": 7}),
        "sub null": bearer(good | {"sub": None}),
        "exp a text": bearer(good | {"exp": "soon"}),
        "exp negative": bearer(good | {"exp": -1}),
        "exp with a fraction": bearer(good | {"exp": now_s + 3605.5}),
        "exp huge": bearer(good | {"exp": 1e15}),
        "iat a text": bearer(good | {"iat": "now"}),
        "a scope": bearer(good | {"scope": "a b"}),
        "a scope of a list": bearer(good | {"scope": ["a", "b"]}),
        "a scope of numbers": bearer(good | {"scope": [1]}),
        "algorithm RS256": bearer(good, {"alg": "RS256"}),
        "algorithm NONE": bearer(good, {"alg": "NONE"}),
        "no algorithm": bearer(good, {}),
        "more in the header": bearer(good, {"alg": "none", "typ": "JWT"}),
        "a signature": bearer(good) + "c2ln",
        "two parts": bearer(good).rstrip("."),
        "one part": "abc",
        "four parts": bearer(good) + ".",
        "header no JSON": bearer(good, "bm9wZQ"),
        "payload no JSON": bearer("bm9wZQ"),
        "payload a list": bearer("W10"),
        "payload not base64": bearer("!!!!"),
        "empty": "",
        "spaces": "   ",
    }


@sasl_scenario
def tokens_of_oauthbearer(side):
    now_s = int(time.time())
    messages = {f"token: {name}": bearer_message(text) for name, text in access_tokens(now_s).items()}
    messages |= {
        "empty": b"",
        "no message": b"n,,",
        "no key": b"n,,\x01\x01",
        "another scheme": b"n,,\x01auth=Basic abc\x01\x01",
        "scheme in capitals": f"n,,\x01auth=BEARER {bearer()}\x01\x01".encode(),
        "no scheme": f"n,,\x01auth={bearer()}\x01\x01".encode(),
        "no end": f"n,,\x01auth=Bearer {bearer()}".encode(),
        "one end": f"n,,\x01auth=Bearer {bearer()}\x01".encode(),
        "itself as authzid": bearer_message(header=f"n,a={USER},"),
        "another as authzid": bearer_message(header="n,a=admin,"),
        "channel binding": bearer_message(header="p=tls-unique,,"),
        "y as channel flag": bearer_message(header="y,,"),
        "an extension": bearer_message(extensions="traceId=123\x01"),
        "two extensions": bearer_message(extensions="a=1\x01b=2\x01"),
        "an extension called auth": bearer_message(extensions="auth=x\x01"),
        "an extension with digits": bearer_message(extensions="trace1=123\x01"),
        "an extension without a value": bearer_message(extensions="trace=\x01"),
        "random": b"\x00\x01\x02\xff",
        "a PLAIN token": plain(password=PASSWORD),
        "only the abort": b"\x01",
    }
    cases = {}
    for name, data in messages.items():
        cases[name] = [handshake(OAUTHBEARER), token(data)]
        cases[f"{name}, old"] = [handshake(OAUTHBEARER, 0), Frame(data)]
    bad = bearer_message(bearer({"sub": USER, "exp": now_s - 100}))
    for name, after in {"the abort": b"\x01", "a good token": bearer_message(), "nothing": b""}.items():
        cases[f"refused, then {name}"] = [handshake(OAUTHBEARER), token(bad), token(after)]
        cases[f"refused, then {name}, old"] = [handshake(OAUTHBEARER, 0), Frame(bad), Frame(after)]
    yield from side.play_all(cases)
