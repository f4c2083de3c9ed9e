"""Logins over a connection: our authenticator behind a stream, our own login in front of it."""

import struct
from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.server.before_login import AnswersBeforeLogin
from barnabas.broker.server.login import FailedAuthentication, Login
from barnabas.client.login import log_in
from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.authenticator import Authenticator, Identity, SaslMechanism, SaslSettings
from barnabas.security.sasl.client import Credentials, LoggedIn
from barnabas.security.sasl.exchange import LoginFailed
from barnabas.security.sasl.plain import PlainServer
from barnabas.security.sasl.scram import MECHANISMS
from barnabas.security.sasl.scram_exchange import ScramServer
from barnabas.security.sasl.tokens import DelegationTokens, TokenRules, create_token
from barnabas.wire import messages as m
from barnabas.wire.asking import InFlightRequests
from barnabas.wire.frame import FrameReader, read_request_header
from barnabas.world.net import ConnectionLost
from tests.broker.clock import now_ms
from tests.broker.memnet import MemStream, Pipe
from tests.wire.client_frames import frame_of, response_in

ALICE, BOB = (KafkaPrincipal("User", name) for name in ("alice", "bob"))
USER = {"username": "alice", "password": "alice-secret"}
SHA_256 = MECHANISMS[1]


async def in_thread(function, *arguments):
    """As in a thread: it takes a moment."""
    await trio.sleep(0.005)
    return function(*arguments)


class Server:
    """A connection's task, and its client's end."""

    def __init__(self, *, tokens=None, delay_ms=100, frame_bytes_max=1000):
        tokens = tokens or DelegationTokens(TokenRules(None))
        mechanisms = {
            "PLAIN": SaslMechanism(lambda: PlainServer({"alice": "alice-secret", "bob": "bob-secret"}), 5000),
            SHA_256.name: SaslMechanism(
                lambda: ScramServer(SHA_256, {}.get, lambda name: tokens.login(SHA_256, name), "server", b"salt")
            ),
        }
        self.authenticator = Authenticator(
            SaslSettings(mechanisms, delay_ms), AnswersBeforeLogin(SimpleNamespace(), "SASL_PLAINTEXT")
        )
        one, other = Pipe(), Pipe()
        self.client = MemStream(one, other, "client")
        self.stream = MemStream(other, one, "server")
        self.held = []
        self.login = Login(self.authenticator, self.stream, now_ms, in_thread, self.received)
        self.reader = FrameReader(frame_bytes_max, takes_empty=True)
        self.in_flight = InFlightRequests("client")
        self.answers = FrameReader(1 << 20)
        self.ended = None

    def received(self, pending_bytes):
        self.held.append(pending_bytes)

    async def run(self):
        """As a connection: it closes after a failure."""
        try:
            await self.login.run(self.reader)
            self.ended = "complete"
        except (FailedAuthentication, ConnectionLost) as failure:
            self.ended = failure
            self.stream.close()

    async def ask(self, request, version=1):
        await self.client.send_all(self.in_flight.frame(request, version))
        return self.in_flight.response(await self.frame())

    async def frame(self):
        """The next frame of the server; None when it closes instead."""
        while (frame := self.answers.next_frame()) is None:
            data = await self.client.receive_some(1000)
            if not data:
                return None
            self.answers.feed(data)
        return frame


@pytest.fixture
def server(nursery):
    made = Server()
    nursery.start_soon(made.run)
    return made


async def test_a_login_over_a_connection(server, autojump_clock):
    versions = await server.ask(m.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    assert versions.error_code == 0
    login = Credentials("PLAIN", USER).login(lambda: "", now_ms())
    assert await log_in(server.ask, login, in_thread) == LoggedIn(5000)
    await trio.testing.wait_all_tasks_blocked()
    assert server.ended == "complete"
    assert server.login.identity == Identity(ALICE, "PLAIN", expires_at=pytest.approx(trio.current_time() + 5))


async def test_frames_that_arrived_together_are_not_taken_in_one_step(nursery):
    """A client that logs in with OAUTHBEARER may send thousands of wrong tokens at once."""
    server, steps = Server(), []

    def receive(frame, moment):
        steps.append("frame")
        return []

    async def others():
        while steps.count("frame") < 3:
            steps.append("others")
            await trio.lowlevel.checkpoint()

    server.login._authenticator = SimpleNamespace(is_complete=False, receive=receive)
    await server.client.send_all(3 * ((1).to_bytes(4, "big") + b"x"))
    nursery.start_soon(server.login.run, server.reader)
    await others()
    first, _, third = [number for number, step in enumerate(steps) if step == "frame"]
    # In each turn of the event loop its tasks run in any order: two frames may follow each other.
    assert "others" in steps[first:third]


async def test_a_wrong_password_is_answered_after_the_delay_and_closes(server, autojump_clock):
    began_at = trio.current_time()
    login = Credentials("PLAIN", USER | {"password": "wrong"}).login(lambda: "", now_ms())
    with pytest.raises(LoginFailed, match="Invalid username or password"):
        await log_in(server.ask, login, in_thread)
    assert trio.current_time() == pytest.approx(began_at + 0.1)
    assert await server.frame() is None
    assert str(server.ended) == "Authentication failed: Invalid username or password"
    assert server.login.identity is None


async def test_frames_that_arrive_byte_by_byte_and_together(server, autojump_clock):
    frames = [
        InFlightRequests(None).frame(m.SaslHandshakeRequest(mechanism="PLAIN"), 1),
        InFlightRequests(None).frame(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 1),
    ]
    for byte in frames[0]:
        await server.client.send_all(bytes([byte]))
        await trio.testing.wait_all_tasks_blocked()
    assert await server.frame() is not None
    # Each byte of the first frame was counted, while it was not whole.
    assert server.held == list(range(1, len(frames[0])))
    await server.client.send_all(frames[1] + b"\0\0\0\x01x")
    assert await server.frame() is not None
    await trio.testing.wait_all_tasks_blocked()
    # What follows the login is for the ordinary requests.
    assert bytes(server.reader.next_frame()) == b"x"


@pytest.mark.parametrize("size", [-1, 0, 1001, 0x16030100])
async def test_a_bad_length_closes_after_the_delay(server, size, autojump_clock):
    began_at = trio.current_time()
    await server.client.send_all(struct.pack(">i", size) + b"\x03" * 100)
    assert await server.frame() is None
    assert trio.current_time() == pytest.approx(began_at + 0.1)
    assert isinstance(server.ended, FailedAuthentication)


async def test_a_client_that_goes_ends_the_login(server, autojump_clock):
    server.client.close()
    await trio.testing.wait_all_tasks_blocked()
    assert isinstance(server.ended, ConnectionLost)


async def test_a_client_that_goes_before_a_held_back_answer(server, autojump_clock):
    await server.client.send_all(server.in_flight.frame(m.SaslHandshakeRequest(mechanism="NONE"), 1))
    await trio.testing.wait_all_tasks_blocked()
    server.client.close()
    await trio.sleep(1)
    assert isinstance(server.ended, ConnectionLost)


async def test_a_delegation_token_logs_in_with_work_in_a_thread(nursery, autojump_clock):
    tokens = DelegationTokens(TokenRules("secret"))
    tokens.put(create_token(tokens.rules, BOB, BOB, [], 60_000, "id", now_ms()))
    login = tokens.login(SHA_256, "id")
    options = {"username": "id", "password": login.password.decode(), "tokenauth": "true"}
    for _ in range(2):
        server = Server(tokens=tokens)
        nursery.start_soon(server.run)
        own = Credentials(SHA_256.name, options).login(lambda: "client", now_ms())
        lifetime_ms = (await log_in(server.ask, own, in_thread)).session_lifetime_ms
        assert 59_900 < lifetime_ms <= 60_000
        await trio.testing.wait_all_tasks_blocked()
        assert server.login.identity.principal == BOB
        assert server.login.identity.is_token


async def test_a_login_again_among_ordinary_requests(server, autojump_clock):
    credentials = Credentials("PLAIN", USER)
    await log_in(server.ask, credentials.login(lambda: "", now_ms()), in_thread)
    await trio.sleep(4)
    again = credentials.login(lambda: "", now_ms())
    frame = frame_of(again.begin(), 1)
    taken = []

    async def ask(request):
        # The loop of ordinary requests has found the SaslHandshake; the other requests are read by the login.
        if isinstance(request, m.SaslHandshakeRequest):
            return response_in(await server.frame(), 17, 1)
        return await server.ask(request)

    async def run_again():
        taken.append(await server.login.run_again(read_request_header(frame), frame, server.reader))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_again)
        assert await log_in(ask, again, in_thread) == LoggedIn(5000)
    assert server.login.identity.expires_at == pytest.approx(trio.current_time() + 5)
    # Within a second of that one another SaslHandshake is an ordinary request.
    await run_again()
    assert taken == [True, False]
    server.login.check_session()
    await trio.sleep(5.1)
    with pytest.raises(FailedAuthentication, match="the session has ended"):
        server.login.check_session()


async def test_a_client_that_goes_during_a_login_again(server, autojump_clock):
    await log_in(server.ask, Credentials("PLAIN", USER).login(lambda: "", now_ms()), in_thread)
    frame = frame_of(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    server.client.close()
    with pytest.raises(ConnectionLost):
        await server.login.run_again(read_request_header(frame), frame, server.reader)
