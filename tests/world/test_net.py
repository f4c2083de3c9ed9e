"""Sockets: the network of other tests and TLS behave as the real one; where a broker listens, and who has come."""

import errno
import os
import socket

import pytest
import trio

from barnabas.storage.disk import FileSlice, StorageError
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.osdisk import OsDisk
from barnabas.world.net import (
    SYSTEM_BUFFERS,
    ConnectionLost,
    OsListener,
    OsNet,
    OsStream,
    SocketBuffers,
    resolves,
)
from tests.broker.memnet import MemNet
from tests.world.tlsnet import TlsNet


@pytest.fixture(params=[MemNet, OsNet, TlsNet])
async def ends(request, nursery):
    """(net, port, connect): `connect()` gives both ends of a connection."""
    net, accepted = request.param(), []
    listener = await net.listen("127.0.0.1", 0, backlog=10)

    async def accept(stream):
        accepted.append(stream)

    nursery.start_soon(listener.serve, accept, nursery)

    async def connect():
        stream = await net.connect("127.0.0.1", listener.port)
        with trio.fail_after(5):
            while not accepted:
                await trio.sleep(0.001)
        return stream, accepted.pop()

    return net, listener.port, connect


async def read_all(stream, size):
    data = b""
    with trio.fail_after(5):
        while len(data) < size:
            data += await stream.receive_some(1 << 16)
    return data


async def test_bytes_arrive_both_ways_in_order(ends):
    here, there = await ends[2]()
    await here.send_all(b"to ")
    await here.send_all(memoryview(b"there"))
    assert await read_all(there, 8) == b"to there"
    await there.send_all(bytearray(b"and back"))
    assert await read_all(here, 8) == b"and back"
    assert there.peer_address == "127.0.0.1"


async def test_a_receiver_that_is_cancelled_has_taken_nothing(ends):
    here, there = await ends[2]()
    for number in range(20):
        await there.send_all(b"%02d" % number)
        received = b""
        with trio.fail_after(5):
            while not received:
                with trio.CancelScope() as scope:
                    trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)
                    received = await here.receive_some(1 << 16)
        assert received == b"%02d" % number


async def test_more_than_fits_waits_for_the_reader(ends, nursery):
    here, there = await ends[2]()
    data = bytes(range(256)) * 40_000
    nursery.start_soon(here.send_all, data)
    assert await read_all(there, len(data)) == data


async def test_what_the_network_takes_at_once_is_sent_at_once(ends):
    here, there = await ends[2]()
    assert here.send_now(b"small") == 5
    assert await read_all(there, 5) == b"small"
    taken = []
    while not taken or taken[-1]:
        taken.append(here.send_now(bytes(10_000)))
    assert 0 < sum(taken) <= here.sent_bytes - 5
    assert await read_all(there, sum(taken)) == bytes(sum(taken))
    here.close()
    with pytest.raises(ConnectionLost):
        here.send_now(b"x")


async def test_bytes_are_received_into_memory_as_far_as_it_goes(ends):
    here, there = await ends[2]()
    memory = bytearray(b"------")
    room = memoryview(memory)[1:5]
    assert there.receive_into(room) is None
    await here.send_all(b"abcdef")
    here.close()
    received = b""
    with trio.fail_after(5):
        while (taken := there.receive_into(room)) != 0:
            if taken is None:
                await trio.sleep(0.001)
            else:
                received += room[:taken]
    assert received == b"abcdef"
    assert (memory[0:1], memory[5:]) == (b"-", b"-")


async def test_the_end_comes_after_what_was_sent(ends):
    here, there = await ends[2]()
    await here.send_all(b"bye")
    here.close()
    assert await read_all(there, 3) == b"bye"
    assert await there.receive_some(10) == b""


async def test_a_hang_up_is_seen_behind_what_is_still_to_be_read(ends):
    here, there = await ends[2]()
    await here.send_all(b"one more")
    assert not there.has_hung_up()
    here.close()
    with trio.fail_after(5):
        while not there.has_hung_up():
            await trio.sleep(0.001)
    assert await read_all(there, 8) == b"one more"


async def test_bytes_count_as_sent_while_the_rest_of_them_waits(ends, nursery):
    here, there = await ends[2]()
    nursery.start_soon(here.send_all, bytes(10_000_000))
    await trio.testing.wait_all_tasks_blocked()
    sent_before = here.sent_bytes
    assert 0 < sent_before < 10_000_000
    await read_all(there, 5_000_000)
    with trio.fail_after(5):
        while here.sent_bytes <= sent_before:
            await trio.sleep(0.001)


async def test_a_closed_stream_is_lost_for_its_owner_and_for_who_sends_to_it(ends):
    here, there = await ends[2]()
    here.close()
    with pytest.raises(ConnectionLost):
        await here.receive_some(10)
    with pytest.raises(ConnectionLost):
        await here.send_all(b"x")
    with pytest.raises(ConnectionLost), trio.fail_after(5):
        while True:
            await there.send_all(bytes(1000))


async def test_closing_a_stream_wakes_who_waits_on_it(ends, nursery):
    here, _ = await ends[2]()
    nursery.start_soon(close_soon, here)
    with pytest.raises(ConnectionLost), trio.fail_after(5):
        await here.receive_some(10)


async def close_soon(stream):
    await trio.testing.wait_all_tasks_blocked()
    stream.close()


async def test_a_slice_is_sent_whole_and_one_that_is_short_is_a_lost_connection(ends, nursery, tmp_path):
    net, _, connect = ends
    disk, directory = (OsDisk(), str(tmp_path)) if isinstance(net, OsNet) else (MemDisk(), "")
    file = disk.open(f"{directory}/f", create=True)
    file.write(0, bytes(range(250)) * 1000)
    here, there = await connect()
    nursery.start_soon(here.send_slice, FileSlice(file, 250, 249_000))
    assert await read_all(there, 249_000) == bytes(range(250)) * 996
    with pytest.raises(ConnectionLost):
        await here.send_slice(FileSlice(file, 249_000, 2_000))


@pytest.mark.parametrize(
    ("cause", "raised"), [(errno.EIO, StorageError), (errno.EPIPE, ConnectionLost), (errno.ECONNRESET, ConnectionLost)]
)
async def test_a_disk_that_refuses_a_slice_differs_from_a_lost_connection(tmp_path, monkeypatch, cause, raised):
    def refusing(*_):
        raise OSError(cause, os.strerror(cause))

    here, there = socket.socketpair()
    file = OsDisk().open(f"{tmp_path}/f", create=True)
    file.write(0, bytes(1000))
    monkeypatch.setattr(os, "sendfile", refusing)
    with here, there, pytest.raises(raised):
        await OsStream(here, "there").send_slice(FileSlice(file, 0, 1000))


class Troubled(socket.socket):
    """A listening socket, where the network reports this of the first connection."""

    trouble = 0

    def accept(self):
        if self.trouble:
            trouble, self.trouble = self.trouble, 0
            super().accept()[0].close()
            raise OSError(trouble, os.strerror(trouble))
        return super().accept()


@pytest.mark.parametrize(
    "trouble",
    [
        "ECONNABORTED", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENONET", "ENOPROTOOPT", "EOPNOTSUPP",
        "EPERM", "EPROTO", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ETIMEDOUT",
    ],
)  # fmt: skip
async def test_accepting_goes_on_after_any_error_of_a_new_connection(nursery, trouble):
    bound, came = Troubled(socket.AF_INET, socket.SOCK_STREAM), trio.Event()
    bound.trouble = getattr(errno, trouble)
    bound.bind(("127.0.0.1", 0))
    bound.listen(2)
    bound.setblocking(False)
    listener = OsListener([bound], *bound.getsockname(), buffers=SYSTEM_BUFFERS)

    async def accept(stream):
        stream.close()
        came.set()

    nursery.start_soon(listener.serve, accept, nursery)
    with trio.fail_after(5):
        for _ in range(2):
            socket.create_connection(bound.getsockname()).close()
        await came.wait()
    nursery.cancel_scope.cancel()


async def test_an_address_is_taken_once_and_free_after_closing(ends):
    net, port, _ = ends
    with pytest.raises(OSError, match="in use"):
        await net.listen("127.0.0.1", port, backlog=1)
    other = await net.listen("127.0.0.1", 0, backlog=1)
    other.close()
    (await net.listen("127.0.0.1", other.port, backlog=1)).close()
    with pytest.raises(ConnectionLost):
        await net.connect("127.0.0.1", other.port)


class SeveralAddresses:
    """A resolver of names by which every host has these ports of this machine."""

    def __init__(self, *ports: int) -> None:
        self.ports = ports

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", each)) for each in self.ports]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


async def test_a_host_with_several_addresses_is_tried_at_each():
    net = OsNet()
    open_one, closed_one = [await net.listen("127.0.0.1", 0, backlog=1) for _ in range(2)]
    closed_one.close()
    trio.socket.set_custom_hostname_resolver(SeveralAddresses(closed_one.port, open_one.port))
    (await net.connect("several.example", 1)).close()
    trio.socket.set_custom_hostname_resolver(SeveralAddresses(closed_one.port, closed_one.port))
    with pytest.raises(ConnectionLost, match=r"several\.example:1"):
        await net.connect("several.example", 1)


# -- where a broker listens


class Names:
    """A resolver by which every host has these addresses."""

    def __init__(self, *addresses: tuple[int, str]) -> None:
        self.addresses = addresses

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
        more = {socket.AF_INET: (), socket.AF_INET6: (0, 0)}
        return [(family, type, 0, "", (address, port or 0, *more[family])) for family, address in self.addresses]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


V4, V4_TOO, V6 = (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")
ELSEWHERE = (socket.AF_INET, "192.0.2.1")  # of no machine: reserved for documentation
needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


@pytest.fixture
async def peers_of(nursery):
    """Listen at a host and connect to these addresses: who the broker says has come, one after the other."""

    async def look(host, *addresses):
        listener, came = await OsNet().listen(host, 0, backlog=10), []

        async def note(stream):
            came.append(stream.peer_address)
            stream.close()

        nursery.start_soon(listener.serve, note, nursery)
        for number, address in enumerate(addresses, 1):
            with trio.fail_after(5), socket.create_connection((address, listener.port), timeout=5):
                while len(came) < number:
                    await trio.sleep(0.001)
        return came

    yield look
    nursery.cancel_scope.cancel()


@needs_ipv6
async def test_no_host_is_every_address_of_both_kinds(peers_of):
    assert await peers_of("", "127.0.0.1", "::1") == ["127.0.0.1", "::1"]


@needs_ipv6
async def test_a_name_with_addresses_of_both_kinds_is_listened_at_with_both(peers_of):
    trio.socket.set_custom_hostname_resolver(Names(V6, V4))
    assert await peers_of("both.example", "127.0.0.1", "::1") == ["127.0.0.1", "::1"]


async def test_a_host_name_is_listened_at_with_each_of_its_local_addresses_once(peers_of):
    trio.socket.set_custom_hostname_resolver(Names(V4, ELSEWHERE, V4_TOO, V4))
    assert await peers_of("several.example", "127.0.0.2", "127.0.0.1") == ["127.0.0.1"] * 2


async def test_a_name_without_an_address_here_cannot_be_listened_at():
    trio.socket.set_custom_hostname_resolver(Names(ELSEWHERE))
    with pytest.raises(OSError, match="assign"):
        await OsNet().listen("elsewhere.example", 0, backlog=1)


async def test_a_port_that_is_taken_at_one_address_is_taken_and_the_others_are_free_again():
    trio.socket.set_custom_hostname_resolver(Names(V4, V4_TOO))
    taken = await OsNet().listen("127.0.0.2", 0, backlog=1)
    with pytest.raises(OSError, match="in use"):
        await OsNet().listen("several.example", taken.port, backlog=1)
    (await OsNet().listen("127.0.0.1", taken.port, backlog=1)).close()
    taken.close()


async def test_names_are_looked_up_though_all_threads_are_at_work():
    """What a client wants looked up takes no thread of those that the disk needs."""
    threads = trio.to_thread.current_default_thread_limiter()
    for number in range(int(threads.total_tokens)):
        threads.acquire_on_behalf_of_nowait(number)
    with trio.fail_after(10):
        assert await resolves("localhost")
        assert not await resolves("..")
    for number in range(int(threads.total_tokens)):
        threads.release_on_behalf_of(number)


async def test_a_connection_that_is_reset_before_its_options_are_set_is_lost(monkeypatch):
    def refusing(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    net = OsNet()
    listener = await net.listen("127.0.0.1", 0, backlog=10)
    monkeypatch.setattr(SocketBuffers, "apply", refusing)
    with pytest.raises(ConnectionLost, match="Invalid argument"):
        await net.connect("127.0.0.1", listener.port)
    listener.close()
