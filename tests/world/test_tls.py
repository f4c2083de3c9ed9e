"""TLS: cuts, damage and ends of the encrypted stream; who is refused, and what a handshake may cost others.

That it is a `Stream` like the others is tested in `test_net.py`.
"""

import random
import ssl

import pytest
import trio

from barnabas.security.tls.ciphers import choose
from barnabas.security.tls.contexts import client_context, server_context
from barnabas.storage.disk import FileSlice
from barnabas.storage.memdisk import MemDisk
from barnabas.world import tls
from barnabas.world.net import ConnectionLost, OsNet
from barnabas.world.tls import (
    ALERT,
    ENCRYPT_BYTES,
    FRUITLESS_STEPS_MAX,
    RECORDS_A_STEP,
    HandshakeFailed,
    TlsStream,
    accept_tls,
    connect_tls,
)
from tests.broker.memnet import PIPE_BYTES, MemStream, Pipe
from tests.security.key_material import BOTH_VERSIONS, chain_pem, der_of, leaf
from tests.world.key_updates import RecordWriter
from tests.world.tlsnet import shake_hands, stores

LARGE = bytes(range(256)) * 4_000  # several records, and several pieces
RECORD_BYTES = 1 << 14
OVERHEAD_BYTES = 22  # of a record of TLS 1.3


def pipes() -> tuple[MemStream, MemStream, Pipe, Pipe]:
    """Two ends, and what is on its way from the first and to the first."""
    there, back = Pipe(), Pipe()
    return MemStream(back, there, "server"), MemStream(there, back, "client"), there, back


def plain_tls(server_version="TLSv1.3") -> "Client":
    return Client(client_context(stores(), choose(server_version, ("TLSv1.2", "TLSv1.3"), ())))


class Client:
    """OpenSSL alone, whose encrypted bytes the test cuts as it likes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    async def shake_hands(self, raw: MemStream, *, at_a_time=1 << 16) -> None:
        """Over this end of a connection, with so many bytes at a time."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            else:
                return await send_cut(raw, self.outgoing.read(), at_a_time)
            await send_cut(raw, self.outgoing.read(), at_a_time)
            self.incoming.write(await raw.receive_some(at_a_time))

    def encrypted(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def decrypted(self, data: bytes) -> bytes:
        self.incoming.write(data)
        parts = []
        try:
            while part := self.tls.read(1 << 16):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)


async def send_cut(raw: MemStream, data: bytes, at_a_time: int) -> None:
    for start in range(0, len(data), at_a_time):
        await raw.send_all(data[start : start + at_a_time])
        await trio.testing.wait_all_tasks_blocked()


async def accepted(raw_client: MemStream, raw_server: MemStream, client: Client, **cut):
    """The server's end after a handshake with a client of OpenSSL alone."""
    ends = []

    async def accept():
        ends.append(await accept_tls(raw_server, server_context(stores(), BOTH_VERSIONS, "none")))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await client.shake_hands(raw_client, **cut)
    return ends[0]


# -- cuts


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_handshake_may_come_in_single_bytes(version):
    here, there, *_ = pipes()
    client = plain_tls(version)
    stream = await accepted(here, there, client, at_a_time=1)
    assert client.tls.version() == version
    assert stream.version.startswith(version)


async def test_a_record_may_be_cut_at_every_byte():
    here, there, on_its_way, _ = pipes()
    client = plain_tls()
    stream = await accepted(here, there, client)
    for length in range(1, 6 + OVERHEAD_BYTES):
        record = client.encrypted(b"castle")
        assert len(record) == 6 + OVERHEAD_BYTES
        on_its_way.data += record[:length]
        assert stream.receive_now(100) is None
        on_its_way.data += record[length:]
        assert stream.receive_now(100) == b"castle"
        assert stream.receive_now(100) is None


async def test_bytes_that_come_with_the_handshake_are_served():
    here, there, *_ = pipes()
    client = plain_tls()
    request = []

    async def accept():
        stream = await accept_tls(there, server_context(stores(), BOTH_VERSIONS, "none"))
        request.append(await stream.receive_some(100))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.do_handshake()
            await here.send_all(client.outgoing.read())
            client.incoming.write(await here.receive_some(1 << 16))
            client.tls.do_handshake()
            await here.send_all(client.outgoing.read() + client.encrypted(b"castle"))
    assert request == [b"castle"]


def received_into(stream: TlsStream, max_bytes: int) -> bytes | None:
    room = memoryview(bytearray(max_bytes))
    size_bytes = stream.receive_into(room)
    return None if size_bytes is None else bytes(room[:size_bytes])


@pytest.mark.parametrize("size", [1, RECORD_BYTES, RECORD_BYTES + 1, ENCRYPT_BYTES, ENCRYPT_BYTES + 1, len(LARGE)])
@pytest.mark.parametrize("room", [1000, 1 << 16, 1 << 18])
@pytest.mark.parametrize("receive_now", [TlsStream.receive_now, received_into])
async def test_what_arrived_is_received_in_order_whatever_the_room(size, room, receive_now, nursery):
    client, server = await shake_hands(*pipes()[:2])
    nursery.start_soon(client.send_all, LARGE[:size])
    received = b""
    with trio.fail_after(10):
        while len(received) < size:
            part = receive_now(server, room)
            if part is None:
                part = await server.receive_some(room)
            assert 0 < len(part) <= room
            received += part
    assert received == LARGE[:size]
    assert receive_now(server, room) is None


async def test_the_end_leaves_the_room_empty():
    client, server = await shake_hands(*pipes()[:2])
    client.close()
    assert server.receive_into(memoryview(bytearray(10))) == 0


async def test_records_that_arrived_together_are_received_together():
    client, server = await shake_hands(*pipes()[:2])
    for number in range(50):
        assert client.send_now(b"%02d" % number) == 2
    assert server.receive_now(1 << 16) == b"".join(b"%02d" % number for number in range(50))


async def test_what_a_full_network_did_not_take_is_sent_once_and_in_order():
    """Whatever mixture of sends comes, and however little the network takes of each."""
    rng = random.Random(7)
    here, there, to_server, _ = pipes()
    client, server = await shake_hands(here, there)
    held, sent, received = Pipe(), 0, b""
    here._outgoing = held
    with trio.fail_after(20):
        while len(received) < len(LARGE):
            held.data[:] = bytes(PIPE_BYTES - rng.choice((0, 1, 30, 500, 5000, PIPE_BYTES)))  # what fills the network
            filled = len(held.data)
            piece = memoryview(LARGE)[sent : sent + rng.choice((1, 100, 3000, 100_000))]
            sent += client.send_now(piece)
            to_server.data += held.data[filled:]
            received += server.receive_now(1 << 18) or b""
            assert len(received) >= sent
    assert (received, sent) == (LARGE, len(LARGE))


async def test_what_was_kept_back_leaves_with_the_next_send(nursery):
    here, there, *_ = pipes()
    client, server = await shake_hands(here, there)
    here._outgoing.data += bytes(PIPE_BYTES - 100)
    assert client.send_now(LARGE[:200]) == 0
    del here._outgoing.data[: PIPE_BYTES - 100]
    assert client.send_now(b"") == 0
    nursery.start_soon(client.send_all, LARGE)
    received = b""
    with trio.fail_after(5):
        while len(received) < len(LARGE):
            received += await server.receive_some(1 << 18)
    assert received == LARGE


async def test_a_slice_of_a_file_is_sent_in_pieces(nursery):
    client, server = await shake_hands(*pipes()[:2])
    file = MemDisk().open("/f", create=True)
    file.write(0, LARGE)
    nursery.start_soon(server.send_slice, FileSlice(file, 100, len(LARGE) - 100))
    received = b""
    with trio.fail_after(5):
        while len(received) < len(LARGE) - 100:
            received += await client.receive_some(1 << 18)
    assert received == LARGE[100:]


# -- ends and damage


@pytest.mark.parametrize("says_so", [True, False])
async def test_the_end_is_the_end_with_and_without_a_close_notify(says_so):
    here, there, *_ = pipes()
    client, server = await shake_hands(here, there)
    await client.send_all(b"bye")
    (client if says_so else here).close()
    assert await server.receive_some(100) == b"bye"
    for _ in range(2):
        assert server.receive_now(100) == b""
        assert await server.receive_some(100) == b""


async def test_a_client_that_ended_its_side_is_still_answered():
    here, there, on_its_way, _ = pipes()
    client, server = await shake_hands(here, there)
    on_its_way.ended = True
    assert await server.receive_some(100) == b""
    await server.send_all(b"castle")
    assert await client.receive_some(100) == b"castle"


async def test_a_record_that_the_end_cuts_is_dropped():
    here, there, on_its_way, _ = pipes()
    client = plain_tls()
    stream = await accepted(here, there, client)
    on_its_way.data += client.encrypted(b"castle") + client.encrypted(b"village")[:-1]
    here.close()
    assert await stream.receive_some(100) == b"castle"
    assert await stream.receive_some(100) == b""


async def test_a_peer_that_is_left_is_notified():
    here, there, _, to_client = pipes()
    client = plain_tls()
    stream = await accepted(here, there, client)
    client.decrypted(bytes(to_client.data))  # the tickets
    to_client.data.clear()
    stream.close()
    client.incoming.write(bytes(to_client.data))
    assert client.tls.read(100) == b""
    stream.close()


async def test_after_half_a_record_the_peer_is_not_notified():
    """It would take the notice for a damaged rest of the record."""
    here, there, *_ = pipes()
    _, server = await shake_hands(here, there)
    with trio.move_on_after(0):
        await server.send_all(LARGE)
    sent = len(here._incoming.data)
    server.close()
    assert len(here._incoming.data) == sent


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_damaged_record_ends_the_connection_after_what_came_before(version):
    here, there, on_its_way, to_client = pipes()
    client = plain_tls(version)
    stream = await accepted(here, there, client)
    client.decrypted(bytes(to_client.data))
    to_client.data.clear()
    damaged = bytearray(client.encrypted(b"village"))
    damaged[-1] ^= 1
    on_its_way.data += damaged
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="DECRYPTION_FAILED_OR_BAD_RECORD_MAC"):
            stream.receive_now(100)
    with pytest.raises(ConnectionLost):
        await stream.receive_some(100)
    with pytest.raises(ConnectionLost):
        await stream.send_all(b"x")
    with pytest.raises(ssl.SSLError, match="ALERT_BAD_RECORD_MAC"):
        client.decrypted(bytes(to_client.data))


async def test_whole_records_before_a_damaged_one_are_served():
    here, there, on_its_way, _ = pipes()
    client = plain_tls()
    stream = await accepted(here, there, client)
    on_its_way.data += client.encrypted(b"castle" * 10_000)
    on_its_way.data += b"\x17\x03\x03\x00\x20" + bytes(32)
    received = stream.receive_now(1 << 18)
    assert received == b"castle" * 10_000
    with pytest.raises(ConnectionLost, match="MAC"):
        stream.receive_now(100)


async def test_records_without_bytes_do_not_hold_the_loop():
    here, there, *_ = pipes()
    client = plain_tls()
    stream = await accepted(here, there, client)

    class Endless(MemStream):
        received = 0

        def receive_now(self, max_bytes):
            self.received += 1
            return b"\x17"  # a record that never goes on

    endless = stream._raw = Endless(there._incoming, there._outgoing, "client")
    assert stream.receive_now(100) is None
    assert endless.received == 1


async def test_of_many_small_records_a_step_decrypts_some_and_then_lets_others_run():
    here, there, *_ = pipes()
    client = plain_tls()
    stream = await accepted(here, there, client)
    total = 5 * RECORDS_A_STEP
    here._outgoing.data += b"".join(client.encrypted(b"%03d" % number) for number in range(total))
    received = b""
    while part := stream.receive_now(1 << 18):
        assert len(part) <= 3 * RECORDS_A_STEP
        received += part
    assert received == b"".join(b"%03d" % number for number in range(total))


@pytest.fixture
async def updating(tmp_path):
    """The server's end, what writes its client's records, and what is on its way from the client."""
    context = client_context(stores(), BOTH_VERSIONS)
    context.keylog_filename = str(tmp_path / "keys")
    here, there, arriving, _ = pipes()
    client = Client(context)
    stream = await accepted(here, there, client)
    return stream, RecordWriter(client.tls, tmp_path / "keys"), arriving


async def test_key_updates_are_followed(updating):
    stream, writer, arriving = updating
    arriving.data += writer.data(b"cas") + writer.key_update() + writer.data(b"t") + writer.key_update()
    assert stream.receive_now(100) == b"cast"
    arriving.data += writer.data(b"le")
    assert stream.receive_now(100) == b"le"


async def test_key_updates_without_data_are_taken_in_steps_and_end_the_connection(updating, monkeypatch):
    """A step of a megabyte of them would take half a second."""
    stream, writer, arriving = updating
    fed = []
    feed = TlsStream._feed
    monkeypatch.setattr(TlsStream, "_feed", lambda self, portion: (fed.append(len(portion)), feed(self, portion)))
    update = writer.key_update()
    arriving.data += b"".join([update, *(writer.key_update() for _ in range(RECORDS_A_STEP - 2)), writer.data(b"!")])
    assert stream.receive_now(1 << 18) == b"!"
    arriving.data += b"".join(writer.key_update() for _ in range(2 * FRUITLESS_STEPS_MAX * RECORDS_A_STEP))
    for _ in range(FRUITLESS_STEPS_MAX - 1):
        assert stream.receive_now(1 << 18) is None
    with pytest.raises(ConnectionLost, match="without data"):
        await stream.receive_some(1 << 18)
    assert max(fed) <= RECORDS_A_STEP * len(update)


# -- who is refused


async def refused(first_bytes: bytes, *, then_closes=False) -> tuple[ConnectionLost, bytes]:
    """Why a server refuses a client that begins so, and its answer."""
    here, there, *_ = pipes()
    await here.send_all(first_bytes)
    if then_closes:
        here.close()
    with trio.fail_after(5), pytest.raises(ConnectionLost) as lost:
        await accept_tls(there, server_context(stores(), BOTH_VERSIONS, "none"))
    return lost.value, bytes(here._incoming.data)


@pytest.mark.parametrize("first", [b"\0\0\0\x14\0\x12\0\3", b"GET / HTTP/1.0\r\n\r\n", b"\0", b"\xff" * 100])
async def test_a_client_without_tls_gets_kafkas_alert(first):
    why, answer = await refused(first)
    assert (type(why), str(why), answer) == (HandshakeFailed, "the client does not speak TLS", ALERT)


async def test_random_bytes_in_a_record_are_refused_with_an_alert():
    rng = random.Random(3)
    for size in (5, 50, 500, 5000):
        why, answer = await refused(b"\x16\x03\x01" + size.to_bytes(2) + rng.randbytes(size))
        assert isinstance(why, HandshakeFailed)
        assert answer[:1] == b"\x15"


async def test_a_client_that_goes_away_in_the_handshake_is_lost():
    client = plain_tls()
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    hello = client.outgoing.read()
    for first in (b"", hello[:1], hello[:100], hello):
        why, _ = await refused(first, then_closes=True)
        assert type(why) is ConnectionLost


async def test_a_server_that_is_not_trusted_is_refused():
    trusting_others = stores()._replace(anchors=None)
    here, there, *_ = pipes()
    failures = []

    async def accept():
        with pytest.raises(HandshakeFailed, match="ALERT_UNKNOWN_CA"):
            await accept_tls(there, server_context(stores(), BOTH_VERSIONS, "none"))
        failures.append("server")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            with pytest.raises(HandshakeFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await connect_tls(here, client_context(trusting_others, BOTH_VERSIONS), "localhost")
    assert failures == ["server"]


@pytest.mark.parametrize("host", ["village.example", "127.0.0.2", "", "a" * 70 + ".example", ".castle"])
async def test_a_server_with_another_name_is_refused(host):
    here, there, *_ = pipes()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lost_or_refused, there)
        with trio.fail_after(5), pytest.raises(HandshakeFailed):
            await connect_tls(here, client_context(stores(), BOTH_VERSIONS), host)
        here.close()


async def lost_or_refused(raw):
    with pytest.raises(ConnectionLost):
        await accept_tls(raw, server_context(stores(), BOTH_VERSIONS, "none"))


async def test_a_required_certificate_that_is_not_shown_is_refused():
    """A client of TLS 1.3 learns it with its first read."""
    here, there, *_ = pipes()
    unnamed = client_context(stores()._replace(keys=None), BOTH_VERSIONS)

    async def accept():
        with pytest.raises(HandshakeFailed, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            await accept_tls(there, server_context(stores(), BOTH_VERSIONS, "required"))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            stream = await connect_tls(here, unnamed, "localhost")
            with pytest.raises(ConnectionLost, match="ALERT_CERTIFICATE_REQUIRED"):
                await stream.receive_some(100)


async def test_the_certificate_of_the_client_is_known():
    _, server = await shake_hands(*pipes()[:2])
    assert server.peer_certificate == der_of(chain_pem(leaf()))[0]
    unnamed = client_context(stores()._replace(keys=None), BOTH_VERSIONS)
    _, server = await shake_hands(*pipes()[:2], client=unnamed)
    assert server.peer_certificate is None


# -- many at once


async def test_handshakes_leave_turns_of_the_loop_to_others():
    """A thousand clients that connect at once cost a second of CPU; in each turn one of them gets a step."""
    server = server_context(stores(), BOTH_VERSIONS, "none")
    client = client_context(stores(), BOTH_VERSIONS)
    done, turns = [], 0

    async def one():
        await shake_hands(*pipes()[:2], client=client, server=server)
        done.append(turns)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
            while len(done) < 20:
                await trio.lowlevel.checkpoint()
                turns += 1
    assert turns >= 20 * 4  # two steps of each side
    assert all(done.count(turn) <= 2 for turn in done)


async def test_of_many_silent_clients_the_one_that_waits_longest_is_left(monkeypatch):
    """Each half of a handshake takes 45 kB."""
    monkeypatch.setattr(tls, "WAITING_MAX", 3)
    ended = []

    async def wait_for(number: int, raw):
        with pytest.raises(ConnectionLost) as lost:
            await accept_tls(raw, server_context(stores(), BOTH_VERSIONS, "none"))
        ended.append((number, str(lost.value)))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            clients = []
            for number in range(5):
                here, there, *_ = pipes()
                client = plain_tls()
                with pytest.raises(ssl.SSLWantReadError):
                    client.tls.do_handshake()
                await here.send_all(client.outgoing.read())
                nursery.start_soon(wait_for, number, there)
                await trio.testing.wait_all_tasks_blocked()
                clients.append(here)
            assert ended == [(number, "too many clients do not go on with their handshakes") for number in (0, 1)]
            await shake_hands(*pipes()[:2])  # one that goes on is not the one that waits longest
            assert [number for number, _ in ended] == [0, 1, 2]
            for here in clients:
                here.close()
    assert len(ended) == 5


async def test_a_handshake_that_waits_for_its_turn_can_be_cancelled():
    here, there, *_ = pipes()
    client = plain_tls()
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    await here.send_all(client.outgoing.read())
    with trio.move_on_after(0) as scope:
        await accept_tls(there, server_context(stores(), BOTH_VERSIONS, "none"))
    assert scope.cancelled_caught
    await shake_hands(*pipes()[:2])


async def test_over_sockets_a_client_of_the_standard_library_is_served(nursery):
    listener = await OsNet().listen("127.0.0.1", 0, backlog=10)
    server = server_context(stores(), BOTH_VERSIONS, "none")

    async def echo(raw):
        stream = await accept_tls(raw, server)
        while data := await stream.receive_some(1 << 18):
            await stream.send_all(data)
        stream.close()

    def ask():
        import socket

        context = client_context(stores(), BOTH_VERSIONS)
        plain = socket.create_connection(("127.0.0.1", listener.port), timeout=10)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            received = b""
            for start in range(0, len(LARGE), 100_000):
                sent = LARGE[start : start + 100_000]
                connection.sendall(sent)
                while len(received) < start + len(sent):
                    received += connection.recv(1 << 18)
            connection.unwrap()
        return received

    nursery.start_soon(listener.serve, echo, nursery)
    with trio.fail_after(20):
        assert await trio.to_thread.run_sync(ask) == LARGE
