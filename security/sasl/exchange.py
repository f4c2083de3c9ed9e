"""What a SASL mechanism decides about a token of the other side (pure).

A login is an exchange of tokens: the client sends one, the server answers it, until both are satisfied or one gives up.
Each mechanism has a class for the server's side (`ServerExchange`) and one for the client's (`ClientExchange`), which
take a token and return the next step. They know neither frames nor requests: those are `authenticator.py`'s and
`client.py`'s.

Causes are for the log, messages for the other side. Neither ever contains a password, a token or a proof.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from barnabas.security.principals import KafkaPrincipal

Result = TypeVar("Result")


class Challenge(NamedTuple):
    """Send this token; the exchange needs another one from the client."""

    token: bytes


class Complete(NamedTuple):
    """The client has proved who it is. This token, which may be empty, ends the exchange."""

    token: bytes
    principal: KafkaPrincipal
    expires_at_ms: int | None = None  # wall clock; None if the credential has no end
    is_token: bool = False  # by a delegation token (KIP-48)


class Rejected(NamedTuple):
    """The login fails. Without a message the client gets a text that fits every cause."""

    cause: str
    message: str | None = None


class Broken(NamedTuple):
    """The token breaks the mechanism's own rules: the connection closes without an answer."""

    cause: str


class Compute(NamedTuple, Generic[Result]):
    """The next step needs milliseconds of CPU: call `run` in a thread, then `then` with what it returns."""

    run: Callable[[], bytes]
    then: Callable[[bytes], Result]


Decided = Challenge | Complete | Rejected | Broken


class ServerExchange(Protocol):
    """The server's side of one login."""

    def evaluate(self, token: bytes, now_ms: int) -> Decided | Compute[Decided]:
        """The step that answers the client's next token, at this time of the wall clock."""
        ...


class LoginFailed(Exception):
    """A login of this broker at another one fails. The message says why, without secrets."""


class ClientExchange(Protocol):
    """The client's side of one login."""

    def begin(self) -> bytes:
        """The first token."""
        ...

    def evaluate(self, token: bytes) -> bytes | Compute[bytes] | None:
        """The token that answers the server's; None when the exchange is complete. LoginFailed."""
        ...


def text_of(token: bytes) -> str:
    """The text of a token: bytes that are not UTF-8 become U+FFFD, as in Java, and fail the mechanism's own checks."""
    return token.decode("utf-8", "replace")


def bytes_of(text: str) -> bytes:
    """UTF-8. A lone surrogate, which only a configuration can contain, gets bytes that no token decodes to."""
    return text.encode("utf-8", "surrogatepass")
