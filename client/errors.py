"""What can go wrong for a client, in words for the person who uses it (pure)."""

from collections.abc import Iterable

from barnabas.wire.errors import ErrorCode, error_name, error_of


class ClientError(Exception):
    """The cluster did not do what was asked; the text says what is wrong."""


class Unreachable(ClientError):
    """No broker of the cluster could be reached, or none answered in time."""


class Refused(ClientError):
    """A broker has answered with an error code."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = code
        super().__init__(f"{what}: {error_name(code)}: {message or _message_of(code)}")

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return error_of(self.code).retriable


def check(what: str, code: int, message: str | None = None) -> None:
    """Nothing if the code is 0; Refused otherwise. `what` is the subject of the sentence: "topic 'orders'"."""
    if code != ErrorCode.NONE:
        raise Refused(what, code, message)


def nearest_of(name: str, known: Iterable[str]) -> str:
    """Which of these names was probably meant, as the end of a sentence; empty if none is near."""
    # The import is here, because it is only needed for a mistake.
    from difflib import get_close_matches

    nearest = get_close_matches(name, known, n=1)
    return f"; the nearest name is {nearest[0]!r}" if nearest else ""


def _message_of(code: int) -> str:
    return error_of(code).message
