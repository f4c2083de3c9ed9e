"""The login of a connection on a SASL listener: reads frames for `Authenticator`, and carries out its actions."""

from collections.abc import Callable, Sequence

import trio

from barnabas.security.sasl.authenticator import (
    Action,
    Authenticated,
    Authenticator,
    Close,
    Identity,
    Moment,
    Run,
    Send,
    WaitUntil,
)
from barnabas.storage.disk import InThread
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.frame import FrameReader, RequestHeader
from barnabas.world.net import ConnectionLost, Stream

RECEIVE_BYTES = 1 << 12  # the frames of a login are small, and the client is still a stranger


class FailedAuthentication(Exception):
    """The login has failed: the connection closes. The text is for the log, and has no secret."""


class Login:
    """The logins of one connection: the first one, and those that follow on it (KIP-368).

    `received` is called after bytes that make no whole frame, with their number: it counts the memory.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        stream: Stream,
        now_ms: Callable[[], int],
        in_thread: InThread,
        received: Callable[[int], None],
    ) -> None:
        self.identity: Identity | None = None
        self.is_token = False  # logged in with a delegation token
        self.count = 0  # logins of this connection
        self._authenticator = authenticator
        self._stream = stream
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._received = received

    async def run(self, reader: FrameReader) -> None:
        """Log in. FailedAuthentication, ConnectionLost.

        Before the first login the reader takes empty frames, with the limit of `sasl.server.max.receive.size`.
        """
        authenticator = self._authenticator
        while not authenticator.is_complete:
            try:
                frame = reader.next_frame()
            except ProtocolViolation as violation:
                await self._carry_out(authenticator.bad_length(str(violation), self._moment()))
                continue
            if frame is not None:
                await self._carry_out(authenticator.receive(frame, self._moment()))

                # Frames that have arrived need no receive: otherwise thousands of bad tokens get answers in one step.
                await trio.lowlevel.checkpoint()
                continue
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data:
                raise ConnectionLost("it went away during its login")
            reader.feed(data)
            if reader.needed_bytes:
                self._received(reader.pending_bytes)

    async def run_again(self, header: RequestHeader, frame: memoryview, reader: FrameReader) -> bool:
        """Log in again, with this SaslHandshake among ordinary requests, whose answers are all sent.

        False if it is an ordinary request too, which is refused: there is no need, or the last time was just now.
        FailedAuthentication, ConnectionLost.
        """
        actions = self._authenticator.reauthenticate(header, frame, self._moment())
        if actions is None:
            return False
        await self._carry_out(actions)
        await self.run(reader)
        return True

    @property
    def has_ended(self) -> bool:
        """Whether the session has ended: no request is served any more, but one that logs in again."""
        return self._authenticator.is_expired(trio.current_time())

    def check_session(self) -> None:
        """FailedAuthentication if the session has ended."""
        if self.has_ended:
            raise FailedAuthentication("the session has ended, and the client has not logged in again")

    async def _carry_out(self, actions: Sequence[Action]) -> None:
        """Carry out the actions, and those that follow from them. FailedAuthentication, ConnectionLost."""
        # A `Run` is always alone: what follows depends on its result.
        while actions and isinstance(actions[0], Run):
            result = await self._in_thread(actions[0].function)
            actions = self._authenticator.computed(result, self._moment())
        for action in actions:
            match action:
                case Send(frame):
                    await self._stream.send_all(frame)
                # Nothing is read meanwhile: this client gets no other answer.
                case WaitUntil(seconds):
                    await trio.sleep_until(seconds)
                case Authenticated(identity):
                    self.identity = identity
                    self.is_token = identity.is_token
                    self.count += 1
                case Close(cause):
                    raise FailedAuthentication(cause)

    def _moment(self) -> Moment:
        """Now, for the authenticator."""
        return Moment(trio.current_time(), self._now_ms())
