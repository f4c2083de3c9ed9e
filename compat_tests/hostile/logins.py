"""Hostile bytes before a login, at listeners of every protocol: frames, TLS, tokens of every mechanism.

A *strike* is one connection that is never logged in. It ends when the broker has closed it; where the broker waits for
more bytes, as it must, the client closes. `ATTACKS` lists for each attack the protocols of the listeners it is for.
"""

import base64
import contextlib
import json
import os
import re
import secrets
import socket
import ssl
import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from barnabas.security.sasl.exchange import Compute
from barnabas.security.sasl.scram import MECHANISMS as SCRAM_MECHANISMS
from barnabas.security.sasl.scram_exchange import ScramClient
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from compat_tests.raw import RawClient, ask, frame_of
from compat_tests.secured import PASSWORD, USER

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = ALL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
WITH_TLS, WITHOUT_TLS, WITH_LOGIN = (SSL, SASL_SSL), (PLAINTEXT, SASL_PLAINTEXT), (SASL_PLAINTEXT, SASL_SSL)
PATIENCE_SECONDS = 45.0  # longer than any rule that ends a connection before its login
HELLO_BYTES = 200
TOKEN_BYTES = 512 << 10
JWT_BYTES = 1 << 20
API_VERSIONS, SASL_HANDSHAKE = 18, 17
SCRAM = "SCRAM-SHA-256"
# RFC 7628: a refused token is answered with the reason, and the login fails at the client's next message.
OAUTH_REFUSAL, OAUTH_ABORT = b'{"status"', b"\x01"


class Target(NamedTuple):
    """A broker with a listener of each protocol."""

    ports: dict[str, int]  # by protocol
    trusted: str  # the PEM file of its authority


class NotRefused(RuntimeError):
    """A hostile client was let in."""


class Channel(RawClient):
    """A connection to the listener of a protocol, with TLS where that has it."""

    def __init__(self, target: Target, protocol: str) -> None:
        super().__init__(target.ports[protocol], timeout=PATIENCE_SECONDS)
        if protocol in WITH_TLS:
            context = ssl.create_default_context(cafile=target.trusted)
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


Strike = Callable[[Target, str], None]


class Attack(NamedTuple):
    """One pass over the listener of a protocol, and the protocols that it is for."""

    strike: Strike
    protocols: tuple[str, ...]


def until_closed(channel: RawClient) -> None:
    """Read until the broker closes; TimeoutError if it does not."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while channel.socket.recv(1 << 16):
            pass


# -- bytes


def _raw(data: Callable[[], bytes]) -> Strike:
    """Bytes that a listener cannot take for the beginning of its protocol: it closes."""

    def strike(target: Target, protocol: str) -> None:
        with RawClient(target.ports[protocol], timeout=PATIENCE_SECONDS) as client:
            with contextlib.suppress(ConnectionError):
                client.send(data())
            until_closed(client)

    return strike


def _framed(data: bytes) -> Strike:
    """Bytes inside the channel, for which the broker closes."""

    def strike(target: Target, protocol: str) -> None:
        with Channel(target, protocol) as channel:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                channel.send(data)
            until_closed(channel)

    return strike


def _cut(target: Target, protocol: str) -> None:
    """A frame that is announced and does not come: the broker waits, and the client leaves."""
    frame = frame_of(m.ApiVersionsRequest(), 0, "hostile")
    for size_bytes in range(len(frame)):
        with Channel(target, protocol) as channel:
            channel.send(frame[:size_bytes])


def _body(api_key: int, version: int, rest: bytes) -> bytes:
    """A frame with this header, which goes on with `rest`."""
    body = struct.pack(">hhih", api_key, version, 1, -1) + rest
    return struct.pack(">i", len(body)) + body


@cache
def client_hello() -> bytes:
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def silent_handshake(target: Target, protocol: str, sent_bytes: int | None) -> socket.socket:
    """A connection whose handshake stops after so many bytes of the ClientHello; None: after the whole."""
    kept = socket.create_connection(("127.0.0.1", target.ports[protocol]), timeout=PATIENCE_SECONDS)
    kept.sendall(client_hello()[:sent_bytes])
    return kept


def _leaves_in_the_handshake(target: Target, protocol: str) -> None:
    for sent_bytes in (0, 1, 5, HELLO_BYTES, None):
        silent_handshake(target, protocol, sent_bytes).close()


# -- logins


def _handshake(channel: RawClient, mechanism: str, version: int = 1) -> None:
    answer = ask(channel, m.SaslHandshakeRequest(mechanism=mechanism), version)
    if answer.error_code:
        raise RuntimeError(f"{mechanism} is not served: the attack would strike at nothing")


def _authenticate(channel: RawClient, token: bytes) -> m.SaslAuthenticateResponse:
    return channel.ask(m.SaslAuthenticateRequest(auth_bytes=token), 1, m.SaslAuthenticateResponse)


def _is_refused(channel: RawClient, token: bytes) -> None:
    """Send the last token; NotRefused unless it is answered with an error, or not at all, and the broker closes."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        answer = _authenticate(channel, token)
        if bytes(answer.auth_bytes).startswith(OAUTH_REFUSAL):
            answer = _authenticate(channel, OAUTH_ABORT)
        if answer.error_code not in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE):
            raise NotRefused(f"{token[:40]!r} is answered with {answer}")
    until_closed(channel)


def _token(mechanism: str, token: bytes) -> Strike:
    """A login with this one token."""

    def strike(target: Target, protocol: str) -> None:
        with Channel(target, protocol) as channel:
            _handshake(channel, mechanism)
            _is_refused(channel, token)

    return strike


def _raw_token(mechanism: str, token: bytes) -> Strike:
    """After a handshake of version 0 tokens have no header."""

    def strike(target: Target, protocol: str) -> None:
        with Channel(target, protocol) as channel:
            _handshake(channel, mechanism, version=0)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                channel.send_frame(token)
                if channel.receive_frame().startswith(OAUTH_REFUSAL):
                    channel.send_frame(OAUTH_ABORT)
            until_closed(channel)

    return strike


def _proof(change: Callable[[bytes], bytes], password: str = PASSWORD) -> Strike:
    """A SCRAM login whose last message is changed, or made with another password."""

    def strike(target: Target, protocol: str) -> None:
        with Channel(target, protocol) as channel:
            _handshake(channel, SCRAM)
            _is_refused(channel, change(_final_of(channel, password)))

    return strike


def _final_of(channel: RawClient, password: str) -> bytes:
    mechanism = next(each for each in SCRAM_MECHANISMS.values() if each.name == SCRAM)
    client = ScramClient(mechanism, USER, password, secrets.token_urlsafe(18))
    step = client.evaluate(bytes(_authenticate(channel, client.begin()).auth_bytes))
    if not isinstance(step, Compute):
        raise RuntimeError("the server has sent no salt")
    return step.then(step.run())


def _replayed(target: Target, protocol: str) -> None:
    """The proof of one connection on another one."""
    with Channel(target, protocol) as first, Channel(target, protocol) as second:
        _handshake(first, SCRAM)
        _handshake(second, SCRAM)
        proof = _final_of(first, PASSWORD)
        _final_of(second, PASSWORD)
        _is_refused(second, proof)


def _jwt(header: dict[str, object], claims: bytes, signature: bytes = b"") -> bytes:
    parts = (json.dumps(header).encode(), claims, signature)
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return b"n,,\x01auth=Bearer " + text + b"\x01\x01"


_CLAIMS = b'{"sub": "alice", "iat": 1, "exp": 9999999999}'
_LONG_CLAIMS = b'{"sub": "alice", "exp": 9999999999, "pad": "' + b"x" * JWT_BYTES + b'"}'

BYTES = {
    "random bytes": Attack(_raw(lambda: b"\x7f" + os.urandom(4096)), ALL),
    "zeros": Attack(_raw(lambda: bytes(4096)), (PLAINTEXT, SSL)),
    "TLS without a TLS listener": Attack(_raw(client_hello), WITHOUT_TLS),
    "a request without TLS": Attack(_raw(lambda: frame_of(m.ApiVersionsRequest(), 0, "hostile")), WITH_TLS),
    "a handshake that ends": Attack(_leaves_in_the_handshake, WITH_TLS),
    "a frame that ends": Attack(_cut, ALL),
    "a frame of 2^31 - 1 bytes": Attack(_framed(struct.pack(">i", (1 << 31) - 1)), ALL),
    "a frame of -1 bytes": Attack(_framed(struct.pack(">i", -1)), ALL),
    "a frame of -2^31 bytes": Attack(_framed(struct.pack(">i", -(1 << 31))), ALL),
    "a header with 2^31 tagged fields": Attack(_framed(_body(API_VERSIONS, 3, b"\xff\xff\xff\xff\x07")), ALL),
    "a client id of 2^15 - 1 bytes that ends": Attack(
        _framed(struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, 32767)), ALL
    ),
    "a mechanism of 2^15 - 1 bytes that ends": Attack(_framed(_body(SASL_HANDSHAKE, 1, struct.pack(">h", 32767))), ALL),
    "an array of 2^31 - 1 elements": Attack(_framed(_body(3, 1, struct.pack(">i", (1 << 31) - 1))), ALL),
}

TOKENS = {
    "PLAIN": {
        "empty": b"",
        "of 512 KiB": b"\0alice\0" + b"x" * TOKEN_BYTES,
        "not UTF-8": b"\0\xff\xfe\0\xff",
        "without NUL": b"alice",
        "one NUL": b"\0alice",
        "four NULs": b"\0alice\0secret\0\0",
        "NULs alone": bytes(1000),
        "for another user": b"admin\0alice\0" + PASSWORD.encode(),
        "without a user": b"\0\0" + PASSWORD.encode(),
        "without a password": b"\0alice\0",
        "a wrong password": b"\0alice\0wrong",
    },
    SCRAM: {
        "empty": b"",
        "of 512 KiB": b"n,,n=alice,r=" + b"x" * TOKEN_BYTES,
        "not UTF-8": b"n,,n=\xff\xfe,r=abc",
        "NULs": b"n,,n=al\0ice,r=a\0bc",
        "without a nonce": b"n,,n=alice",
        "channel binding": b"p=tls-unique,,n=alice,r=abc",
        "for another user": b"n,a=admin,n=alice,r=abc",
        "the last message first": b"c=biws,r=abc,p=" + base64.b64encode(bytes(32)),
        "the server's message": b"r=abc,s=" + base64.b64encode(bytes(16)) + b",i=2147483648",
        "a name with a lone =": b"n,,n=al=ice,r=abc",
        "an unknown token": b"n,,n=nothing,r=abc,tokenauth=true",
    },
    "OAUTHBEARER": {
        "empty": b"",
        "\\x01 alone": b"\x01",
        "not UTF-8": b"n,,\x01auth=Bearer \xff\xfe\x01\x01",
        "without a scheme": b"n,,\x01auth=abc\x01\x01",
        "of 1 MiB": _jwt({"alg": "none"}, _LONG_CLAIMS),
        "for another user": b"n,a=admin," + _jwt({"alg": "none"}, _CLAIMS)[3:],
        "with a signature": _jwt({"alg": "HS256"}, _CLAIMS, b"signature"),
        "of an unknown algorithm": _jwt({"alg": "x" * 1000, "kid": "y" * 1000}, _CLAIMS),
        "issued in 1970 and over": _jwt({"alg": "none"}, b'{"sub": "alice", "iat": 1, "exp": 2}'),
        "of the year 9999 without a subject": _jwt({"alg": "none"}, b'{"exp": 253402300799}'),
        "claims that are no object": _jwt({"alg": "none"}, b"[]"),
        "claims in 10,000 brackets": _jwt({"alg": "none"}, b"[" * 10_000),
        "an end that is 10^400": _jwt({"alg": "none"}, b'{"sub": "alice", "iat": 1, "exp": 1' + b"0" * 400 + b"}"),
    },
}

PROOFS = {
    "of another password": Attack(_proof(lambda final: final, "another password"), WITH_LOGIN),
    "with another nonce": Attack(_proof(lambda final: re.sub(b"r=[^,]*", b"r=abc", final)), WITH_LOGIN),
    "too short": Attack(_proof(lambda final: re.sub(b"p=.*", b"p=YWJj", final)), WITH_LOGIN),
    "not base64": Attack(_proof(lambda final: re.sub(b"p=.*", b"p=%%%%", final)), WITH_LOGIN),
    "of 64 KiB": Attack(
        _proof(lambda final: re.sub(b"p=.*", b"p=" + base64.b64encode(bytes(48 << 10)), final)), WITH_LOGIN
    ),
    "missing": Attack(_proof(lambda final: re.sub(b",p=.*", b"", final)), WITH_LOGIN),
    "with another channel": Attack(_proof(lambda final: final.replace(b"c=biws", b"c=cD10bHM=")), WITH_LOGIN),
    "replayed": Attack(_replayed, WITH_LOGIN),
}


def _attacks() -> dict[str, Attack]:
    attacks = dict(BYTES)
    for mechanism, tokens in TOKENS.items():
        for name, token in tokens.items():
            attacks[f"{mechanism} token, {name}"] = Attack(_token(mechanism, token), WITH_LOGIN)
            # Of version 0 an empty frame is no token but ends the login as well.
            attacks[f"{mechanism} token without a header, {name}"] = Attack(_raw_token(mechanism, token), WITH_LOGIN)
    attacks.update({f"SCRAM proof, {name}": attack for name, attack in PROOFS.items()})
    return attacks


ATTACKS = _attacks()
CASES = [(name, protocol) for name, attack in ATTACKS.items() for protocol in attack.protocols]
