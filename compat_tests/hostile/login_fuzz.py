"""Fuzzing of logins in one process: streams of bytes for the authenticator, broken TLS records for `TlsStream`.

A stream is mutated from a corpus, which begins with whole logins of every mechanism and is extended by each stream that
reaches a line of `TRACED` that none has reached. A finding is an exception, a frame whose length is wrong, an identity
without its secret, a step above STEP_SECONDS_MAX, or data of TLS other than what the peer encrypted.
"""

import json
import pathlib
import random
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

import trio

from barnabas.broker.server.before_login import AnswersBeforeLogin
from barnabas.security.sasl import authenticator, exchange, oauth, plain, scram, scram_exchange
from barnabas.security.sasl.authenticator import (
    Authenticated,
    Authenticator,
    Close,
    Moment,
    Run,
    SaslMechanism,
    SaslSettings,
    Send,
)
from barnabas.security.sasl.exchange import Challenge, Compute
from barnabas.security.sasl.oauth import OAuthServer, UnsecuredValidator
from barnabas.security.sasl.plain import PlainServer
from barnabas.security.sasl.scram import ITERATIONS_MIN, MECHANISMS, make_credential, salted_password
from barnabas.security.sasl.scram_exchange import ScramClient, ScramServer
from barnabas.wire import frame
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.frame import FrameReader, read_request_header
from barnabas.world.net import ConnectionLost, copied_into
from barnabas.world.tls import TlsStream, accept_tls
from compat_tests import raw
from compat_tests.secured import PASSWORD, SALT, USER, Certificates, unsecured_token

CORPUS = pathlib.Path(__file__).parent / "login_corpus.json"
TRACED = {module.__file__ for module in (authenticator, exchange, oauth, plain, scram, scram_exchange, frame)}
STREAM_BYTES_MAX = 1 << 16
CORPUS_MAX = 2000
ATTEMPTS = 3
STEP_SECONDS_MAX = 0.05  # of processor time: ten times what one step may take, for a machine that is busy
NONCE = "of-the-server"
TOKEN_SECONDS = 3e9  # the corpus is kept for years
ANSWERS = AnswersBeforeLogin(SimpleNamespace(), "SASL_PLAINTEXT")  # type: ignore[arg-type]  # it serves no request
INTERESTING = (0, 1, 2, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**32 - 1)
WORDS = (
    b"\0",
    b"\x01",
    b"\xff",
    b"n,,",
    b"r=",
    b"p=",
    b"c=biws",
    b",",
    b"=2C",
    b"=3D",
    b"auth=Bearer ",
    b"tokenauth=true",
)


class Finding(Exception):
    """What should not have happened."""


class SlowStep(Finding):
    """A step above STEP_SECONDS_MAX."""


def fuzz(minutes: float, seed: int, keep: pathlib.Path = CORPUS) -> int:
    """Fuzz for so long, one stream after the other; the exit status. The corpus is read from `keep`, and written."""
    chance = random.Random(seed)
    corpus = [bytes.fromhex(each) for each in json.loads(keep.read_text())] if keep.exists() else []
    corpus = corpus or list(whole_logins())
    reached: set[tuple[str, int]] = set()
    for each in corpus:
        reached |= lines_of(each)
    began, streams, records = time.monotonic(), 0, 0
    tls = TlsFuzz(chance)
    while time.monotonic() - began < minutes * 60:
        stream = mutated(chance, corpus)
        new = lines_of(stream) - reached
        if new and len(corpus) < CORPUS_MAX:
            reached |= new
            corpus.append(stream)
        streams += 1
        if streams % 20 == 0:
            trio.run(tls.strike)
            records += 1
        if streams % 5000 == 0:
            print(
                f"{time.monotonic() - began:.0f} s: {streams} streams, {records} of TLS, {len(reached)} lines",
                flush=True,
            )
    keep.write_text(json.dumps(sorted({each.hex() for each in corpus}), indent=0) + "\n")
    print(f"no finding: {streams} streams, {records} of TLS, {len(corpus)} in the corpus, {len(reached)} lines")
    return 0


# -- streams


def frame_of(request: m.Message, version: int) -> bytes:
    return raw.frame_of(request, version, "fuzz", 7)


def token_frame(token: bytes, version: int = 1) -> bytes:
    return frame_of(m.SaslAuthenticateRequest(auth_bytes=token), version)


def whole_logins() -> Iterator[bytes]:
    """Logins that succeed, in both handshake versions, with ApiVersions before and a second login behind."""
    hello = frame_of(m.ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 3)
    tokens = {
        "PLAIN": [f"\0{USER}\0{PASSWORD}".encode()],
        "SCRAM-SHA-256": scram_tokens(),
        "OAUTHBEARER": [f"n,,\1auth=Bearer {unsecured_token(USER, TOKEN_SECONDS)}\1\1".encode()],
    }
    for mechanism, said in tokens.items():
        for version in (0, 1, 2):
            login = frame_of(m.SaslHandshakeRequest(mechanism=mechanism), 1)
            login += b"".join(token_frame(token, version) for token in said)
            yield hello + login + login
        old = frame_of(m.SaslHandshakeRequest(mechanism=mechanism), 0)
        yield old + b"".join(struct.pack(">i", len(token)) + token for token in said)
    for request, version in ((m.MetadataRequest(topics=[]), 9), (m.ProduceRequest(acks=0, topic_data=[]), 9)):
        yield frame_of(m.SaslHandshakeRequest(mechanism="PLAIN"), 1) + frame_of(request, version)


@cache
def scram_tokens() -> list[bytes]:
    """Both messages of a client; the server's nonce is the same in every exchange here."""
    client = ScramClient(MECHANISMS[1], USER, PASSWORD, "mine")
    first = client.begin()
    challenge = new_scram_server().evaluate(first, 0)
    if not isinstance(challenge, Challenge):
        raise Finding(f"{first!r} is answered with {challenge}")
    proving = client.evaluate(challenge.token)
    if not isinstance(proving, Compute):
        raise Finding(f"{challenge} is answered with {proving}")
    return [first, proving.then(proving.run())]


def mutated(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A stream of the corpus with one to eight changes."""
    data = bytearray(chance.choice(corpus))
    for _ in range(1 + int(chance.expovariate(0.6)) % 8):
        chance.choice(CHANGES)(chance, data, corpus)
    return bytes(data[:STREAM_BYTES_MAX])


def _flip(chance: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _number(chance: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    layout = chance.choice(("B", "H", "I"))
    size = struct.calcsize(layout)
    if len(data) >= size:
        value = chance.choice(INTERESTING) & ((1 << 8 * size) - 1)
        struct.pack_into(f">{layout}", data, chance.randrange(len(data) - size + 1), value)


def _cut(chance: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = chance.randrange(len(data) + 1)
    del data[start : start + chance.choice((1, 2, 4, 16, 100))]


def _insert(chance: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    position = chance.randrange(len(data) + 1)
    data[position:position] = chance.choice((chance.choice(WORDS), chance.randbytes(chance.randrange(20))))


def _splice(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = chance.choice(corpus)
    data[chance.randrange(len(data) + 1) :] = other[chance.randrange(len(other) + 1) :]


def _frames(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    """Move, repeat or drop whole frames, or put one of another stream among them."""
    frames = cut_frames(data)
    chance.choice((chance.shuffle, lambda rows: rows.append(chance.choice(rows)), lambda rows: rows.pop()))(frames)
    others = cut_frames(chance.choice(corpus))
    frames.insert(chance.randrange(len(frames) + 1), chance.choice(others))
    data[:] = b"".join(frames)


def _resize(chance: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Make the lengths fit again, so that what lies behind them is reached."""
    frames = [bytearray(each) for each in cut_frames(data)]
    for each in frames:
        if len(each) >= 4:
            struct.pack_into(">i", each, 0, len(each) - 4)
    data[:] = b"".join(frames)


CHANGES: tuple[Callable[[random.Random, bytearray, Sequence[bytes]], None], ...] = (
    *(_flip, _number, _cut, _insert, _splice, _frames),
    *(_resize, _resize),
)


def cut_frames(data: bytes | bytearray) -> list[bytes]:
    """The frames of a stream, as far as their lengths make sense; at least one."""
    frames, position = [], 0
    while position + 4 <= len(data):
        size = struct.unpack_from(">i", data, position)[0]
        end = position + 4 + size if 0 <= size <= len(data) else len(data)
        frames.append(bytes(data[position:end]))
        position = end
    return frames or [bytes(data)]


# -- the authenticator

# What a stream must have in it to log in. Anyone can make a token without a signature.
SECRETS: dict[str, Callable[[], bytes]] = {
    "PLAIN": PASSWORD.encode,
    "SCRAM-SHA-256": lambda: scram_tokens()[1].rpartition(b",p=")[2],
    "OAUTHBEARER": bytes,
}

SALTED = salted_password(PASSWORD.encode(), SALT, ITERATIONS_MIN, MECHANISMS[1])
CREDENTIAL = make_credential(SALTED, SALT, ITERATIONS_MIN, MECHANISMS[1])


def new_scram_server() -> ScramServer:
    return ScramServer(MECHANISMS[1], {USER: CREDENTIAL}.get, lambda _: None, NONCE, SALT)


def new_authenticator() -> Authenticator:
    mechanisms = {
        "PLAIN": SaslMechanism(lambda: PlainServer({USER: PASSWORD}), 1000),
        "SCRAM-SHA-256": SaslMechanism(new_scram_server),
        "OAUTHBEARER": SaslMechanism(lambda: OAuthServer(UnsecuredValidator({}))),
    }
    return Authenticator(SaslSettings(mechanisms), ANSWERS)


def lines_of(stream: bytes) -> set[tuple[str, int]]:
    """The lines of TRACED that a stream reaches. Raises Finding."""
    reached: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        play(stream)
    except Finding:
        raise
    except Exception as error:
        raise Finding(f"{error!r} for {stream.hex()}") from error
    finally:
        sys.settrace(None)
    return reached


def play(stream: bytes) -> None:
    """What a connection does with these bytes, until it is closed or they end. Raises Finding."""
    # Garbage collection is no step of a login, and the machine may be busy: only what is slow each time is slow.
    for _ in range(ATTEMPTS - 1):
        with suppress(SlowStep):
            return play_once(stream)
    return play_once(stream)


def play_once(stream: bytes) -> None:
    """Raises Finding."""
    side, reader = new_authenticator(), FrameReader(1 << 19, takes_empty=True)
    seconds = 1000.0
    reader.feed(stream)
    while True:
        seconds += 0.7  # a second login is allowed after one second
        moment = Moment(seconds, int(time.time() * 1000))
        began = time.process_time()
        try:
            taken = reader.next_frame()
            if taken is None:
                return
            if not side.is_complete:
                actions = side.receive(taken, moment)
            else:
                header = read_request_header(taken)
                actions = side.reauthenticate(header, taken, moment) or []
        except ProtocolViolation as violation:
            if side.is_complete:
                return
            actions = side.bad_length(str(violation), moment)
        if carried_out(side, actions, moment, stream):
            return
        if time.process_time() - began > STEP_SECONDS_MAX:
            raise SlowStep(f"a step of {time.process_time() - began:.3f} s for {stream.hex()}")


def carried_out(side: Authenticator, actions: Sequence[Any], moment: Moment, stream: bytes) -> bool:
    """Whether the connection is closed."""
    while actions and isinstance(actions[0], Run):
        actions = side.computed(actions[0].function(), moment)
    for action in actions:
        match action:
            case Send(data):
                if struct.unpack_from(">i", data)[0] != len(data) - 4:
                    raise Finding(f"an answer with a wrong length: {bytes(data).hex()} for {stream.hex()}")
            case Authenticated(identity):
                if SECRETS[identity.mechanism]() not in stream:
                    raise Finding(f"{identity} without a secret: {stream.hex()}")
            case Close():
                return True
    return False


# -- TLS


class Chunks:
    """A raw stream whose bytes are given; what is sent is kept."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.chunks = list(chunks)
        self.sent = bytearray()
        self.peer_address = "127.0.0.1"
        self.sent_bytes = 0
        self.is_closed = False

    def has_hung_up(self) -> bool:
        return False

    def receive_now(self, max_bytes: int) -> bytes | None:
        return self.chunks.pop(0) if self.chunks else b""

    def receive_into(self, room: memoryview) -> int | None:
        return copied_into(room, self.receive_now(len(room)))

    async def receive_some(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return self.chunks.pop(0) if self.chunks else b""

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        self.sent += data
        return len(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += data

    async def send_slice(self, piece: object) -> None:
        raise Finding("nothing here sends a file")

    def close(self) -> None:
        self.is_closed = True


class Client(NamedTuple):
    """A TLS client in memory."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    tls: ssl.SSLObject


class TlsFuzz:
    """Handshakes and records that are cut, repeated, moved and changed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        folder = pathlib.Path(tempfile.mkdtemp(prefix="login-fuzz-"))
        certificates = Certificates(folder)
        self._server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server.load_cert_chain(certificates.broker_pem)
        self._trusted = certificates.trusted

    def _client(self) -> Client:
        context = ssl.create_default_context(cafile=self._trusted)
        if self._chance.random() < 0.5:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        return Client(incoming, outgoing, client)

    async def strike(self) -> None:
        """A broken handshake, or broken records behind a whole one. Raises Finding."""
        client = self._client()
        if self._chance.random() < 0.5:
            raw = Chunks(self._broken([client.outgoing.read()]))
            with suppress(ConnectionLost):
                await self._accept(raw)
            return
        raw = Chunks([client.outgoing.read()])
        stream = await self._shake_hands(raw, client)
        said = [self._chance.randbytes(self._chance.choice((0, 1, 100, 20_000))) for _ in range(5)]
        for data in said:
            client.tls.write(data)
        raw.chunks = self._broken(records_of(client.outgoing.read()))
        received = bytearray()
        with suppress(ConnectionLost):
            while data := await stream.receive_some(1 << 16):
                received += data
        if not b"".join(said).startswith(received):
            raise Finding(f"{len(received)} bytes that the peer has not sent")

    async def _accept(self, raw: Chunks) -> TlsStream:
        return await accept_tls(raw, self._server)

    async def _shake_hands(self, raw: Chunks, client: Client) -> TlsStream:
        """Both ends step by step: the server's part waits whenever it has nothing more to read."""
        stream = TlsStream(raw, self._server, server_hostname=None, server_side=True)
        arrived = raw.chunks.pop()
        while not stream.advance(arrived):
            arrived = self._next_of(client, stream, raw)
        await stream._flush()
        stream._decrypted_all = False
        with suppress(ssl.SSLWantReadError):
            client.incoming.write(bytes(raw.sent))
            client.tls.do_handshake()
        return stream

    def _next_of(self, client: Client, stream: TlsStream, raw: Chunks) -> bytes:
        client.incoming.write(stream._outgoing.read())
        with suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
        return client.outgoing.read()

    def _broken(self, pieces: Sequence[bytes]) -> list[bytes]:
        """These pieces, changed in one way, in chunks of any size."""
        rows, chance = list(pieces), self._chance
        index = chance.randrange(len(rows)) if rows else 0
        match chance.randrange(6) if rows else 5:
            case 0:
                rows[index] = rows[index][: chance.randrange(len(rows[index]) + 1)]
            case 1:
                rows.insert(index, rows[index])
            case 2:
                chance.shuffle(rows)
            case 3:
                changed = bytearray(rows[index])
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
                rows[index] = bytes(changed)
            case 4:
                rows.insert(index, chance.randbytes(chance.randrange(1, 50)))
        whole, chunks = b"".join(rows), []
        while whole:
            size = chance.choice((1, 5, 100, 1 << 14, len(whole)))
            chunks.append(whole[:size])
            whole = whole[size:]
        return chunks


def records_of(data: bytes) -> list[bytes]:
    """The records of TLS in these bytes."""
    rows, position = [], 0
    while position < len(data):
        end = position + 5 + int.from_bytes(data[position + 3 : position + 5])
        rows.append(data[position:end])
        position = end
    return rows
