"""SASL PLAIN (pure): RFC 4616, with Kafka's checks, their order and texts (reference security.md, S.10).

The one token of the client is `[authzid] NUL username NUL password`; the server's is empty. The users are those of the
listener's JAAS options `user_<name>="<password>"`.
"""

import hmac
from collections.abc import Mapping

from barnabas.security.principals import USER, KafkaPrincipal
from barnabas.security.sasl.exchange import Complete, Decided, LoginFailed, Rejected, bytes_of, text_of

PLAIN = "PLAIN"
PARTS = 3
PARTS_COUNTED_MAX = 4  # Kafka stops counting there

WRONG_PARTS = "Invalid SASL/PLAIN response: expected 3 tokens, got {}"
NO_USERNAME = "Authentication failed: username not specified"
NO_PASSWORD = "Authentication failed: password not specified"
WRONG_CREDENTIALS = "Authentication failed: Invalid username or password"
OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


class PlainServer:
    """The server's side: compares the password with that of the JAAS options."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def evaluate(self, token: bytes, now_ms: int) -> Decided:
        parts = text_of(token).split("\0", PARTS_COUNTED_MAX)[:PARTS_COUNTED_MAX]
        if len(parts) != PARTS:
            return _rejected(WRONG_PARTS.format(len(parts)))
        authorization_id, username, password = parts
        if not username:
            return _rejected(NO_USERNAME)
        if not password:
            return _rejected(NO_PASSWORD)
        if not self._is_right(username, password):
            return _rejected(WRONG_CREDENTIALS)
        if authorization_id and authorization_id != username:
            return _rejected(OTHER_AUTHORIZATION_ID)
        return Complete(b"", KafkaPrincipal(USER, username))

    def _is_right(self, username: str, password: str) -> bool:
        expected = self._users.get(username)
        # The comparison takes constant time, for unknown users too, so that the time tells nothing
        # (CVE-2021-38153). An unknown user is compared with its own name, which may equal the
        # password, so `expected` is checked as well.
        is_equal = hmac.compare_digest(bytes_of(password), bytes_of(username if expected is None else expected))
        return is_equal and expected is not None


class PlainClient:
    """The client's side."""

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    def begin(self) -> bytes:
        # Java's client sends no authorization id either.
        return b"\0".join((b"", bytes_of(self._username), bytes_of(self._password)))

    def evaluate(self, token: bytes) -> None:
        if token:
            raise LoginFailed("the server answers PLAIN with a token")


def _rejected(text: str) -> Rejected:
    return Rejected(text, text)
