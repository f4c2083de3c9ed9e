"""Short functions for logins: handshakes, tokens of each mechanism, and what SCRAM computes."""

import hashlib
import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.wire import messages as m
from compat_tests.differential.sasl_side import Ask
from compat_tests.secured import PASSWORD, USER

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NONCE = "client-nonce"  # `SaslSide` knows it in answers
API_VERSIONS = 18


def handshake(mechanism: str | None, version: int = 1) -> Ask:
    return Ask(m.SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 1) -> Ask:
    return Ask(m.SaslAuthenticateRequest(auth_bytes=data), version)


def api_versions(version: int, name: str = "tests", number: str = "1.0") -> Ask:
    return Ask(m.ApiVersionsRequest(client_software_name=name, client_software_version=number), version)


def plain(user: str = USER, password: str = PASSWORD, authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


def client_first(user: str = USER, header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}n={user},r={NONCE}{extensions}".encode()


def client_final(
    mechanism: str,
    *,
    user: str = USER,
    password: str = PASSWORD,
    header: str = "n,,",
    extensions: str = "",
    nonce: Callable[[str], str] = lambda nonce: nonce,
    proof: Callable[[bytes], bytes] = lambda proof: proof,
    text: Callable[[str], str] = lambda text: text,
) -> Callable[[Any], Ask]:
    """The step that answers the server's first message; `nonce`, `proof` and `text` change what is right."""

    def step(answer: Any) -> Ask:
        brought = bytes(answer.auth_bytes).decode()
        if not brought.startswith("r="):
            return token(b"there is no message to answer")
        fields = dict(each.split("=", 1) for each in brought.split(","))
        return token(text(final_text(mechanism, brought, fields, nonce(fields["r"]))).encode())

    def final_text(mechanism: str, server_first: str, fields: Mapping[str, str], used_nonce: str) -> str:
        name = SCRAM[mechanism]
        salted = hashlib.pbkdf2_hmac(name, password.encode(), b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", name)
        bare = client_first(user, "", extensions).decode()
        without_proof = f"c={b64encode(header.encode()).decode()},r={used_nonce}"
        said = ",".join((bare, server_first, without_proof)).encode()
        signature = hmac.digest(hashlib.new(name, key).digest(), said, name)
        computed = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof(computed)).decode()}"

    return step


def bearer(payload: Mapping[str, Any] | str | None = None, header: Mapping[str, Any] | str | None = None) -> str:
    """An access token without a signature; parts may be any text."""
    whole = {"sub": USER, "iat": int(time.time()) - 10, "exp": int(time.time()) + 3600}
    parts = [
        part if isinstance(part, str) else b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "none"} if header is None else header, whole if payload is None else payload)
    ]
    return ".".join([*parts, ""])


def bearer_message(access_token: str | None = None, *, header: str = "n,,", extensions: str = "") -> bytes:
    text = bearer() if access_token is None else access_token
    return f"{header}\1auth=Bearer {text}\1{extensions}\1".encode()
