"""One of two brokers with logins, as a scenario about logins sees it.

A case is a row of steps over one connection. What each step brings is an answer, or that the connection is closed, and
when: at once, or after the delay that failed logins have. The cases of a scenario run at the same time.
"""

import pathlib
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from barnabas.wire import messages as m
from compat_tests.differential.side import CLOSED, SILENT, Answer, Connection, Side

# connection.failed.authentication.delay.ms. A broker on a busy machine may take half of it to answer at once.
DELAY_MS = 2000
AT_ONCE, DELAYED = "at once", "after the delay"
ANSWER_SECONDS, END_SECONDS = 5.0, 2.5
CASES_AT_A_TIME = 48
LIFETIME_STEP_MS = 10_000
LOGIN, AGAIN = "LOGIN", "AGAIN"  # listeners: sessions of the second one end after REAUTH_MS
REAUTH_MS = 4000


class Ask(NamedTuple):
    """A request, in a version that it has."""

    request: m.Message
    version: int

    def do(self, connection: "LoginConnection") -> Answer:
        connection.send(self.request, self.version)
        return connection.receive(ANSWER_SECONDS)


class Frame(NamedTuple):
    """Bytes as one frame; the answer is a frame, too. `says` is its size if that is not its length."""

    data: bytes
    says: int | None = None

    def do(self, connection: "LoginConnection") -> Answer:
        size = len(self.data) if self.says is None else self.says
        connection.socket.sendall(struct.pack(">i", size) + self.data)
        return connection.receive_frame()


class Pause(NamedTuple):
    """Time in which nothing is sent."""

    seconds: float

    def do(self, connection: "LoginConnection") -> Answer:
        time.sleep(self.seconds)
        return ""


class Pipelined(NamedTuple):
    """Several requests in one piece; their answers in order."""

    asked: Sequence[Ask]

    def do(self, connection: "LoginConnection") -> Answer:
        for each in self.asked:
            connection.send(each.request, each.version)
        answers = []
        for _ in self.asked:
            answers.append(connection.receive(ANSWER_SECONDS))
            if isinstance(answers[-1], str):
                break
        return answers


Step = Ask | Frame | Pause | Pipelined
# A step may depend on what the one before brought.
Steps = Sequence[Step | Callable[[Any], Step]]


class LoginConnection(Connection):
    """A connection that is not made again when it is closed."""

    def receive_frame(self) -> Answer:
        self.socket.settimeout(ANSWER_SECONDS)
        try:
            return self._read(struct.unpack(">i", self._read(4))[0])
        except TimeoutError:
            return SILENT
        except OSError:
            return CLOSED


class SaslSide(Side):
    """A broker with listeners that want a login, beside one that wants none."""

    def __init__(
        self, broker: str, ports: Mapping[str, int], port: int, directory: pathlib.Path, scenario: str
    ) -> None:
        super().__init__(broker, port, directory, scenario)
        self._ports = ports
        self.names.ports = dict.fromkeys(ports.values(), "PORT")

    def play(self, listener: str, steps: Steps) -> list[Any]:
        """What each step brings, until the connection is closed; and whether it is, if no step did that."""
        found: list[Any] = []
        brought: Answer = ""
        with LoginConnection(self, "raw", self._ports[listener]) as connection:
            for each in steps:
                step = each(brought) if callable(each) else each
                began = time.monotonic()
                brought = _done(step, connection)
                if isinstance(step, Pause):
                    continue
                is_delayed = time.monotonic() - began > DELAY_MS / 2000
                found.append({"brings": _comparable(brought), "when": DELAYED if is_delayed else AT_ONCE})
                if brought in (CLOSED, SILENT):
                    return found
            found.append(connection.listen(END_SECONDS))
        return found

    def play_all(self, cases: Mapping[str, Steps], listener: str = LOGIN) -> Iterator[tuple[str, list[Any]]]:
        """All cases, each over a connection of its own."""
        with ThreadPoolExecutor(CASES_AT_A_TIME) as threads:
            yield from zip(cases, threads.map(lambda steps: self.play(listener, steps), cases.values()), strict=True)


def _done(step: Step, connection: LoginConnection) -> Answer:
    try:
        return step.do(connection)
    except (TimeoutError, ConnectionError):
        return CLOSED


def _comparable(answer: Answer) -> Answer:
    """Without nonces, signatures, the order of mechanisms and the milliseconds of a lifetime."""
    match answer:
        case list():
            return [_comparable(each) for each in answer]
        case bytes():
            return _without_nonces(answer)
        # Which APIs there are is compared by other scenarios.
        case m.ApiVersionsResponse():
            answer.api_keys = []
        case m.SaslHandshakeResponse():
            answer.mechanisms = sorted(answer.mechanisms)
        case m.SaslAuthenticateResponse():
            answer.auth_bytes = _without_nonces(bytes(answer.auth_bytes))
            answer.session_lifetime_ms = -(-answer.session_lifetime_ms // LIFETIME_STEP_MS) * LIFETIME_STEP_MS
    return answer


def _without_nonces(token: bytes) -> bytes:
    """A token of SCRAM without the server's part of the nonce, and without the signature."""
    token = re.sub(rb"^(r=client-nonce)[^,]+", rb"\1...", token)
    return re.sub(rb"^v=.*", b"v=...", token)
