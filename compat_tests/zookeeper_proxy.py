"""Between a client and ZooKeeper: a TCP proxy that loses an answer, cuts connections, or lets nothing through.

It knows of ZooKeeper's protocol that a frame is a length and so many bytes, and that an answer begins with the number
of its request; watches and pings have negative ones.
"""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio


class ZooKeeperProxy:
    """One way to a ZooKeeper."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.answers_until_loss: int | None = None  # so many still pass, then one is lost with its connection
        self.losses = 0
        self.silences = 0  # so many connections are taken, and hear nothing
        self._to = port
        self._is_open = True
        self._streams: set[trio.SocketStream] = set()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def cut(self) -> None:
        """End the connections that there are; new ones are welcome."""
        for stream in list(self._streams):
            await trio.aclose_forcefully(stream)

    async def shut(self) -> None:
        """End the connections, and accept none until `open`."""
        self._is_open = False
        await self.cut()

    def open(self) -> None:
        self._is_open = True

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection."""
        try:
            if not self._is_open:
                return
            if self.silences:
                self.silences -= 1
                await trio.sleep_forever()
            server = await trio.open_tcp_stream("127.0.0.1", self._to)
        except OSError:
            return
        else:
            await self._join(client, server)
        finally:
            await trio.aclose_forcefully(client)

    async def _join(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        try:
            self._streams |= {client, server}
            async with trio.open_nursery() as pumps:
                pumps.start_soon(self._pump, client, server, pumps)
                await self._pump_answers(server, client)
                pumps.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, StopAsyncIteration):
            pass  # one of them is gone, and the other goes with it
        finally:
            self._streams -= {client, server}
            await trio.aclose_forcefully(server)

    async def _pump(self, source: trio.SocketStream, target: trio.SocketStream, pumps: trio.Nursery) -> None:
        async for data in source:
            await target.send_all(data)
        pumps.cancel_scope.cancel()

    async def _pump_answers(self, server: trio.SocketStream, client: trio.SocketStream) -> None:
        frames = _frames(server)
        await client.send_all(await anext(frames))  # the answer to the connection itself
        async for frame in frames:
            (number,) = struct.unpack_from(">i", frame, 4)
            if number > 0 and self.answers_until_loss is not None:
                self.answers_until_loss -= 1
                if self.answers_until_loss < 0:
                    self.answers_until_loss = None
                    self.losses += 1
                    return
            await client.send_all(frame)


async def _frames(stream: trio.SocketStream) -> AsyncIterator[bytes]:
    received = b""
    async for data in stream:
        received += data
        while len(received) >= 4 and len(received) >= (size := 4 + struct.unpack_from(">i", received)[0]):
            yield received[:size]
            received = received[size:]


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[ZooKeeperProxy]:
    """A proxy that runs as long as this context."""
    proxy = ZooKeeperProxy(port)
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, proxy.serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        proxy.port = listener.socket.getsockname()[1]
        yield proxy
        nursery.cancel_scope.cancel()
