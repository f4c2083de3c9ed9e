"""Sockets (edge): the only file of the broker that touches them.

`Stream` is what a connection needs of a socket: receive some, send all, send a slice of a file, close. It sits on a
plain non-blocking socket with trio's `wait_readable` and `wait_writable`: a connection here has one task, so there is
no other sender, and a send that succeeds at once needs no turn of the scheduler.

A simulated world replaces `Net` alone (`listen`, `connect`).
"""

import errno
import logging
import os
import select
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from barnabas.storage.disk import FileSlice, StorageError

logger = logging.getLogger(__name__)

Address = tuple[int, tuple[object, ...]]  # family, and host, port and more as the operating system wants it

SENDFILE_BYTES_MAX = 1 << 20  # a call must not hold the loop: 1 MiB is about a quarter of a millisecond
ACCEPT_PAUSE_SECONDS = 0.1  # out of descriptors: wait until one is closed, instead of ending the listener
# Descriptors that connections leave to files, a share of the limit within bounds: a checkpoint or a segment that finds
# none fails like a broken disk, and takes its log directory offline.
DESCRIPTORS_KEPT_SHARE, DESCRIPTORS_KEPT_MIN, DESCRIPTORS_KEPT_MAX = 1 / 8, 16, 1024
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# What accept(2) reports of the connection that it would have returned: Linux passes on errors that are already pending
# on it. Not every system knows all of them.
CONNECTION_GONE = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNABORTED",
        "ECONNRESET",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "ENETDOWN",
        "ENETUNREACH",
        "ENONET",
        "ENOPROTOOPT",
        "ENOTCONN",
        "EOPNOTSUPP",
        "EPERM",  # a firewall's refusal
        "EPIPE",
        "EPROTO",
        "ESOCKTNOSUPPORT",
        "EPROTONOSUPPORT",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
)
HANG_UP = getattr(select, "POLLRDHUP", 0)  # Linux: the other side sends no more, whatever is still to be read

NO_SUCH_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})
WILDCARD_ADDRESSES: Sequence[Address] = (  # the first takes IPv4 too, as in Java
    (socket.AF_INET6, ("::", 0)),
    (socket.AF_INET, ("0.0.0.0", 0)),
)
MAPPED_PREFIX = "::ffff:"  # how an IPv4 peer of an IPv6 socket is written
FREE_PORT_ATTEMPTS = 10
RESOLVING_THREADS = 4


class ConnectionLost(Exception):
    """The other side is gone; the connection's task ends."""


class Stream(Protocol):
    """One connection's bytes, both ways. Not for concurrent use: a connection is one task."""

    peer_address: str
    sent_bytes: int  # what the network took of this end's bytes so far: it grows while an answer leaves

    def has_hung_up(self) -> bool:
        """Whether the other side is known to send no more, or to be gone. Takes nothing and does not wait."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """What has arrived, at most `max_bytes`; b"" at the end. ConnectionLost when it was reset.

        Cancelled, it has taken nothing.
        """

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send what the network takes at once, and return its size, 0 at worst. ConnectionLost as below."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything. ConnectionLost when the other side is gone."""

    async def send_slice(self, piece: FileSlice) -> None:
        """Send a slice of a file. ConnectionLost when the file is shorter than promised: its length is announced.

        StorageError when the disk refuses to read it; then, too, nothing more can be sent.
        """

    def close(self) -> None:
        """Close at once; whatever waits on the stream gets ConnectionLost."""


class Listener(Protocol):
    """A bound, listening address."""

    host: str
    port: int

    async def serve(self, handle: Callable[[Stream], Awaitable[None]], nursery: trio.Nursery) -> None:
        """Accept for ever; each connection becomes a task `handle(stream)` in `nursery`."""

    def close(self) -> None:
        """Stop listening; nothing happens the second time."""


class Net(Protocol):
    """How to listen and to connect."""

    async def listen(self, host: str, port: int, *, backlog: int) -> Listener:
        """Bind and listen; port 0 picks a free one. OSError with the reason when that fails."""

    async def connect(self, host: str, port: int) -> Stream:
        """Open a connection; ConnectionLost when no server answers."""


class OsStream:
    """A `Stream` over a non-blocking socket.

    Receiving gives other tasks a turn; sending does so only when the kernel's buffer is full, for the connection's loop
    yields by itself (`connection.py`), and a turn costs as much as a small send.
    """

    __slots__ = ("_socket", "peer_address", "sent_bytes")

    def __init__(self, connected: socket.socket, peer_address: str) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.peer_address = peer_address
        self.sent_bytes = 0

    def has_hung_up(self) -> bool:
        if HANG_UP:
            look = select.poll()
            look.register(self._socket, HANG_UP)  # errors and resets are always reported
            return bool(look.poll(0))
        try:  # elsewhere the end is seen only when everything before it was read
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def receive_some(self, max_bytes: int) -> bytes:
        waited = False
        while True:
            try:
                data = self._socket.recv(max_bytes)
                break
            except BlockingIOError:
                waited = True
            except OSError as error:
                raise ConnectionLost(str(error)) from error
            try:
                await trio.lowlevel.wait_readable(self._socket)
            except trio.ClosedResourceError as error:
                raise ConnectionLost(str(error)) from error
        if not waited:
            await trio.lowlevel.cancel_shielded_checkpoint()  # what was received may not be lost
        return data

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._send_some(data)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            sent = self._send_some(data)
            if sent == len(data):
                return
            rest = memoryview(data)[sent:]
            while rest:
                await trio.lowlevel.wait_writable(self._socket)
                rest = rest[self._send_some(rest) :]
        except (OSError, trio.ClosedResourceError) as error:
            raise ConnectionLost(str(error)) from error

    async def send_slice(self, piece: FileSlice) -> None:
        source = piece.file.fileno()
        if source is None:
            data = piece.read()
            if len(data) < piece.size_bytes:
                raise ConnectionLost(f"{piece.file.path} ends before what was announced")
            await self.send_all(data)
            return
        position, end = piece.position, piece.position + piece.size_bytes
        try:
            while position < end:
                try:
                    size_bytes = min(end - position, SENDFILE_BYTES_MAX)
                    sent = os.sendfile(self._socket.fileno(), source, position, size_bytes)
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
                    continue
                if sent == 0:
                    raise ConnectionLost(f"{piece.file.path} ends before byte {end}, which was announced")
                position += sent
                self.sent_bytes += sent
                await trio.lowlevel.checkpoint()
        except (OSError, trio.ClosedResourceError) as error:
            if getattr(error, "errno", None) == errno.EIO:  # from sendfile it means the file: no socket reports it
                raise StorageError(piece.file.path, "send", "EIO") from error
            raise ConnectionLost(str(error)) from error

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()

    def _send_some(self, data: bytes | bytearray | memoryview) -> int:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return 0
        self.sent_bytes += sent
        return sent


class OsListener:
    """A `Listener` over non-blocking sockets: one for each address of its host, all on one port."""

    def __init__(self, bound: Sequence[socket.socket], host: str, port: int, *, buffers: "SocketBuffers") -> None:
        self._sockets = bound
        self._buffers = buffers
        self.host = host
        self.port = port

    async def serve(self, handle: Callable[[Stream], Awaitable[None]], nursery: trio.Nursery) -> None:
        async with trio.open_nursery() as accepting:
            for bound in self._sockets:
                accepting.start_soon(self._accept, bound, handle, nursery)

    async def _accept(
        self, bound: socket.socket, handle: Callable[[Stream], Awaitable[None]], nursery: trio.Nursery
    ) -> None:
        kept_from = first_kept_descriptor()
        while True:
            await trio.lowlevel.wait_readable(bound)
            try:
                connected, address = bound.accept()
            except BlockingIOError:
                continue  # it went away between the two
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self._warn_of_pause()
                    await trio.sleep(ACCEPT_PAUSE_SECONDS)
                    continue
                if error.errno in CONNECTION_GONE:
                    continue
                raise
            try:
                self._buffers.apply(connected)
            except OSError:  # macOS refuses options on a connection that was reset meanwhile
                connected.close()
                continue
            nursery.start_soon(handle, OsStream(connected, address[0].removeprefix(MAPPED_PREFIX)))
            if connected.fileno() >= kept_from:
                self._warn_of_pause()
                while self._lowest_free_descriptor() >= kept_from:
                    await trio.sleep(ACCEPT_PAUSE_SECONDS)

    def _warn_of_pause(self) -> None:
        logger.warning(
            "accepting connections pauses until some close: the limit of open files is nearly used up",
            extra={"peer": f"{self.host}:{self.port}"},  # as often as about one peer
        )

    def _lowest_free_descriptor(self) -> int:
        """What the next file or connection would get; the operating system gives out the lowest."""
        try:
            descriptor = os.dup(self._sockets[0].fileno())
        except OSError:
            return sys.maxsize
        os.close(descriptor)
        return descriptor

    def close(self) -> None:
        for bound in self._sockets:
            if bound.fileno() >= 0:
                trio.lowlevel.notify_closing(bound)
                bound.close()


def first_kept_descriptor() -> int:
    """Where the descriptors begin that connections leave to files."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    kept = min(max(int(limit * DESCRIPTORS_KEPT_SHARE), DESCRIPTORS_KEPT_MIN), DESCRIPTORS_KEPT_MAX)
    return limit - kept


class SocketBuffers:
    """The kernel's buffer sizes for accepted sockets; -1 leaves the operating system's choice, as in Kafka."""

    def __init__(self, send_bytes: int = -1, receive_bytes: int = -1) -> None:
        self.send_bytes = send_bytes
        self.receive_bytes = receive_bytes

    def apply(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.send_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_bytes)
        if self.receive_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)


SYSTEM_BUFFERS = SocketBuffers()


class OsNet:
    """The operating system's network."""

    def __init__(self, buffers: SocketBuffers = SYSTEM_BUFFERS) -> None:
        self.buffers = buffers

    async def listen(self, host: str, port: int, *, backlog: int) -> OsListener:
        """On every address that the host has here, where Java takes the first; no host means all, IPv6 and IPv4."""
        addresses = await _addresses_of(host) if host else WILDCARD_ADDRESSES
        for attempt in range(FREE_PORT_ATTEMPTS):
            try:
                bound = _bind(addresses, port, backlog, is_wildcard=not host)
            except OSError as error:  # the port that was free at the first address may be taken at the second
                if port != 0 or error.errno != errno.EADDRINUSE or attempt == FREE_PORT_ATTEMPTS - 1:
                    raise
            else:
                break
        return OsListener(bound, host, bound[0].getsockname()[1], buffers=self.buffers)

    async def connect(self, host: str, port: int) -> OsStream:
        try:
            addresses = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            connected = await _connect_to_any(addresses)
        except (OSError, UnicodeError) as error:  # the latter for what is no name at all
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        self.buffers.apply(connected)
        return OsStream(connected, host)


async def _addresses_of(host: str) -> list[Address]:
    """Each address of a host, once."""
    found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bind(addresses: Sequence[Address], port: int, backlog: int, *, is_wildcard: bool) -> list[socket.socket]:
    """Listening sockets at these addresses, all on one port; of a wildcard the first that works, which has them all.

    Addresses that this machine does not have (a name's IPv6 address, where IPv6 is switched off) are left out, unless
    that leaves none.
    """
    bound: list[socket.socket] = []
    missing: OSError | None = None
    for address in addresses:
        try:
            bound.append(_listen_at(address, port, backlog))
        except OSError as error:
            if error.errno not in NO_SUCH_ADDRESS:
                for other in bound:
                    other.close()
                raise
            missing = error
            continue
        if is_wildcard:
            break
        port = bound[0].getsockname()[1]
    if not bound:
        raise missing or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return bound


def _listen_at(address: Address, port: int, backlog: int) -> socket.socket:
    family, (host, _, *scope) = address
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((host, port, *scope))
        bound.listen(backlog)
    except OSError:
        bound.close()
        raise
    return bound


async def _connect_to_any(addresses: Sequence[tuple[int, int, int, str, object]]) -> socket.socket:
    """A connection to the first of these addresses that answers; OSError when none does."""
    failure = OSError("it has no address")
    for family, kind, protocol, _, address in addresses:
        with trio.socket.socket(family, kind, protocol) as connecting:
            try:
                await connecting.connect(address)
            except OSError as error:
                failure = error
            else:
                return socket.socket(fileno=connecting.detach())
    raise failure


# Clients choose the names, and one without an answer takes a thread for half a minute: that must be no thread of those
# that the disk's work needs.
_resolving: trio.lowlevel.RunVar[trio.CapacityLimiter | None] = trio.lowlevel.RunVar("resolving", None)


async def resolves(host: str) -> bool:
    """Whether this host name has an address."""
    limiter = _resolving.get()
    if limiter is None:
        limiter = trio.CapacityLimiter(RESOLVING_THREADS)
        _resolving.set(limiter)
    try:
        await trio.to_thread.run_sync(socket.getaddrinfo, host, None, limiter=limiter, abandon_on_cancel=True)
    except (OSError, UnicodeError):  # the latter for what is no name at all
        return False
    return True


def machine_host_name() -> str:
    """The machine's own name, advertised when a listener is bound to every address."""
    return socket.gethostname()
