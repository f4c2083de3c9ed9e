"""The authenticator: each state with each request, both handshake versions, failures, lifetimes, re-authentication."""

import struct
import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.server.before_login import AnswersBeforeLogin
from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.authenticator import (
    Authenticated,
    Authenticator,
    Close,
    Identity,
    Moment,
    Run,
    SaslMechanism,
    SaslSettings,
    Send,
    State,
    WaitUntil,
)
from barnabas.security.sasl.exchange import Broken, Challenge, Complete, Compute, Rejected
from barnabas.security.sasl.plain import PlainServer
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS
from barnabas.wire.frame import read_request_header
from tests.wire.client_frames import frame_of, response_in

WALL_MS = 1_700_000_000_000
START = Moment(1000.0, WALL_MS)
ALICE = KafkaPrincipal("User", "alice")
GENERIC = "Authentication failed during {} due to invalid credentials with SASL mechanism TEST"
ANSWERS = AnswersBeforeLogin(SimpleNamespace(), "SASL_PLAINTEXT")


# Token -> what the mechanism TEST says to it.
OUTCOMES = {
    b"more": Challenge(b"challenge"),
    b"done": Complete(b"", ALICE),
    b"with a token": Complete(b"final", ALICE),
    b"bob": Complete(b"", KafkaPrincipal("User", "bob")),
    b"for a minute": Complete(b"", ALICE, WALL_MS + 60_000),
    b"expired": Complete(b"", ALICE, WALL_MS - 5),
    b"delegated": Complete(b"", ALICE, WALL_MS + 60_000, is_token=True),
    b"wrong": Rejected("the cause"),
    b"wrong, says why": Rejected("the cause", "the message"),
    b"broken": Broken("the cause"),
    b"compute": Compute(lambda: b"done", lambda result: OUTCOMES[result]),
    b"compute, wrong": Compute(lambda: b"wrong", lambda result: OUTCOMES[result]),
}


class Scripted:
    """The mechanism TEST."""

    def evaluate(self, token, now_ms):
        return OUTCOMES[token]


def made(*, max_reauth_ms=0, delay_ms=100):
    scripted = SaslMechanism(Scripted, max_reauth_ms)
    plain = SaslMechanism(lambda: PlainServer({"alice": "alice-secret"}))
    settings = SaslSettings({"TEST": scripted, "PLAIN": plain}, delay_ms, token_bytes_max=1000)
    return Authenticator(settings, ANSWERS)


def header_only(key, version, correlation_id=7):
    return memoryview(struct.pack(">hhih", key, version, correlation_id, -1))


def read(sent, key, version, correlation_id=7):
    return response_in(sent.frame[4:], key, version, correlation_id)


def hello(version=3, name="test"):
    return frame_of(m.ApiVersionsRequest(client_software_name=name, client_software_version="1"), version)


def handshake(mechanism="TEST", version=1):
    return frame_of(m.SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(token, version=2):
    return frame_of(m.SaslAuthenticateRequest(auth_bytes=token), version)


def metadata():
    return frame_of(m.MetadataRequest(topics=[]), 12)


def produce(acks):
    return frame_of(m.ProduceRequest(acks=acks, timeout_ms=1, topic_data=[]), 9)


def in_state(state, **options):
    """An authenticator in this state."""
    side = made(**options)
    steps = {
        State.FIRST: [],
        State.HELLO: [header_only(API_VERSIONS_KEY, 99)],
        State.HANDSHAKE: [hello()],
        State.AUTHENTICATE: [handshake()],
        State.RAW: [handshake(version=0)],
    }
    if state is State.BAD_MECHANISM:
        side = logged_in(max_reauth_ms=1000)
        again(side, handshake("PLAIN"))
    for each in steps.get(state, []):
        side.receive(each, START)
    assert side.state is state
    return side


def logged_in(token=b"done", **options):
    side = made(**options)
    side.receive(handshake(), START)
    side.receive(authenticate(token), START)
    assert side.is_complete
    return side


def again(side, request, moment=START):
    return side.reauthenticate(read_request_header(request), request, moment)


# -- each state with each request

REQUESTS = {
    "ApiVersions": hello(),
    "ApiVersions 0": frame_of(m.ApiVersionsRequest(), 0),
    "ApiVersions 99": header_only(API_VERSIONS_KEY, 99),
    "ApiVersions, bad name": hello(name="?"),
    "ApiVersions, cut": hello()[:-3],
    "Handshake": handshake(),
    "Handshake 0": handshake(version=0),
    "Handshake, unknown": handshake("GSSAPI"),
    "Handshake, lower case": handshake("test"),
    "Handshake 9": header_only(17, 9),
    "Handshake, cut": handshake()[:-2],
    "Authenticate": authenticate(b"more"),
    "Authenticate 0": authenticate(b"more", 0),
    "Authenticate 9": header_only(36, 9),
    "Authenticate, cut": authenticate(b"more")[:-3],
    "Metadata": metadata(),
    "Metadata, cut": metadata()[:-3],
    "Metadata 99": header_only(3, 99),
    "Metadata, large": frame_of(
        m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")] * 2000), 12
    ),
    "Produce": produce(-1),
    "Produce, acks 0": produce(0),
    "Envelope": header_only(58, 0),
    "Vote": header_only(52, 0),
    "key 88": header_only(88, 0),
    "key -1": header_only(-1, 0),
    "no header": memoryview(b"\0\x03\0\0"),
    "empty": memoryview(b""),
    "random": memoryview(bytes(range(200, 256))),
    "TLS": memoryview(bytes.fromhex("16030100c8010000c40303")),
}
OK, CODE_33, CODE_34, CODE_35, CODE_42 = 0, 33, 34, 35, 42
CHALLENGE = "challenge"
LATER, NOW = "closes later", "closes now"

# Request -> in the states FIRST, HELLO, HANDSHAKE, AUTHENTICATE: the error code of the answer if there is one, and
# what then happens: the next state, or a close after the delay or at once.
TABLE = {
    "ApiVersions": [(OK, State.HANDSHAKE), (OK, State.HANDSHAKE), NOW, (CODE_34, LATER)],
    "ApiVersions 0": [(OK, State.HANDSHAKE), (OK, State.HANDSHAKE), NOW, (CODE_34, LATER)],
    "ApiVersions 99": [(CODE_35, State.HELLO), (CODE_35, State.HELLO), NOW, (CODE_34, LATER)],
    "ApiVersions, bad name": [(CODE_42, State.HELLO), (CODE_42, State.HELLO), NOW, (CODE_34, LATER)],
    "ApiVersions, cut": [NOW, NOW, NOW, NOW],
    "Handshake": [(OK, State.AUTHENTICATE)] * 3 + [(CODE_34, LATER)],
    "Handshake 0": [(OK, State.RAW)] * 3 + [(CODE_34, LATER)],
    "Handshake, unknown": [(CODE_33, LATER)] * 3 + [(CODE_34, LATER)],
    "Handshake, lower case": [(CODE_33, LATER)] * 3 + [(CODE_34, LATER)],
    "Handshake 9": [NOW] * 4,
    "Handshake, cut": [NOW] * 4,
    "Authenticate": [LATER] * 3 + [(CHALLENGE, State.AUTHENTICATE)],
    "Authenticate 0": [LATER] * 3 + [(CHALLENGE, State.AUTHENTICATE)],
    "Authenticate 9": [LATER] * 3 + [NOW],
    "Authenticate, cut": [LATER] * 3 + [NOW],
    "Metadata": [LATER] * 3 + [(CODE_34, LATER)],
    "Metadata, cut": [LATER] * 3 + [NOW],
    "Metadata 99": [LATER] * 3 + [NOW],
    "Metadata, large": [LATER] * 4,
    "Produce": [LATER] * 3 + [(CODE_34, LATER)],
    "Produce, acks 0": [LATER] * 3 + [NOW],
    "Envelope": [LATER] * 3 + [NOW],
    "Vote": [LATER] * 3 + [NOW],
    "key 88": [LATER, NOW, NOW, NOW],
    "key -1": [LATER, NOW, NOW, NOW],
    "no header": [LATER, NOW, NOW, NOW],
    "empty": [LATER, NOW, NOW, NOW],
    "random": [LATER, NOW, NOW, NOW],
    "TLS": [LATER, NOW, NOW, NOW],
}
STATES = [State.FIRST, State.HELLO, State.HANDSHAKE, State.AUTHENTICATE]


def test_the_table_has_every_request():
    assert TABLE.keys() == REQUESTS.keys()


@pytest.mark.parametrize("delay_ms", [100, 0])
@pytest.mark.parametrize(
    ("state", "name", "expected"),
    [(state, name, row[number]) for name, row in TABLE.items() for number, state in enumerate(STATES)],
)
def test_each_state_with_each_request(state, name, expected, delay_ms):
    side = in_state(state, delay_ms=delay_ms)
    actions = side.receive(REQUESTS[name], START)
    code, outcome = expected if isinstance(expected, tuple) else (None, expected)
    closes = outcome in (LATER, NOW)
    # A failure: the wait, then the answer, then the close.
    shape = [
        *([WaitUntil] if outcome == LATER and delay_ms else []),
        *([Send] if code is not None else []),
        *([Close] if closes else []),
    ]
    assert [type(action) for action in actions] == shape
    if outcome == LATER and delay_ms:
        assert actions[0] == WaitUntil(1000.1)
    assert side.state is (State.FAILED if closes else outcome)
    if code is not None:
        sent = next(action for action in actions if isinstance(action, Send))
        assert code_of(sent, name) == code


def code_of(sent, name):
    key, version = struct.unpack_from(">hh", REQUESTS[name])
    version = 0 if (key, version) == (API_VERSIONS_KEY, 99) else version
    response = read(sent, key, version)
    if name in ("Authenticate", "Authenticate 0"):
        assert (response.error_code, response.error_message) == (0, "")
        return bytes(response.auth_bytes).decode()
    if isinstance(response, m.ApiVersionsResponse) and response.error_code == OK:
        assert {row.api_key for row in response.api_keys} == {api.key for api in APIS.values() if api.served}
    if isinstance(response, m.SaslHandshakeResponse):
        assert response.mechanisms == ([] if response.error_code == CODE_34 else ["TEST", "PLAIN"])
    if isinstance(response, m.MetadataResponse | m.ProduceResponse):
        return CODE_34  # its place is in rows, which these requests have none of
    return response.error_code


@pytest.mark.parametrize("key", sorted({api.key for api in APIS.values() if api.served} - {36}))
def test_every_api_is_answered_in_its_own_form_while_tokens_are_expected(key):
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        # Without acks a Produce is not answered.
        request = produce(-1) if key == 0 else frame_of(m.request_class(api)(), version)
        wait, sent, close = in_state(State.AUTHENTICATE).receive(request, START)
        assert (type(wait), type(close)) == (WaitUntil, Close)
        assert isinstance(read(sent, key, 9 if key == 0 else version), m.response_class(api))


def test_no_frame_is_taken_when_none_is_expected():
    failed = made()
    failed.receive(metadata(), START)
    computing = in_state(State.AUTHENTICATE)
    computing.receive(authenticate(b"compute"), START)
    for side in (failed, computing, logged_in()):
        with pytest.raises(ValueError, match="no frame is expected"):
            side.receive(metadata(), START)
    with pytest.raises(ValueError, match="nothing is computed"):
        failed.computed(b"done", START)


@pytest.mark.parametrize("state", [*STATES, State.RAW, State.BAD_MECHANISM])
def test_a_frame_of_a_bad_length_fails_after_the_delay_without_an_answer(state):
    side = in_state(state)
    assert side.bad_length("a frame claims 524289 bytes", START) == [
        WaitUntil(1000.1),
        Close("a frame claims 524289 bytes"),
    ]
    assert side.state is State.FAILED


# -- tokens


@pytest.mark.parametrize("version", [0, 1, 2])
def test_tokens_are_answered_until_the_login_is_complete(version):
    side = in_state(State.AUTHENTICATE)
    (sent,) = side.receive(authenticate(b"more", version), START)
    response = read(sent, 36, version)
    assert (response.error_code, response.error_message, bytes(response.auth_bytes)) == (0, "", b"challenge")
    sent, authenticated = side.receive(authenticate(b"with a token", version), START)
    assert bytes(read(sent, 36, version).auth_bytes) == b"final"
    assert authenticated == Authenticated(Identity(ALICE, "TEST"))
    assert side.is_complete
    assert not side.is_expired(1e12)


def test_raw_tokens_travel_in_frames_without_a_header():
    side = in_state(State.RAW)
    assert side.receive(memoryview(b"more"), START) == [Send(b"\0\0\0\x09challenge")]
    assert side.receive(memoryview(b"done"), START) == [
        Send(b"\0\0\0\0"),
        Authenticated(Identity(ALICE, "TEST")),
    ]


def test_bytes_behind_a_token_are_ignored():
    side = in_state(State.AUTHENTICATE)
    assert len(side.receive(memoryview(bytes(authenticate(b"done")) + b"more"), START)) == 2


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"wrong", GENERIC.format("authentication")),
        (b"wrong, says why", "the message"),
        (b"compute, wrong", GENERIC.format("authentication")),
        (b"x" * 1001, GENERIC.format("authentication")),
    ],
)
def test_a_wrong_token_is_answered_after_the_delay(token, message):
    for version in (0, 1, 2):
        side = in_state(State.AUTHENTICATE)
        actions = side.receive(authenticate(token, version), START)
        if isinstance(actions[0], Run):
            actions = side.computed(actions[0].function(), START)
        wait, sent, close = actions
        response = read(sent, 36, version)
        assert (response.error_code, response.error_message, bytes(response.auth_bytes)) == (58, message, b"")
        assert response.session_lifetime_ms == 0
        assert wait == WaitUntil(1000.1)
        assert close.cause in ("the cause", "a token of 1001 bytes")
    # A raw token has no answer. What has no message of its own does not wait either.
    waits = [WaitUntil(1000.1)] if message == "the message" else []
    raw = in_state(State.RAW)
    actions = raw.receive(memoryview(token), START)
    if isinstance(actions[0], Run):
        actions = raw.computed(actions[0].function(), START)
    assert actions == [*waits, close]


def test_a_broken_token_closes_at_once():
    assert in_state(State.AUTHENTICATE).receive(authenticate(b"broken"), START) == [Close("the cause")]
    assert in_state(State.RAW).receive(memoryview(b"broken"), START) == [Close("the cause")]


@pytest.mark.parametrize("state", [State.AUTHENTICATE, State.RAW])
def test_a_computation_happens_between_token_and_answer(state):
    side = in_state(state)
    token = authenticate(b"compute") if state is State.AUTHENTICATE else memoryview(b"compute")
    (run,) = side.receive(token, START)
    assert side.state is State.COMPUTING
    sent, authenticated = side.computed(run.function(), START)
    assert isinstance(sent, Send)
    assert authenticated == Authenticated(Identity(ALICE, "TEST"))


@given(
    st.lists(st.one_of(st.sampled_from(list(REQUESTS)), st.binary(max_size=60)), max_size=8),
    st.binary(max_size=30),
)
def test_no_sequence_of_frames_logs_in_without_the_password(frames, garbage):
    side = made()
    sent = (REQUESTS[each] if isinstance(each, str) else memoryview(each) for each in frames)
    for each in [handshake("PLAIN"), authenticate(garbage), *sent]:
        if side.state is State.FAILED:
            break
        actions = side.receive(each, START)
        assert not any(isinstance(action, Authenticated) for action in actions)
        # TEST is another mechanism, which logs in by a word.
        if side._mechanism == "TEST":
            break


# -- sessions that end


@pytest.mark.parametrize(
    ("token", "max_reauth_ms", "lifetime_ms", "expires_at"),
    [
        (b"done", 0, 0, None),
        (b"done", -1, 0, None),
        (b"done", 3000, 3000, 1003.0),
        (b"for a minute", 0, 60_000, 1060.0),
        (b"for a minute", 3000, 3000, 1003.0),
        (b"for a minute", 90_000, 60_000, 1060.0),
        (b"expired", 0, 0, 1000.0),
        (b"expired", 3000, 0, 1000.0),
    ],
)
def test_a_session_ends_with_the_setting_or_the_credential(token, max_reauth_ms, lifetime_ms, expires_at):
    side = in_state(State.AUTHENTICATE, max_reauth_ms=max_reauth_ms)
    sent, (identity,) = side.receive(authenticate(token), START)
    assert read(sent, 36, 2).session_lifetime_ms == lifetime_ms
    assert identity.expires_at == expires_at
    assert side.is_expired(1000.0) is (expires_at == 1000.0)
    assert side.is_expired(1_000_000.0) is (expires_at is not None)
    # A client of handshake version 0 cannot know, and is cut off all the same.
    raw = in_state(State.RAW, max_reauth_ms=max_reauth_ms)
    assert raw.receive(memoryview(token), START)[1].identity.expires_at == expires_at


def test_a_challenge_has_no_lifetime():
    side = in_state(State.AUTHENTICATE, max_reauth_ms=3000)
    assert read(side.receive(authenticate(b"more"), START)[0], 36, 2).session_lifetime_ms == 0


def test_an_identity_remembers_a_delegation_token():
    assert logged_in(b"delegated")._identity.is_token


# -- re-authentication


@pytest.mark.parametrize("version", [0, 1])
def test_a_client_logs_in_again(version):
    side = logged_in(max_reauth_ms=3000)
    later = Moment(1002.5, WALL_MS + 2500)
    (sent,) = again(side, handshake(version=version), later)
    assert read(sent, 17, version).error_code == 0
    assert not side.is_complete
    token = authenticate(b"done") if version else memoryview(b"done")
    _, authenticated = side.receive(token, later)
    assert authenticated.identity == Identity(ALICE, "TEST", expires_at=1005.5)
    assert side.is_complete
    assert not side.is_expired(1005.4)
    assert side.is_expired(1005.5)


def test_only_a_session_that_ends_is_renewed_and_not_twice_within_a_second():
    assert again(logged_in(), handshake()) is None
    side = logged_in(max_reauth_ms=3000)
    for seconds, begins in [(1000.0, True), (1000.9, False), (1001.0, True), (1001.5, False), (1004.0, True)]:
        moment = Moment(seconds, WALL_MS)
        began = again(side, handshake(), moment)
        assert (began is not None) is begins, seconds
        if began is not None:
            side.receive(authenticate(b"done"), moment)
        assert side.is_complete


def test_another_mechanism_fails_at_the_next_token():
    side = logged_in(max_reauth_ms=3000)
    (sent,) = again(side, handshake("PLAIN"))
    assert read(sent, 17, 1).error_code == 0
    assert side.receive(authenticate(b"\0alice\0alice-secret"), START) == [
        WaitUntil(1000.1),
        Close("SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of mechanism 'TEST'"),
    ]


def test_a_mechanism_that_is_not_enabled_closes_at_once():
    side = logged_in(max_reauth_ms=3000)
    assert again(side, handshake("GSSAPI")) == [Close("SASL mechanism 'GSSAPI' is not enabled")]


def test_another_principal_is_refused_in_kafkas_words():
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    side = logged_in(max_reauth_ms=3000)
    again(side, handshake())
    wait, sent, close = side.receive(authenticate(b"bob"), START)
    response = read(sent, 36, 2)
    assert (response.error_code, response.error_message) == (58, text)
    assert (wait, close) == (WaitUntil(1000.1), Close(text))
    raw = logged_in(max_reauth_ms=3000)
    again(raw, handshake(version=0))
    assert raw.receive(memoryview(b"bob"), START) == [WaitUntil(1000.1), Close(text)]


def test_a_wrong_token_and_another_request_fail_as_at_the_first_login():
    side = logged_in(max_reauth_ms=3000)
    again(side, handshake())
    _, sent, _ = side.receive(authenticate(b"wrong"), START)
    assert read(sent, 36, 2).error_message == GENERIC.format("re-authentication")
    side = logged_in(max_reauth_ms=3000)
    again(side, handshake())
    wait, sent, close = side.receive(hello(), START)
    assert read(sent, 18, 3).error_code == 34
    assert (wait, type(close)) == (WaitUntil(1000.1), Close)
    # A failed connection has no identity any more.
    assert not side.is_expired(1e12)


@pytest.mark.parametrize("version", [0, 1])
def test_a_token_that_is_too_long_is_not_copied(version):
    settings = SaslSettings({"PLAIN": SaslMechanism(lambda: PlainServer({"alice": "pw"}), 5000)})
    made = Authenticator(settings, ANSWERS)
    shake = [frame_of(m.SaslHandshakeRequest(mechanism="PLAIN"), each) for each in (0, 1)]
    made.receive(shake[1], START)
    password = m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0pw")
    made.receive(frame_of(password, 1), START)
    assert made.is_complete
    made.reauthenticate(read_request_header(shake[version]), shake[version], START)
    token = bytes(10 << 20)
    frame = memoryview(token)
    if version:
        frame = frame_of(m.SaslAuthenticateRequest(auth_bytes=token), 1)
    tracemalloc.start()
    actions = made.receive(frame, START)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(actions[-1], Close)
    assert most_bytes < len(token) // 10
