"""Our own login against our own authenticator, over frames."""

import random
from types import SimpleNamespace

import pytest

from barnabas.broker.server.before_login import AnswersBeforeLogin
from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.authenticator import Authenticator, Close, Moment, SaslMechanism, SaslSettings, Send
from barnabas.security.sasl.client import Credentials, LoggedIn, SaslLogin, log_in_again_after_ms
from barnabas.security.sasl.exchange import Compute, LoginFailed
from barnabas.security.sasl.oauth import OAuthServer, UnsecuredValidator
from barnabas.security.sasl.plain import PlainClient, PlainServer
from barnabas.security.sasl.scram import MECHANISMS, make_credential, salted_password
from barnabas.security.sasl.scram_exchange import ScramServer, TokenLogin
from barnabas.wire import messages as m
from barnabas.wire.frame import read_request_header
from tests.wire.client_frames import frame_of, response_in

WALL_MS = 1_700_000_000_000
SALT = b"some salt"
PASSWORD = "=pässword,"
SALTED = {mechanism: salted_password(PASSWORD.encode(), SALT, 4096, mechanism) for mechanism in MECHANISMS.values()}
OWNER = KafkaPrincipal("User", "owner")
ANSWERS = AnswersBeforeLogin(SimpleNamespace(), "SASL_PLAINTEXT")


def scram(mechanism):
    credential = make_credential(SALTED[mechanism], SALT, 4096, mechanism)
    token = TokenLogin(OWNER, WALL_MS + 5000, PASSWORD.encode(), None, lambda credential: None)
    return lambda: ScramServer(mechanism, {"bro=,ker": credential}.get, {"token": token}.get, "server", b"salt")


def authenticator(max_reauth_ms=0):
    mechanisms = {mechanism.name: SaslMechanism(scram(mechanism), max_reauth_ms) for mechanism in MECHANISMS.values()}
    mechanisms["PLAIN"] = SaslMechanism(lambda: PlainServer({"bro=,ker": PASSWORD}), max_reauth_ms)
    mechanisms["OAUTHBEARER"] = SaslMechanism(lambda: OAuthServer(UnsecuredValidator({})), max_reauth_ms)
    return Authenticator(SaslSettings(mechanisms), ANSWERS)


def at(seconds):
    return Moment(seconds, WALL_MS + round(seconds * 1000))


def computed(side, actions, moment):
    """Actions after the work for a thread is done."""
    while not any(isinstance(action, Send | Close) for action in actions):
        actions = side.computed(actions[0].function(), moment)
    return actions


def converse(login, side, moment, request=None):
    """The end of a login; its failures are LoginFailed or the cause for which the authenticator closes."""
    request = request or login.begin()
    while True:
        actions = computed(side, side.receive(frame_of(request, 1), moment), moment)
        sent = next((action for action in actions if isinstance(action, Send)), None)
        if sent is None:
            return actions[-1]
        response = response_in(sent.frame[4:], request.API_KEY, 1)
        step = login.take(response)
        request = step.then(step.run()) if isinstance(step, Compute) else step
        if isinstance(request, LoggedIn):
            return request


USER = {"username": "bro=,ker", "password": PASSWORD}
TOKEN = {"username": "token", "password": PASSWORD, "tokenauth": "TRUE"}
OAUTH = {"unsecuredLoginStringClaim_sub": "broker", "unsecuredLoginLifetimeSeconds": "60"}
LOGINS = [
    ("PLAIN", USER, "bro=,ker", None),
    ("SCRAM-SHA-256", USER, "bro=,ker", None),
    ("SCRAM-SHA-512", USER, "bro=,ker", None),
    ("SCRAM-SHA-256", TOKEN, "owner", 5000),
    ("SCRAM-SHA-512", TOKEN, "owner", 5000),
    ("OAUTHBEARER", OAUTH, "broker", 60_000),
]


@pytest.mark.parametrize(("mechanism", "options", "name", "lifetime_ms"), LOGINS)
def test_each_mechanism_logs_in_and_again(mechanism, options, name, lifetime_ms):
    side = authenticator()
    credentials = Credentials(mechanism, options)
    login = credentials.login(lambda: "client", WALL_MS)
    assert converse(login, side, at(0)) == LoggedIn(lifetime_ms)
    assert side.is_complete
    if lifetime_ms is not None:
        again = credentials.login(lambda: "client", WALL_MS + 2000)
        handshake = frame_of(again.begin(), 1)
        (sent,) = side.reauthenticate(read_request_header(handshake), handshake, at(2))
        request = again.take(response_in(sent.frame[4:], 17, 1))
        left_ms = lifetime_ms if mechanism == "OAUTHBEARER" else lifetime_ms - 2000
        assert converse(again, side, at(2), request) == LoggedIn(left_ms)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_reported_without_the_password(mechanism):
    login = Credentials(mechanism, USER | {"password": "hunter2"}).login(lambda: "client", WALL_MS)
    with pytest.raises(LoginFailed, match="SASL_AUTHENTICATION_FAILED: 'Authentication failed") as caught:
        converse(login, authenticator(), at(0))
    assert "hunter2" not in str(caught.value)


def test_a_refused_access_token_is_acknowledged():
    login = Credentials("OAUTHBEARER", OAUTH | {"unsecuredLoginLifetimeSeconds": "-5"}).login(lambda: "", WALL_MS)
    with pytest.raises(LoginFailed, match="invalid_token"):
        converse(login, authenticator(), at(0))


def test_a_mechanism_that_the_peer_does_not_have():
    with pytest.raises(LoginFailed, match="GSSAPI is answered with UNSUPPORTED_SASL_MECHANISM; the peer has 'SCRAM"):
        converse(SaslLogin("GSSAPI", PlainClient("a", "b")), authenticator(), at(0))


@pytest.mark.parametrize(
    ("mechanism", "options", "why"),
    [
        ("PLAIN", {"username": "a"}, "not both set"),
        ("SCRAM-SHA-256", {"password": "hunter2"}, "not both set"),
        ("OAUTHBEARER", {}, "unsecuredLoginStringClaim_sub"),
        ("GSSAPI", USER, "only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
    ],
)
def test_options_that_do_not_suffice(mechanism, options, why):
    with pytest.raises(LoginFailed, match=why) as caught:
        Credentials(mechanism, options).login(lambda: "client", WALL_MS)
    assert "hunter2" not in str(caught.value)


def test_an_answer_out_of_place_fails_the_login():
    login = Credentials("PLAIN", USER).login(lambda: "", WALL_MS)
    for response in (m.SaslAuthenticateResponse(), m.MetadataResponse()):
        with pytest.raises(LoginFailed, match="is no answer"):
            login.take(response)
    login.take(m.SaslHandshakeResponse())
    with pytest.raises(LoginFailed, match="is no answer"):
        login.take(m.SaslHandshakeResponse())


def test_a_peer_that_says_success_and_proves_nothing_is_refused():
    login = Credentials("SCRAM-SHA-256", USER).login(lambda: "client", WALL_MS)
    login.take(m.SaslHandshakeResponse())
    # An empty token with error code 0, as a peer that knows no password would answer.
    with pytest.raises(LoginFailed, match="malformed"):
        login.take(m.SaslAuthenticateResponse(auth_bytes=b""))


def test_a_client_logs_in_again_before_the_session_ends():
    rng = random.Random(1)
    shares = [log_in_again_after_ms(1000, rng) for _ in range(1000)]
    assert 850 <= min(shares) < 860
    assert 940 < max(shares) <= 950


def test_credentials_hide_the_password():
    assert repr(Credentials("PLAIN", USER)) == "Credentials(PLAIN)"
