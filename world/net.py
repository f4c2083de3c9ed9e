"""Sockets (edge): the only file of the broker that touches them.

`Stream` is one connection, `Listener` one bound address, and `Net` makes both (`connect`, `listen`). A simulated world
replaces `Net`. `OsStream`, `OsListener` and `OsNet` use plain non-blocking sockets with trio's `wait_readable` and
`wait_writable`: one task alone uses a stream, so the locks and checkpoints of trio's `SocketStream` are not needed.
"""

import errno
import logging
import os
import select
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from barnabas.storage.disk import FileSlice, StorageError

logger = logging.getLogger(__name__)

Address = tuple[int, tuple[object, ...]]  # family, and the socket address: host, port, for IPv6 also flow and scope

SENDFILE_BYTES_MAX = 1 << 20  # one call must not hold the loop: 1 MiB takes about a quarter of a millisecond
ACCEPT_PAUSE_SECONDS = 0.1  # between checks for a free descriptor; without a pause `accept` would fail in a busy loop
# Descriptors reserved for files: a share of RLIMIT_NOFILE within bounds. Without one no segment can be created and no
# checkpoint written, and a truncation that ends half done takes its log directory offline.
DESCRIPTORS_KEPT_SHARE = 1 / 8
DESCRIPTORS_KEPT_MIN = 16
DESCRIPTORS_KEPT_MAX = 1024
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# Errors of accept(2) that concern the new connection, not the listener: Linux passes on those that are pending on the
# connection. Not every system defines all of these codes.
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
HANG_UP = getattr(select, "POLLRDHUP", 0)  # Linux: the peer closed its sending side; set even while data is unread

NO_SUCH_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})
WILDCARD_ADDRESSES: Sequence[Address] = (  # "::" accepts IPv4, too (dual stack, as in Java); "0.0.0.0" without IPv6
    (socket.AF_INET6, ("::", 0)),
    (socket.AF_INET, ("0.0.0.0", 0)),
)
MAPPED_PREFIX = "::ffff:"  # of an IPv4 peer's address on an IPv6 socket
FREE_PORT_ATTEMPTS = 10
RESOLVING_THREADS = 4


class ConnectionLost(Exception):
    """The peer closed or reset the connection, or cannot be reached."""


class Stream(Protocol):
    """One connection's bytes, both ways. Not for concurrent use: a connection is one task."""

    @property
    def peer_address(self) -> str: ...
    @property
    def sent_bytes(self) -> int:
        """The number of bytes that the network has taken so far; grows while a response is being sent."""

    def has_hung_up(self) -> bool:
        """Whether the peer is known to have closed its side, or to be gone. Consumes no bytes and does not wait."""

    def receive_now(self, max_bytes: int) -> bytes | None:
        """At most `max_bytes` of what has arrived; None if nothing has. Otherwise as `receive_some`."""

    def receive_into(self, room: memoryview) -> int | None:
        """As `receive_now`, into this memory, which is not empty: how many bytes, 0 at the end of the stream."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """Wait for bytes and return at most `max_bytes`; b"" at the end of the stream. ConnectionLost after a reset.

        Always a checkpoint. A cancelled call has consumed no bytes.
        """

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send without waiting; returns how many bytes the network took, 0 or more. ConnectionLost as `send_all`."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything. ConnectionLost when the other side is gone."""

    async def send_slice(self, piece: FileSlice) -> None:
        """Send a slice of a file. ConnectionLost also when the file ends before the slice does.

        With checkpoints, but for a slice of at most SENDFILE_BYTES_MAX only while the network takes no more.

        StorageError when the disk cannot read it. After either error the connection must be closed: the frame's length
        was sent already, so the peer cannot find the next frame.
        """

    def close(self) -> None:
        """Close at once; a task that waits on the stream gets ConnectionLost."""


class Listener(Protocol):
    """A bound, listening address."""

    host: str
    port: int

    async def serve(self, handle: Callable[[Stream], Awaitable[None]], nursery: trio.Nursery) -> None:
        """Accept until cancelled; each connection becomes a task `handle(stream)` in `nursery`."""

    def close(self) -> None:
        """Stop listening; idempotent."""


class Net(Protocol):
    """How to listen and to connect."""

    async def listen(self, host: str, port: int, *, backlog: int) -> Listener:
        """Bind and listen; port 0 picks a free one. OSError with the reason when that fails."""

    async def connect(self, host: str, port: int) -> Stream:
        """Open a connection; ConnectionLost when the host has no address or no server answers."""


def copied_into(room: memoryview, received: bytes | None) -> int | None:
    """`Stream.receive_into` of a stream in memory, with what its `receive_now` returned."""
    if received is None:
        return None
    room[: len(received)] = received
    return len(received)


class OsStream:
    """A `Stream` over a non-blocking socket.

    `send_all` is a checkpoint only when the kernel's buffer is full: a checkpoint costs as much as a small send, and
    the connection's loop has its own (`connection.py`).
    """

    __slots__ = ("_socket", "peer_address", "sent_bytes")

    def __init__(self, connected: socket.socket, peer_address: str) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.peer_address = peer_address
        self.sent_bytes = 0

    def has_hung_up(self) -> bool:
        # Unlike a peek, POLLRDHUP sees a hang-up behind unread bytes, such as a pipelined request.
        if HANG_UP:
            look = select.poll()
            look.register(self._socket, HANG_UP)  # errors and resets are always reported
            return bool(look.poll(0))
        # Elsewhere the end of the stream is visible only after all bytes before it were read.
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def receive_now(self, max_bytes: int) -> bytes | None:
        try:
            return self._socket.recv(max_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def receive_into(self, room: memoryview) -> int | None:
        try:
            return self._socket.recv_into(room)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    async def receive_some(self, max_bytes: int) -> bytes:
        # The wait comes before the receive, so that a cancellation loses no bytes. A caller that
        # expects bytes to be there already calls `receive_now` before.
        while True:
            try:
                await trio.lowlevel.wait_readable(self._socket)
            except (trio.ClosedResourceError, ValueError) as error:  # closed meanwhile, or before
                raise ConnectionLost(str(error)) from error
            data = self.receive_now(max_bytes)
            if data is not None:
                return data

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        self.sent_bytes += sent
        return sent

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        sent = self.send_now(data)
        if sent == len(data):
            return
        rest = memoryview(data)[sent:]
        try:
            while rest:
                await trio.lowlevel.wait_writable(self._socket)
                sent = self.send_now(rest)
                rest = rest[sent:]
        except (OSError, trio.ClosedResourceError) as error:
            raise ConnectionLost(str(error)) from error

    async def send_slice(self, piece: FileSlice) -> None:
        source = piece.file.fileno()

        # A file of a simulated disk has no descriptor.
        if source is None:
            data = piece.read()
            if len(data) < piece.size_bytes:
                raise ConnectionLost(f"{piece.file.path} ends before what was announced")
            await self.send_all(data)
            return

        position = piece.position
        end = piece.position + piece.size_bytes
        try:
            while position < end:
                try:
                    size_bytes = min(end - position, SENDFILE_BYTES_MAX)
                    sent = os.sendfile(self._socket.fileno(), source, position, size_bytes)
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
                    continue

                # The file was truncated meanwhile. The length of the frame is sent already and cannot be corrected.
                if sent == 0:
                    raise ConnectionLost(f"{piece.file.path} ends before byte {end}, which was announced")
                position += sent
                self.sent_bytes += sent

                # A fast client takes a large slice without a wait, so the loop has to give way here.
                if position < end:
                    await trio.lowlevel.checkpoint()
        except (OSError, trio.ClosedResourceError) as error:
            # EIO of sendfile(2) concerns the file: no socket reports it. The caller takes the log directory offline.
            if getattr(error, "errno", None) == errno.EIO:
                raise StorageError(piece.file.path, "send", "EIO") from error
            raise ConnectionLost(str(error)) from error

    def close(self) -> None:
        # Trio must stop polling the descriptor before it is closed, because the next file may get
        # its number.
        trio.lowlevel.notify_closing(self._socket)
        _end(self._socket)


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
                continue  # the connection went away after the wake-up
            except OSError as error:
                # The connection stays in the backlog, so `wait_readable` returns at once: without a pause this spins.
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

            # The connection runs in the caller's nursery: this one is cancelled at a stop, while
            # accepted connections go on.
            nursery.start_soon(handle, OsStream(connected, address[0].removeprefix(MAPPED_PREFIX)))

            # The operating system gives out the lowest free number, so a high one means that all below it are in use.
            if connected.fileno() >= kept_from:
                self._warn_of_pause()
                while self._lowest_free_descriptor() >= kept_from:
                    await trio.sleep(ACCEPT_PAUSE_SECONDS)

    def _warn_of_pause(self) -> None:
        logger.warning(
            "accepting connections pauses until some close: the limit of open files is nearly used up",
            extra={"peer": f"{self.host}:{self.port}"},  # rate-limits the line as if this were a peer
        )

    def _lowest_free_descriptor(self) -> int:
        """The descriptor that the next file or connection would get."""
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
                _end(bound)


def _end(socket_: socket.socket) -> None:
    """Close a socket, and what it stands for: a connection, or the port that it listens at."""
    # A process that was forked meanwhile, by a test around a `LocalBroker` for example, has the descriptor as well:
    # without `shutdown` it would keep the connection, or the port, open.
    with suppress(OSError):  # the peer has closed it already
        socket_.shutdown(socket.SHUT_RDWR)
    socket_.close()


def first_kept_descriptor() -> int:
    """The lowest descriptor that is reserved for files; connections pause accepting when they get it."""
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
        # These options are those of Kafka's SocketServer: small responses leave at once, and dead
        # peers are found.
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
        """Listen on every address of the host that this machine has (Java takes the first); "" is the wildcard."""
        addresses = await _addresses_of(host) if host else WILDCARD_ADDRESSES
        for attempt in range(FREE_PORT_ATTEMPTS):
            try:
                bound = _bind(addresses, port, backlog, is_wildcard=not host)
            except OSError as error:
                # With port 0, the port that was free at the first address may be taken at the second: try another.
                if port != 0 or error.errno != errno.EADDRINUSE or attempt == FREE_PORT_ATTEMPTS - 1:
                    raise
            else:
                break
        return OsListener(bound, host, bound[0].getsockname()[1], buffers=self.buffers)

    async def connect(self, host: str, port: int) -> OsStream:
        try:
            addresses = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            connected = await _connect_to_any(addresses)
        except (OSError, UnicodeError) as error:  # UnicodeError: the text is no valid host name
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        try:
            self.buffers.apply(connected)
        except OSError as error:  # macOS refuses options on a connection that was reset meanwhile
            connected.close()
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        return OsStream(connected, host)


async def _addresses_of(host: str) -> list[Address]:
    """The addresses of a host, without duplicates, in the resolver's order."""
    found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bind(addresses: Sequence[Address], port: int, backlog: int, *, is_wildcard: bool) -> list[socket.socket]:
    """Listening sockets at these addresses, all on one port; for a wildcard one socket, the first that works.

    OSError when an address is taken, or when this machine has none of them.
    """
    bound: list[socket.socket] = []
    missing: OSError | None = None
    for address in addresses:
        try:
            bound.append(_listen_at(address, port, backlog))
        except OSError as error:
            # An address that this machine lacks is left out, such as a name's IPv6 address where IPv6 is disabled.
            if error.errno not in NO_SUCH_ADDRESS:
                for other in bound:
                    other.close()
                raise
            missing = error
            continue

        # "::" covers IPv4 as well; "0.0.0.0" on the same port would then be in use.
        if is_wildcard:
            break

        # Port 0: the other addresses get the port that the first one drew.
        port = bound[0].getsockname()[1]

    if not bound:
        raise missing or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return bound


def _listen_at(address: Address, port: int, backlog: int) -> socket.socket:
    family, (host, _, *scope) = address
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        # A restarted broker must not wait for connections of its previous life in TIME_WAIT.
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


# Clients choose the names, and a name without an answer takes a thread for half a minute. Lookups have a limiter of
# their own, so that they take no threads from the disk.
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
