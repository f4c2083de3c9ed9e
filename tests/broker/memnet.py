"""A network in memory: each connection is a pair of byte pipes with the size of a socket buffer."""

from collections.abc import Callable

import trio
import trio.testing

from barnabas.storage.disk import FileSlice
from barnabas.world.net import ConnectionLost, copied_into

PIPE_BYTES = 1 << 16  # what fits between a sender and a reader that does not read
SENDFILE_BYTES = 1 << 15


class Pipe:
    """Bytes on their way in one direction."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False  # no more will be written
        self.abandoned = False  # the reader is gone
        self.held = False  # the reader's process is stopped
        self.changed = trio.Event()

    def note(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class MemStream:
    """A `Stream`: one end of two pipes."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, peer_address: str) -> None:
        self.peer_address = peer_address
        self.sent_bytes = 0
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    def has_hung_up(self) -> bool:
        return self._closed or self._incoming.ended

    def receive_now(self, max_bytes: int) -> bytes | None:
        pipe = self._incoming
        if self._closed:
            raise ConnectionLost("this end was closed")
        if pipe.held:
            return None
        if pipe.data:
            received = bytes(pipe.data[:max_bytes])
            del pipe.data[:max_bytes]
            pipe.note()
            return received
        return b"" if pipe.ended else None

    def receive_into(self, room: memoryview) -> int | None:
        return copied_into(room, self.receive_now(len(room)))

    async def receive_some(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while (received := self.receive_now(max_bytes)) is None:
            await self._incoming.changed.wait()
        return received

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        pipe = self._outgoing
        if self._closed or pipe.abandoned:
            raise ConnectionLost("the other end is closed")
        taken = memoryview(data)[: max(0, PIPE_BYTES - len(pipe.data))]
        if taken:
            pipe.data += taken
            self.sent_bytes += len(taken)
            pipe.note()
        return len(taken)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            sent = self.send_now(rest)
            rest = rest[sent:]
            if not sent:
                await self._outgoing.changed.wait()

    async def send_slice(self, piece: FileSlice) -> None:
        """In steps, as sendfile does: each reads the file as it then is."""
        position, end = piece.position, piece.position + piece.size_bytes
        while position < end:
            data = piece.file.read(position, min(end - position, SENDFILE_BYTES))
            if not data:
                raise ConnectionLost(f"{piece.file.path} ends before byte {end}, which was announced")
            await self.send_all(data)
            position += len(data)

    def close(self) -> None:
        self._closed = True
        self._outgoing.ended = True
        self._incoming.abandoned = True
        self._incoming.note()
        self._outgoing.note()


class MemListener:
    """A `Listener` of a `MemNet`."""

    def __init__(self, net: "MemNet", host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._net = net
        self._arrived: list[MemStream] = []
        self._changed = trio.Event()

    async def serve(self, handle: Callable[[MemStream], object], nursery: trio.Nursery) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            while self._arrived:
                nursery.start_soon(handle, self._arrived.pop(0))
                # As `OsListener`, which accepts one in a turn of the loop: their tasks begin in this order.
                await trio.lowlevel.checkpoint()

    def offer(self, stream: MemStream) -> None:
        self._arrived.append(stream)
        self._changed.set()

    def close(self) -> None:
        self._net.listeners.pop(self.port, None)
        for stream in self._arrived:
            stream.close()


class MemNet:
    """A `Net` without sockets; a connection may come from any address."""

    def __init__(self) -> None:
        self.listeners: dict[int, MemListener] = {}
        self.connected: list[int] = []  # the port of each connection that was ever opened
        self._pipes: dict[int, list[Pipe]] = {}  # port -> what was sent to it
        self._stopped: set[int] = set()
        self._next_port = 40000

    async def listen(self, host: str, port: int, *, backlog: int) -> MemListener:
        await trio.lowlevel.checkpoint()
        if port == 0:
            port = self._next_port
            self._next_port += 1
        if port in self.listeners:
            raise OSError(98, "Address already in use")
        listener = self.listeners[port] = MemListener(self, host, port)
        return listener

    async def connect(self, host: str, port: int, *, address: str = "127.0.0.1") -> MemStream:
        await trio.lowlevel.checkpoint()
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionLost(f"{host}:{port}: no listener")
        self.connected.append(port)
        there, back = Pipe(), Pipe()
        there.held = port in self._stopped
        self._pipes.setdefault(port, []).append(there)
        listener.offer(MemStream(there, back, address))
        return MemStream(back, there, host)

    def stop_reading(self, port: int) -> None:
        """The listener's process stops reading, as after SIGSTOP: sent bytes wait in its buffers."""
        self._stopped.add(port)
        for pipe in self._pipes.get(port, ()):
            pipe.held = True

    def stall_connections(self, port: int) -> None:
        """What is sent to the listener on connections that are open now waits on its way; later ones are free."""
        for pipe in self._pipes.get(port, ()):
            pipe.held = True

    def go_on_reading(self, port: int) -> None:
        self._stopped.discard(port)
        for pipe in self._pipes.get(port, ()):
            pipe.held = False
            pipe.note()
