"""A page in memory: the console's routes on the network of a `Machine`, and a browser that only reads JSON."""

import base64
import json

import h11

from barnabas.broker.life import BrokerState, Life
from barnabas.console.console import Console
from barnabas.world.net import ConnectionLost
from tests.broker.harness import Machine

PORT = 9644
END_OF_CHUNKS = b"0\r\n\r\n"  # of an answer in pieces that is whole


class Page:
    """The console of one machine, attached from outside after its start."""

    def __init__(self, machine: Machine, port: int = PORT) -> None:
        self.machine = machine
        self.life = Life(BrokerState.RUNNING, broker=machine.broker)
        self.console = Console(machine.net, f"127.0.0.1:{port}", self.life)

    async def open(self, nursery) -> "Page":
        await self.console.open()
        nursery.start_soon(self.console.run)
        return self

    async def ask(self, path: str, *, address: str = "127.0.0.1", login: tuple[str, str] | None = None):
        """(status, headers, body) of a GET."""
        stream = await self.machine.net.connect("127.0.0.1", self.console.port, address=address)
        try:
            await stream.send_all(request_bytes(path, login))
            return await read_answer(stream)
        finally:
            stream.close()

    async def get(self, path: str, **given):
        """The JSON document at this path, which must be there."""
        status, _, body = await self.ask(path, **given)
        assert status == 200, (status, body)
        return json.loads(body)

    async def refused(self, path: str, **given) -> tuple[int, str]:
        """The status of an error, and its text."""
        status, _, body = await self.ask(path, **given)
        assert status >= 400, (status, body)
        return status, json.loads(body)["error"]


def request_bytes(path: str, login: tuple[str, str] | None = None) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost"]
    if login is not None:
        encoded = base64.b64encode(":".join(login).encode()).decode("ascii")
        lines.append(f"Authorization: Basic {encoded}")
    return "\r\n".join([*lines, "", ""]).encode()


async def read_answer(stream, http=None, method="GET"):
    """(status, headers, body) of the next answer on this connection; `http` is its state, if it has had answers."""
    http = http or h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("host", "any")]))
    http.send(h11.EndOfMessage())
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(1 << 16))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return head.status_code, {name.decode(): value.decode() for name, value in head.headers}, body


async def read_to_the_end(stream) -> bytes:
    """All that arrives until the connection is closed."""
    heard = b""
    while True:
        try:
            piece = await stream.receive_some(1 << 16)
        except ConnectionLost:
            return heard
        if not piece:
            return heard
        heard += piece
