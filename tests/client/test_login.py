"""A peer whose listener wants a login: before the first request, again in time, and when it fails."""

import logging
import random
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.server.before_login import AnswersBeforeLogin
from barnabas.broker.server.login import FailedAuthentication, Login
from barnabas.client.login import OwnLogin
from barnabas.client.remote import RemotePeer
from barnabas.controller.store.paths import Endpoint
from barnabas.security.sasl.authenticator import Authenticator, SaslMechanism, SaslSettings
from barnabas.security.sasl.client import Credentials
from barnabas.security.sasl.oauth import OAuthServer, UnsecuredValidator, unsecured_token
from barnabas.security.sasl.oauth_login import AccessTokens
from barnabas.security.sasl.plain import PlainServer
from barnabas.security.sasl.scram import MECHANISMS, make_credential, salted_password
from barnabas.security.sasl.scram_exchange import ScramServer
from barnabas.wire import messages as m
from barnabas.wire.errors import PeerLost
from barnabas.wire.frame import FrameReader, read_request_header, response_prefix
from barnabas.world.net import ConnectionLost
from tests.broker.clock import now_ms
from tests.broker.memnet import MemNet

HERE = Endpoint("BROKERS", "127.0.0.1", 9092)
FIXED = {7: 3}  # of ControlledShutdown
USER = {"username": "broker", "password": "broker-secret"}
OAUTH = {"unsecuredLoginStringClaim_sub": "broker", "unsecuredLoginLifetimeSeconds": "100"}
SHA_512 = MECHANISMS[2]
CREDENTIAL = make_credential(salted_password(b"broker-secret", b"salt", 4096, SHA_512), b"salt", 4096, SHA_512)


async def in_thread(function, *arguments):
    """As in a thread: it takes a moment."""
    await trio.sleep(0.005)
    return function(*arguments)


async def no_wait(pending_bytes):
    """There is always memory."""


class Broker:
    """Another broker's listener: logins by our authenticator, and an answer to each ControlledShutdown."""

    def __init__(self, net, max_reauth_ms=0):
        self.net = net
        self.logins = []  # who logged in, each time
        self.answered = 0
        mechanisms = {
            "PLAIN": SaslMechanism(lambda: PlainServer({"broker": "broker-secret"}), max_reauth_ms),
            "OAUTHBEARER": SaslMechanism(lambda: OAuthServer(UnsecuredValidator({})), max_reauth_ms),
            SHA_512.name: SaslMechanism(
                lambda: ScramServer(SHA_512, {"broker": CREDENTIAL}.get, {}.get, "server", b""), max_reauth_ms
            ),
        }
        self.settings = SaslSettings(mechanisms)

    async def run(self, task_status=trio.TASK_STATUS_IGNORED):
        listener = await self.net.listen("127.0.0.1", 9092, backlog=1)
        async with trio.open_nursery() as nursery:
            task_status.started()
            await listener.serve(self._serve, nursery)

    async def _serve(self, stream):
        authenticator = Authenticator(self.settings, AnswersBeforeLogin(SimpleNamespace(), "BROKERS"))
        login, reader = Login(authenticator, stream, now_ms, in_thread, no_wait), FrameReader(1000)
        with suppress(ConnectionLost, FailedAuthentication), closing(stream):
            await login.run(reader)
            self.logins.append(login.identity.principal.name)
            while True:
                while (frame := reader.next_frame()) is None:
                    data = await stream.receive_some(1000)
                    if not data:
                        return
                    reader.feed(data)
                await self._answer(stream, login, reader, frame)

    async def _answer(self, stream, login, reader, frame):
        header = read_request_header(frame)
        if header.api_key == 17 and await login.run_again(header, frame, reader):
            self.logins.append(login.identity.principal.name)
            return
        login.check_session()
        self.answered += 1
        body = m.encode(m.ControlledShutdownResponse(), header.api_version)
        await stream.send_all(response_prefix(len(body), header.correlation_id, 1) + body)


def peer(net, mechanism="PLAIN", options=USER, *, versions=FIXED, **more):
    world = SimpleNamespace(rng=random.Random(1), now_ms=now_ms, in_thread=in_thread)
    other = RemotePeer(net, lambda: HERE, "1", versions)
    other.logins = {"BROKERS": OwnLogin(world, Credentials(mechanism, options), **more)}
    return other


async def asked(peer):
    return await peer.ask(m.ControlledShutdownRequest(broker_id=1, broker_epoch=5), 1000)


@pytest.fixture
async def broker(nursery):
    broker = Broker(MemNet())
    await nursery.start(broker.run)
    return broker


@pytest.mark.parametrize(("mechanism", "options"), [("PLAIN", USER), ("SCRAM-SHA-512", USER), ("OAUTHBEARER", OAUTH)])
async def test_a_login_comes_before_the_first_request(broker, autojump_clock, mechanism, options):
    other = peer(broker.net, mechanism, options)
    for _ in range(3):
        assert await asked(other) == m.ControlledShutdownResponse()
    assert broker.logins == ["broker"]
    assert broker.answered == 3


async def test_versions_may_be_negotiated_too(broker, autojump_clock):
    assert await asked(peer(broker.net, versions=None)) == m.ControlledShutdownResponse()


@pytest.mark.parametrize(("mechanism", "options"), [("PLAIN", USER), ("SCRAM-SHA-512", USER), ("OAUTHBEARER", OAUTH)])
async def test_a_session_is_renewed_before_it_ends(nursery, autojump_clock, mechanism, options):
    broker = Broker(MemNet(), max_reauth_ms=10_000)
    await nursery.start(broker.run)
    other = peer(broker.net, mechanism, options)
    for _ in range(60):
        assert await asked(other) == m.ControlledShutdownResponse()
        await trio.sleep(1)
    # 60 s in sessions of 10 s, of which nine tenths are used.
    assert 6 <= len(broker.logins) <= 8
    assert len(broker.net.connected) == 1


async def test_a_wrong_password_is_logged_once_and_costs_each_request(broker, autojump_clock, caplog):
    other = peer(broker.net, options=USER | {"password": "hunter2"})
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            with pytest.raises(PeerLost, match="the login failed: SASL_AUTHENTICATION_FAILED: 'Authentication failed"):
                await asked(other)
    assert not other.is_connected
    assert broker.answered == 0
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text.startswith("cannot log in at BROKERS://127.0.0.1:9092: SASL_AUTH") for text in logged] == [True]
    assert "hunter2" not in caplog.text


async def test_an_access_token_is_fetched_and_used_again(broker, autojump_clock):
    posted = []

    def post(tokens):
        posted.append(tokens.form)
        token = unsecured_token({"sub": "broker", "exp": now_ms() / 1000 + 50})
        return f'{{"access_token":"{token}"}}'.encode()

    tokens = AccessTokens({"clientId": "broker", "clientSecret": "x"})
    other = peer(broker.net, "OAUTHBEARER", {}, access_tokens=tokens, post=post)
    for _ in range(120):
        assert await asked(other) == m.ControlledShutdownResponse()
        await trio.sleep(1)
    # Each token is used for 40 of its 50 s, and each session ends with its token.
    assert 3 <= len(posted) <= 4
    assert len(broker.net.connected) == 1


async def test_an_authorization_server_that_cannot_be_reached(broker, autojump_clock):
    def post(tokens):
        raise OSError("unreachable")

    tokens = AccessTokens({"clientId": "broker", "clientSecret": "x"})
    other = peer(broker.net, "OAUTHBEARER", {}, access_tokens=tokens, post=post)
    with pytest.raises(PeerLost, match="no access token: unreachable"):
        await asked(other)
