"""The server's side of a login on a SASL listener (pure): frames and the time in, actions out (reference S.7-S.9).

`Authenticator` is the state of one connection. The connection gives it every frame until it is complete, and carries
out the actions that it returns, in their order:

    Send           send this frame
    Run            call this function in a thread, then `computed` with its result
    WaitUntil      do what follows at this time, and read nothing before
    Authenticated  the login is complete, once the frames before it are sent
    Close          log why, and close the connection

States, with the request that each one expects:

    FIRST          ApiVersions or SaslHandshake          of a connection that has sent no request
    HELLO          ApiVersions or SaslHandshake
    HANDSHAKE      SaslHandshake                         after an ApiVersions
    AUTHENTICATE   SaslAuthenticate                      after a SaslHandshake of version 1
    RAW            a token in a frame without a header   after a SaslHandshake of version 0
    COMPUTING      nothing: a function runs in a thread
    COMPLETE       ordinary requests, which are not this machine's
    BAD_MECHANISM  a token, which fails                  a re-authentication names another mechanism
    FAILED         nothing

Everything else fails the login. Errors of authentication are answered, if they have an answer, and the connection
closes, both after `connection.failed.authentication.delay.ms`: that bounds how fast passwords can be tried. Errors of
the protocol close at once, without an answer. Which is which is Kafka's choice, measured on 3.9.1.

A session may end: by `connections.max.reauth.ms`, or with the credential. The client then logs in again on the same
connection (KIP-368), with a SaslHandshake among its ordinary requests: `reauthenticate`. A request after the end closes
the connection: `is_expired`.
"""

import struct
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.exchange import Broken, Challenge, Complete, Compute, Decided, Rejected, ServerExchange
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, response_header_version
from barnabas.wire.errors import ErrorCode, ProtocolViolation
from barnabas.wire.frame import RequestHeader, UnsupportedRequest, read_request_header, response_prefix

SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY = 17, 36
KAFKAS_KEYS_MAX = 87  # the highest API key of 3.9, whether or not this broker knows it
HEADER_BYTES_MAX = 1 << 17  # of a request: its client id has at most 32 kB, and tagged fields are few
# A larger request that is out of place is not decoded: it would be decoded only to be refused, on
# the event loop and for a client without a login, and the answer may have ninety times as many
# bytes.
REFUSED_BYTES_MAX = 512
REAUTHENTICATION_INTERVAL_SECONDS = 1.0

GENERIC = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"
OTHER_PRINCIPAL = "Cannot change principals during re-authentication from {}.{}: {}.{}"
OTHER_MECHANISM = "SASL mechanism '{}' requested by client is not supported for re-authentication of mechanism '{}'"
NOT_KAFKA = "the first frame is no request, and GSSAPI is not supported"

_LENGTH = struct.Struct(">i")


class Moment(NamedTuple):
    """The time: sessions and delays count by the monotonic clock, credentials by the wall clock."""

    seconds: float
    wall_ms: int


class Identity(NamedTuple):
    """Who a connection is, from its login to the next one."""

    principal: KafkaPrincipal
    mechanism: str
    is_token: bool = False  # logged in with a delegation token, which may not ask for another one
    expires_at: float | None = None  # monotonic seconds; from then on a request closes the connection


class Send(NamedTuple):
    """Send this frame, its length included."""

    frame: bytes


class Run(NamedTuple):
    """Call this function in a thread."""

    function: Callable[[], bytes]


class WaitUntil(NamedTuple):
    """Wait until this time, in monotonic seconds, and read nothing before."""

    seconds: float


class Authenticated(NamedTuple):
    """The connection has this identity from now on."""

    identity: Identity


class Close(NamedTuple):
    """Close the connection. The cause is for the log: it has no secret."""

    cause: str


Action = Send | Run | WaitUntil | Authenticated | Close


class SaslMechanism(NamedTuple):
    """An enabled mechanism of a listener."""

    begin: Callable[[], ServerExchange]
    max_reauth_ms: int = 0  # `connections.max.reauth.ms`; 0: sessions last as long as the credential


class SaslSettings(NamedTuple):
    """The SASL settings of a listener."""

    mechanisms: Mapping[str, SaslMechanism]
    failure_delay_ms: int = 100
    token_bytes_max: int = 524_288  # `sasl.server.max.receive.size`, also while a session lasts


class OrdinaryAnswers(Protocol):
    """What `dispatch.py` answers. It is above this room, so the connection passes it in."""

    def api_versions(self, request: m.ApiVersionsRequest, version: int) -> m.Message:
        """The response to ApiVersions, with its error code if the request is not valid."""
        ...

    def unsupported(self, unsupported: UnsupportedRequest) -> bytes:
        """The frame of the response to an ApiVersions of an unknown version."""
        ...

    def refused(self, api_key: int, request: m.Message, version: int, code: ErrorCode) -> m.Message | None:
        """The response with this error code at every place; None if such a request is not answered."""
        ...


class State(Enum):
    """See the head of this file."""

    FIRST = auto()
    HELLO = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    RAW = auto()
    COMPUTING = auto()
    COMPLETE = auto()
    BAD_MECHANISM = auto()
    FAILED = auto()


class Authenticator:
    """The logins of one connection."""

    __slots__ = (
        "_answers",
        "_began_again_at",
        "_exchange",
        "_identity",
        "_mechanism",
        "_previous",
        "_settings",
        "_then",
        "state",
    )

    def __init__(self, settings: SaslSettings, answers: OrdinaryAnswers) -> None:
        self._settings = settings
        self._answers = answers
        self.state = State.FIRST
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        # While a function runs in a thread, this has what makes the outcome of its result, and the
        # header of the request to answer (None: a raw token).
        self._then: tuple[Callable[[bytes], Decided], RequestHeader | None] | None = None
        self._identity: Identity | None = None
        self._previous: Identity | None = None  # while the client logs in again
        self._began_again_at: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the connection serves ordinary requests."""
        return self.state is State.COMPLETE

    def is_expired(self, seconds: float) -> bool:
        """Whether the session has ended: then a request closes the connection, but for one that logs in again."""
        expires_at = None if self._identity is None else self._identity.expires_at
        return expires_at is not None and seconds >= expires_at

    def receive(self, frame: memoryview, moment: Moment) -> list[Action]:
        """Take a frame, without its length, of a connection that is not complete."""
        match self.state:
            case State.FIRST | State.HELLO | State.HANDSHAKE:
                return self._take_hello(frame, moment)
            case State.AUTHENTICATE:
                return self._take_request(frame, moment)
            case State.RAW:
                return self._evaluate(frame, None, moment)
            case State.BAD_MECHANISM:
                return self._fail_later(moment, OTHER_MECHANISM.format(self._mechanism, self._previous_mechanism))
            case State.COMPUTING | State.COMPLETE | State.FAILED:
                raise ValueError(f"no frame is expected in {self.state}")

    def computed(self, result: bytes, moment: Moment) -> list[Action]:
        """Take what the function of `Run` has returned."""
        if self._then is None:
            raise ValueError("nothing is computed")
        then, header = self._then
        self._then = None
        self.state = State.RAW if header is None else State.AUTHENTICATE
        return self._take_outcome(then(result), header, moment)

    def bad_length(self, cause: str, moment: Moment) -> list[Action]:
        """A frame claims to be longer than `sasl.server.max.receive.size`, or its length is negative."""
        return self._fail_later(moment, cause)

    def reauthenticate(self, header: RequestHeader, frame: memoryview, moment: Moment) -> list[Action] | None:
        """Begin another login with this SaslHandshake; None if the session has no end, or the last one was just now.

        From the first action on, frames go to `receive` until the login is complete.
        """
        identity = self._identity
        if identity is None or identity.expires_at is None:
            return None
        began_at = self._began_again_at
        # Kafka, too, begins one login a second at most (KIP-368): each may cost the broker a PBKDF2
        # or the check of a signature.
        if began_at is not None and moment.seconds - began_at < REAUTHENTICATION_INTERVAL_SECONDS:
            return None
        self._began_again_at = moment.seconds
        self._previous = identity
        return self._take_handshake(header, frame, moment)

    # -- before the first token

    def _take_hello(self, frame: memoryview, moment: Moment) -> list[Action]:
        state = self.state
        try:
            header = read_request_header(frame)
        except UnsupportedRequest as unsupported:
            return self._take_unsupported(unsupported, moment)
        except ProtocolViolation as violation:
            # Kafka takes such a first frame for a token of GSSAPI, with which a client of 0.9
            # begins, and refuses that mechanism.
            return self._fail_later(moment, NOT_KAFKA) if state is State.FIRST else self._fail_now(str(violation))

        self.state = State.HELLO if state is State.FIRST else state
        if header.api_key == SASL_HANDSHAKE_KEY:
            return self._take_handshake(header, frame, moment)
        if header.api_key != API_VERSIONS_KEY:
            # Only the header is read, so that a client without a login cannot make the broker run
            # the more complex decoders.
            return self._fail_later(moment, f"{APIS[header.api_key].name} before SaslHandshake")
        if state is State.HANDSHAKE:
            return self._fail_now("a second ApiVersions")
        try:
            request = m.decode(m.ApiVersionsRequest, header.api_version, frame, header.position)
        except ProtocolViolation as violation:
            return self._fail_now(str(violation))

        response = self._answers.api_versions(request, header.api_version)

        # A client whose ApiVersions is refused, for a malformed software name, may ask again.
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NONE:
            self.state = State.HANDSHAKE
        return [self._response(header, response)]

    def _take_unsupported(self, unsupported: UnsupportedRequest, moment: Moment) -> list[Action]:
        key = unsupported.api_key
        is_first = self.state is State.FIRST
        if key == API_VERSIONS_KEY and self.state is not State.HANDSHAKE:
            self.state = State.HELLO
            return [Send(self._answers.unsupported(unsupported))]
        if key in (SASL_HANDSHAKE_KEY, API_VERSIONS_KEY):
            return self._fail_now(str(unsupported))
        # With a key that Kafka knows this is a request out of place, and fails after the delay.
        # With any other key it is no request, and fails at once, unless it is the first frame.
        is_known = 0 <= key <= KAFKAS_KEYS_MAX
        return self._fail_later(moment, str(unsupported)) if is_known or is_first else self._fail_now(str(unsupported))

    def _take_handshake(self, header: RequestHeader, frame: memoryview, moment: Moment) -> list[Action]:
        try:
            request = m.decode(m.SaslHandshakeRequest, header.api_version, frame, header.position)
        except ProtocolViolation as violation:
            return self._fail_now(str(violation))

        enabled = self._settings.mechanisms
        asked = request.mechanism
        response = m.SaslHandshakeResponse(mechanisms=list(enabled))
        if asked not in enabled:
            cause = f"SASL mechanism {asked!r:.100} is not enabled"
            if self._previous is not None:
                return self._fail_now(cause)
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._fail_later(moment, cause, self._response(header, response))

        self._mechanism = asked
        # The handshake with another mechanism succeeds, as in Kafka: only the answer to the token
        # that follows has a place for the reason.
        if self._previous is not None and asked != self._previous.mechanism:
            self.state = State.BAD_MECHANISM
        else:
            self._exchange = enabled[asked].begin()
            self.state = State.RAW if header.api_version == 0 else State.AUTHENTICATE

        return [self._response(header, response)]

    # -- tokens

    def _take_request(self, frame: memoryview, moment: Moment) -> list[Action]:
        try:
            header = read_request_header(frame)
            if header.api_key == SASL_AUTHENTICATE_KEY:
                # The length is checked before the token is copied, which takes 60 ms for the
                # largest frame.
                if len(frame) > self._settings.token_bytes_max + HEADER_BYTES_MAX:
                    return self._reject(f"a frame of {len(frame)} bytes", None, header, moment)
                request = m.decode(m.SaslAuthenticateRequest, header.api_version, frame, header.position)
                return self._evaluate(request.auth_bytes, header, moment)
            return self._refuse(header, frame, moment)
        except UnsupportedRequest as unsupported:
            if unsupported.api_key != API_VERSIONS_KEY:
                return self._fail_now(str(unsupported))

            # This is answered as if it were of version 0, as Kafka answers each ApiVersions of an
            # unknown version.
            header = RequestHeader(API_VERSIONS_KEY, 0, unsupported.correlation_id, None, 0)
            return self._refuse_decoded(header, m.ApiVersionsRequest(), moment)
        except ProtocolViolation as violation:
            return self._fail_now(str(violation))

    def _refuse(self, header: RequestHeader, frame: memoryview, moment: Moment) -> list[Action]:
        """Any other request: its own error response. ProtocolViolation."""
        if len(frame) > REFUSED_BYTES_MAX:
            return self._fail_later(moment, f"{APIS[header.api_key].name} during authentication")
        request = m.decode(m.request_class(APIS[header.api_key]), header.api_version, frame, header.position)
        return self._refuse_decoded(header, request, moment)

    def _refuse_decoded(self, header: RequestHeader, request: m.Message, moment: Moment) -> list[Action]:
        code = ErrorCode.ILLEGAL_SASL_STATE
        response = self._answers.refused(header.api_key, request, header.api_version, code)
        cause = f"{APIS[header.api_key].name} during authentication"
        # A Produce with acks=0 has no response. Kafka fails because there is none, so the
        # connection closes without the delay.
        if response is None:
            return self._fail_now(cause)
        return self._fail_later(moment, cause, self._response(header, response))

    def _evaluate(self, token: bytes | memoryview, header: RequestHeader | None, moment: Moment) -> list[Action]:
        assert self._exchange is not None, self.state
        # Before the first login no frame is longer than this limit, but in a later login one may
        # be. Kafka then takes any token that fits socket.request.max.bytes.
        if len(token) > self._settings.token_bytes_max:
            return self._reject(f"a token of {len(token)} bytes", None, header, moment)
        outcome = self._exchange.evaluate(bytes(token), moment.wall_ms)
        if isinstance(outcome, Compute):
            self.state = State.COMPUTING
            self._then = outcome.then, header
            return [Run(outcome.run)]
        return self._take_outcome(outcome, header, moment)

    def _take_outcome(self, outcome: Decided, header: RequestHeader | None, moment: Moment) -> list[Action]:
        match outcome:
            case Challenge(token):
                return [self._token(header, token, 0)]
            case Complete():
                return self._complete(outcome, header, moment)
            case Rejected(cause, message):
                return self._reject(cause, message, header, moment)
            case Broken(cause):
                return self._fail_now(cause)

    def _complete(self, complete: Complete, header: RequestHeader | None, moment: Moment) -> list[Action]:
        previous = self._previous
        principal = complete.principal
        # The rights of a connection must not change between its requests, so KIP-368 allows no other
        # principal in a later login.
        if previous is not None and previous.principal != principal:
            text = OTHER_PRINCIPAL.format(*previous.principal, *principal)
            return self._reject(text, text, header, moment)
        lifetime_ms = self._lifetime_ms(complete, moment)
        expires_at = None if lifetime_ms is None else moment.seconds + lifetime_ms / 1000
        self._identity = Identity(principal, self._mechanism, complete.is_token, expires_at)
        self._exchange = self._previous = None
        self.state = State.COMPLETE
        return [self._token(header, complete.token, lifetime_ms or 0), Authenticated(self._identity)]

    def _lifetime_ms(self, complete: Complete, moment: Moment) -> int | None:
        max_reauth_ms = self._settings.mechanisms[self._mechanism].max_reauth_ms
        limits = [max_reauth_ms] if max_reauth_ms > 0 else []
        # A delegation token that has expired, but is not removed yet, gives a session that has
        # ended already.
        if complete.expires_at_ms is not None:
            limits.append(max(complete.expires_at_ms - moment.wall_ms, 0))
        return min(limits, default=None)

    # -- ends

    def _reject(self, cause: str, message: str | None, header: RequestHeader | None, moment: Moment) -> list[Action]:
        # An exchange of raw tokens has no place for an error. In Kafka a failure with a text of
        # its own is a SaslAuthenticationException, after which the connection closes with the
        # delay, here too; after any other failure it closes at once.
        if header is None:
            return self._fail_now(cause) if message is None else self._fail_later(moment, cause)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        response = m.SaslAuthenticateResponse(error_code=code, error_message=message or self._generic)
        return self._fail_later(moment, cause, self._response(header, response))

    def _fail_later(self, moment: Moment, cause: str, answer: Send | None = None) -> list[Action]:
        self._end()
        delay_ms = self._settings.failure_delay_ms
        wait: list[Action] = [WaitUntil(moment.seconds + delay_ms / 1000)] if delay_ms else []
        return [*wait, *([] if answer is None else [answer]), Close(cause)]

    def _fail_now(self, cause: str) -> list[Action]:
        self._end()
        return [Close(cause)]

    def _end(self) -> None:
        self.state = State.FAILED
        self._exchange = self._identity = None

    # -- frames

    @property
    def _generic(self) -> str:
        # One text for every cause: whether a user exists, or what was wrong, is not the client's business.
        when = "authentication" if self._previous is None else "re-authentication"
        return GENERIC.format(when, self._mechanism)

    @property
    def _previous_mechanism(self) -> str:
        return "" if self._previous is None else self._previous.mechanism

    def _token(self, header: RequestHeader | None, token: bytes, lifetime_ms: int) -> Send:
        if header is None:
            return Send(_LENGTH.pack(len(token)) + token)
        # The message is an empty text and not null, as Kafka's.
        response = m.SaslAuthenticateResponse(error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return self._response(header, response)

    def _response(self, header: RequestHeader, response: m.Message) -> Send:
        body = m.encode(response, header.api_version)
        header_version = response_header_version(header.api_key, header.api_version)
        return Send(response_prefix(len(body), header.correlation_id, header_version) + body)
