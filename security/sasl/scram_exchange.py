"""The SCRAM-SHA-256 and SCRAM-SHA-512 exchanges (pure): RFC 5802 as Kafka does it (reference security.md, S.12).

    client-first    n,[a=<authorization id>],n=<username>,r=<client nonce>[,<name>=<value>...]
    server-first    r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final    c=<base64 of the part before n=>,r=<both nonces>,p=<proof>
    server-final    v=<signature>

Proof and signature are over the three texts of the exchange without the proof itself. With the extension
`tokenauth=true` the username is the id of a delegation token, and its owner is logged in (KIP-48).

The server spends three HMACs. Only a delegation token that logs in for the first time costs a PBKDF2, which is
returned as `Compute`; the client's side always costs one.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.security.principals import USER, KafkaPrincipal
from barnabas.security.sasl.exchange import (
    Broken,
    Challenge,
    Complete,
    Compute,
    Decided,
    LoginFailed,
    Rejected,
    bytes_of,
    text_of,
)
from barnabas.security.sasl.scram import (
    ITERATIONS_MIN,
    Mechanism,
    ScramCredential,
    make_credential,
    salted_password,
)

TOKEN_BYTES_MAX = 1 << 14  # of a message; the expressions below take milliseconds for half a megabyte
NONCE_BITS = 130  # as many as Kafka's
# The server chooses how much its client must compute, and RFC 5802 sets no bound; this many
# iterations take about a second.
ITERATIONS_ACCEPTED_MAX = 1_000_000

OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"

# Kafka's grammar. A name is ASCII without "=" and ",", which are written as =3D and =2C. Its
# quantifiers are possessive (++): a long message that does not match takes one attempt, not many.
_NAME = r"(?:[\x01-+\--<>-\x7f]++|=2C|=3D)++"
_VALUE = r"[\x01-+\--\x7f]+"
_NONCE = r"[\x21-+\--\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,(?:m={_VALUE},)?"
    rf"(?P<bare>n=(?P<username>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
# The signed part ends before the extensions: Kafka leaves them out of what proof and signature are over.
_CLIENT_FINAL = re.compile(rf"(?P<signed>c={_BASE64},r=(?P<nonce>{_NONCE})){_EXTENSIONS},p=(?P<proof>{_BASE64})")
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class TokenLogin(NamedTuple):
    """A delegation token, for one mechanism."""

    owner: KafkaPrincipal
    expires_at_ms: int
    password: bytes
    credential: ScramCredential | None  # None until its first login
    keep: Callable[[ScramCredential], None]  # called with the credential that a first login made

    # The password is left out, because a traceback may show this value.
    def __repr__(self) -> str:
        return f"TokenLogin({self.owner})"


class _Challenged(NamedTuple):
    """The state of the server between the two messages of the client."""

    credential: ScramCredential
    complete: Complete  # the end of this exchange, if the proof is right
    nonce: str  # both parts
    signed: str  # the first two of the three texts


class ScramServer:
    """The server's side. `find` gives a user's credential, `find_token` a delegation token by its id."""

    def __init__(
        self,
        mechanism: Mechanism,
        find: Callable[[str], ScramCredential | None],
        find_token: Callable[[str], TokenLogin | None],
        nonce: str,
        salt: bytes,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._nonce = nonce
        self._salt = salt  # of the credential of a delegation token
        self._challenged: _Challenged | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Decided | Compute[Decided]:
        if len(token) > TOKEN_BYTES_MAX:
            return Rejected(f"a message of {len(token)} bytes")
        text = text_of(token)
        return self._take_first(text) if self._challenged is None else self._take_final(text, self._challenged)

    def _take_first(self, text: str) -> Decided | Compute[Decided]:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            return Rejected("malformed client-first message")
        username = unescaped(match["username"])
        if _wants_token(match["extensions"]):
            login = self._find_token(username)
            if login is None:
                return Rejected("unknown delegation token")
            complete = Complete(b"", login.owner, login.expires_at_ms, is_token=True)
            if login.credential is None:
                make = partial(salted_password, login.password, self._salt, ITERATIONS_MIN, self._mechanism)
                return Compute(make, partial(self._take_token, match, login, complete))
            return self._challenge(match, login.credential, complete)

        credential = self._find(username)

        # As in Kafka, a client can tell an unknown user from a wrong password by the round in
        # which the login fails.
        if credential is None:
            return Rejected(f"{username!r:.100} has no {self._mechanism.name} credential")
        return self._challenge(match, credential, Complete(b"", KafkaPrincipal(USER, username)))

    def _take_token(self, match: re.Match[str], login: TokenLogin, complete: Complete, salted: bytes) -> Decided:
        credential = make_credential(salted, self._salt, ITERATIONS_MIN, self._mechanism)
        login.keep(credential)
        return self._challenge(match, credential, complete)

    def _challenge(self, match: re.Match[str], credential: ScramCredential, complete: Complete) -> Decided:
        # The authorization id is compared as it was sent, escaped, so one with "," or "=" is never
        # equal.
        authorization_id = match["authorization_id"]
        if authorization_id is not None and authorization_id != unescaped(match["username"]):
            return Rejected(OTHER_AUTHORIZATION_ID, OTHER_AUTHORIZATION_ID)
        if credential.iterations < ITERATIONS_MIN:
            return Rejected(f"the credential has {credential.iterations} iterations")
        nonce = match["nonce"] + self._nonce
        server_first = f"r={nonce},s={_base64(credential.salt)},i={credential.iterations}"
        self._challenged = _Challenged(credential, complete, nonce, f"{match['bare']},{server_first}")
        return Challenge(server_first.encode("ascii"))

    def _take_final(self, text: str, challenged: _Challenged) -> Decided:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            return Rejected("malformed client-final message")

        # Only the end is compared, because old librdkafka sends the client's part twice; but the
        # end must have both parts in full (CVE-2024-56128).
        if not match["nonce"].endswith(challenged.nonce):
            return Rejected("the nonce of the client-final message is not that of this exchange")
        credential = challenged.credential
        algorithm = self._mechanism.hash
        proof = base64.b64decode(match["proof"])
        if len(proof) != len(credential.stored_key):
            return Broken(f"a proof of {len(proof)} bytes")
        signed = f"{challenged.signed},{match['signed']}".encode("ascii")
        client_key = _xor(proof, hmac.digest(credential.stored_key, signed, algorithm))
        if not hmac.compare_digest(hashlib.new(algorithm, client_key).digest(), credential.stored_key):
            return Rejected("the proof is wrong")
        signature = hmac.digest(credential.server_key, signed, algorithm)
        return challenged.complete._replace(token=f"v={_base64(signature)}".encode("ascii"))


class ScramClient:
    """The client's side; `is_token` for a delegation token, whose id and HMAC are username and password."""

    def __init__(
        self, mechanism: Mechanism, username: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = bytes_of(password)
        self._nonce = nonce
        extensions = ",tokenauth=true" if is_token else ""
        self._bare = f"n={escaped(username)},r={nonce}{extensions}"
        self._signature: bytes | None = None  # of the server, which the last message must have
        self._is_complete = False

    def begin(self) -> bytes:
        return bytes_of(f"n,,{self._bare}")

    def evaluate(self, token: bytes) -> bytes | Compute[bytes] | None:
        if len(token) > TOKEN_BYTES_MAX or self._is_complete:
            raise LoginFailed("the server sends a SCRAM message that does not belong here")
        text = text_of(token)
        if self._signature is None:
            return self._take_first(text)
        self._take_final(text, self._signature)
        return None

    def _take_first(self, text: str) -> Compute[bytes]:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise LoginFailed("the server's first SCRAM message is malformed")

        # The server has to add a part of its own, or a recorded exchange could be replayed.
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise LoginFailed("the server's nonce does not continue the client's")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_ACCEPTED_MAX:
            raise LoginFailed(
                f"the server asks for {iterations} iterations: not from {ITERATIONS_MIN} to {ITERATIONS_ACCEPTED_MAX}"
            )

        salt = base64.b64decode(match["salt"])

        # "biws" is the base64 of "n,,": no channel binding, no authorization id.
        final = f"c=biws,r={match['nonce']}"
        signed = bytes_of(f"{self._bare},{text},{final}")
        run = partial(salted_password, self._password, salt, iterations, self._mechanism)
        return Compute(run, partial(self._prove, final, signed))

    def _prove(self, final: str, signed: bytes, salted: bytes) -> bytes:
        algorithm = self._mechanism.hash
        credential = make_credential(salted, b"", 0, self._mechanism)
        self._signature = hmac.digest(credential.server_key, signed, algorithm)
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        proof = _xor(client_key, hmac.digest(credential.stored_key, signed, algorithm))
        return f"{final},p={_base64(proof)}".encode("ascii")

    def _take_final(self, text: str, expected: bytes) -> None:
        match = _SERVER_FINAL.fullmatch(text)
        if match is None:
            raise LoginFailed("the server's last SCRAM message is malformed")
        if match["error"] is not None:
            raise LoginFailed(f"the server refuses: {match['error']!r:.100}")
        if not hmac.compare_digest(base64.b64decode(match["signature"]), expected):
            raise LoginFailed("the server does not prove that it knows the password")
        self._is_complete = True


def escaped(username: str) -> str:
    """A username as it is written in a message."""
    return username.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """The reverse of `escaped`."""
    # The order matters: "=3D2C" is the text "=2C".
    return name.replace("=2C", ",").replace("=3D", "=")


def _wants_token(extensions: str) -> bool:
    # The text begins with a comma, so its first part is empty. The last of two equal names counts;
    # unknown names are ignored.
    values = dict(each.split("=", 1) for each in extensions.split(",")[1:])
    return values.get("tokenauth", "").lower() == "true"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
