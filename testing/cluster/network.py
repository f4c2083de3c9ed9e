"""The network of a `LocalCluster`: real sockets on 127.0.0.1, and links between parties that a test can cut.

A party is a broker, by its id, or all clients, or the metadata store. A link goes one way. While it is cut, or one of
its ends is frozen, nothing that is sent over it arrives: who waits for it waits on, and what was sent arrives when the
link is whole again, unless the connection was given up before. New connections between brokers do not come about. A
client still gets its connection to a broker, as from a process that is stopped: the system accepts it.

Brokers have a listener to themselves. Of their connections the end that has connected holds the bytes of both ways
back; of a client's connection the broker's end does.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import trio

from barnabas.storage.disk import FileSlice
from barnabas.world.net import ConnectionLost, Listener, Net, OsNet, SocketBuffers, Stream, copied_into

Party = int | str  # a broker's id, or one of the two names below
CLIENTS = "clients"
STORE = "store"


class Links:
    """Which party hears of which. Used on the loop only."""

    def __init__(self) -> None:
        self.are_whole = True  # nothing is cut, and no broker is frozen
        self.ports: dict[int, int] = {}  # on which a broker listens -> its id
        self.on_change: Callable[[], None] = lambda: None
        self._cut: dict[tuple[Party, Party], None] = {}
        self._frozen: dict[int, None] = {}
        self._changed = trio.Event()

    def is_open(self, sender: Party, receiver: Party) -> bool:
        """Whether what `sender` sends arrives at `receiver`."""
        if self.are_whole:
            return True
        if sender in self._frozen or receiver in self._frozen:
            return False
        return (sender, receiver) not in self._cut

    def are_open(self, one: Party, other: Party) -> bool:
        """Whether the links between two parties are open in both ways."""
        return self.is_open(one, other) and self.is_open(other, one)

    async def opened(self, sender: Party, receiver: Party, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until the link is open, or `is_over` after a `poke`. No checkpoint if it is open."""
        while not self.is_open(sender, receiver) and not is_over():
            await self._changed.wait()

    @property
    def cuts(self) -> list[tuple[Party, Party]]:
        """Sender and receiver of each link that is cut."""
        return list(self._cut)

    def cut(self, sender: Party, receiver: Party) -> None:
        """Nothing arrives from now on."""
        self._cut[sender, receiver] = None
        self._change()

    def heal(self) -> None:
        """Undo every cut."""
        self._cut.clear()
        self._change()

    def freeze(self, broker_id: int) -> None:
        """Cut every link of this broker."""
        self._frozen[broker_id] = None
        self._change()

    def thaw(self, broker_id: int) -> None:
        """Undo `freeze`."""
        self._frozen.pop(broker_id, None)
        self._change()

    def is_frozen(self, broker_id: int) -> bool:
        """Whether `freeze` was called for this broker."""
        return broker_id in self._frozen

    def is_cut_off(self, broker_id: int) -> bool:
        """Whether a link of this broker is closed."""
        return broker_id in self._frozen or any(broker_id in link for link in self._cut)

    def poke(self) -> None:
        """Have those that wait look again."""
        self._changed.set()
        self._changed = trio.Event()

    def _change(self) -> None:
        self.are_whole = not self._cut and not self._frozen
        self.poke()
        self.on_change()


class LinkedStream:
    """A `Stream` between `me` and `other` that holds bytes back while their links are closed."""

    def __init__(self, inner: Stream, links: Links, me: Party, other: Party) -> None:
        self._inner = inner
        self._links = links
        self._me = me
        self._other = other
        self._held = b""  # received while the link was closed
        self._is_closed = False

    @property
    def peer_address(self) -> str:
        return self._inner.peer_address

    @property
    def sent_bytes(self) -> int:
        return self._inner.sent_bytes

    def has_hung_up(self) -> bool:
        return self._links.is_open(self._other, self._me) and self._inner.has_hung_up()

    def receive_now(self, max_bytes: int) -> bytes | None:
        if not self._links.is_open(self._other, self._me):
            return None
        return self._take_held(max_bytes) or self._inner.receive_now(max_bytes)

    def receive_into(self, room: memoryview) -> int | None:
        return copied_into(room, self.receive_now(len(room)))

    async def receive_some(self, max_bytes: int) -> bytes:
        while True:
            await self._opened(self._other, self._me)
            if self._held:
                await trio.lowlevel.checkpoint()
                return self._take_held(max_bytes)
            data = await self._inner.receive_some(max_bytes)
            if self._links.is_open(self._other, self._me):
                return data

            # The end of the stream has no bytes. It is received again when the link is open.
            self._held += data

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        return self._inner.send_now(data) if self._links.is_open(self._me, self._other) else 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._opened(self._me, self._other)
        await self._inner.send_all(data)

    async def send_slice(self, piece: FileSlice) -> None:
        await self._opened(self._me, self._other)
        await self._inner.send_slice(piece)

    def close(self) -> None:
        self._is_closed = True
        self._inner.close()
        if not self._links.are_whole:
            self._links.poke()

    def _take_held(self, max_bytes: int) -> bytes:
        data = self._held[:max_bytes]
        self._held = self._held[max_bytes:]
        return data

    async def _opened(self, sender: Party, receiver: Party) -> None:
        await self._links.opened(sender, receiver, lambda: self._is_closed)
        if self._is_closed:
            raise ConnectionLost("it was closed")


class ClientListener:
    """A `Listener` whose connections are those of clients."""

    def __init__(self, inner: Listener, links: Links, broker_id: int) -> None:
        self._inner = inner
        self._links = links
        self._broker_id = broker_id
        self.host = inner.host
        self.port = inner.port

    async def serve(self, handle: Callable[[Stream], Awaitable[None]], nursery: trio.Nursery) -> None:
        await self._inner.serve(partial(self._linked, handle), nursery)

    async def _linked(self, handle: Callable[[Stream], Awaitable[None]], stream: Stream) -> None:
        await handle(LinkedStream(stream, self._links, self._broker_id, CLIENTS))

    def close(self) -> None:
        self._inner.close()


class ClusterNet:
    """The `Net` of one broker in one life."""

    def __init__(self, broker_id: int, links: Links, buffers: SocketBuffers, are_for_clients: Iterable[bool]) -> None:
        """`are_for_clients`: of each listener, in the order of `listeners`, in which `serve` binds them."""
        self._broker_id = broker_id
        self._links = links
        self._inner: Net = OsNet(buffers)
        self._are_for_clients = iter(are_for_clients)

    async def listen(self, host: str, port: int, *, backlog: int) -> Listener:
        listener = await self._inner.listen(host, port, backlog=backlog)
        self._links.ports[listener.port] = self._broker_id
        if next(self._are_for_clients):
            return ClientListener(listener, self._links, self._broker_id)
        return listener

    async def connect(self, host: str, port: int) -> Stream:
        other = self._links.ports.get(port)
        # Other addresses are outside of the cluster, such as those of a server that has keys.
        if other is None:
            return await self._inner.connect(host, port)
        await self._links.opened(self._broker_id, other)
        await self._links.opened(other, self._broker_id)
        return LinkedStream(await self._inner.connect(host, port), self._links, self._broker_id, other)
