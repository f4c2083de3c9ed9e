"""Between clients and a broker of any kind: a proxy on loopback on which one request, or its response, comes to harm.

It knows of Kafka's protocol that a frame is a length and so many bytes, and that a request begins with its API key, its
version and a number, which its response begins with. What a harm leaves of a frame is passed on; if that is less than
all of it, the connection ends, to both sides. Two threads serve a connection, one for each direction.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, Self

HOST = "127.0.0.1"
LENGTH = struct.Struct(">i")
REQUEST = struct.Struct(">hhi")  # behind the length: API key, version, number


class Frame(NamedTuple):
    """One request or response."""

    api_key: int
    version: int
    data: bytes  # with its length


Left = Callable[[Frame], bytes]


def whole(frame: Frame) -> bytes:
    """Nothing is lost."""
    return frame.data


def half(frame: Frame) -> bytes:
    """The connection ends in the middle."""
    return frame.data[: len(frame.data) // 2]


def nothing(frame: Frame) -> bytes:
    """The connection ends in its place."""
    return b""


class Harm:
    """What comes to the next requests of one API, or to their responses; all proxies of a cluster share it."""

    def __init__(self, api_key: int, *, request: Left = whole, response: Left = whole, times: int = 1) -> None:
        self.request = request  # what is left of it for the broker
        self.response = response  # what is left of it for the client
        self.done = 0
        self._api_key = api_key
        self._times = times
        self._lock = threading.Lock()

    def takes(self, api_key: int) -> bool:
        """Whether this request comes to harm."""
        with self._lock:
            is_taken = api_key == self._api_key and self.done < self._times
            self.done += is_taken
            return is_taken


class Proxy:
    """One way to a broker, which need not run yet."""

    def __init__(self, broker_port: int) -> None:
        self.harm: Harm | None = None
        self.port = 0
        self._broker_port = broker_port

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def open(self) -> None:
        """Accept connections; at the same port as before."""
        self._listening = socket.create_server((HOST, self.port))
        self.port = int(self._listening.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, args=(self._listening,), daemon=True)
        self._accepting.start()

    def shut(self) -> None:
        """Connections are refused from now on, as by the operating system when no broker runs."""
        _end(self._listening)
        self._accepting.join()

    def _accept(self, listening: socket.socket) -> None:
        # `shut` closes the listening socket.
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                broker = socket.create_connection((HOST, self._broker_port))
            except ConnectionRefusedError:
                return
            with broker:
                for side in (client, broker):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _Joined(client, broker, self).run()


class _Joined:
    """A client's connection and the one to the broker that belongs to it."""

    def __init__(self, client: socket.socket, broker: socket.socket, proxy: Proxy) -> None:
        self._client = client
        self._broker = broker
        self._proxy = proxy
        # Number of a request -> the harm to its response, with API key and version.
        self._harmed: dict[int, tuple[Harm, int, int]] = {}

    def run(self) -> None:
        """Until one side has gone, or a harm ends it."""
        responding = threading.Thread(target=self._carry, args=(self._responses,), daemon=True)
        responding.start()
        self._carry(self._requests)
        responding.join()

    def _carry(self, direction: Callable[[], None]) -> None:
        try:
            direction()
        # One side has closed its connection, or was killed.
        except OSError:
            pass
        finally:
            _end(self._client)
            _end(self._broker)

    def _requests(self) -> None:
        for data in _frames(self._client):
            api_key, version, number = REQUEST.unpack_from(data, LENGTH.size)
            harm = self._proxy.harm
            if harm is None or not harm.takes(api_key):
                self._broker.sendall(data)
                continue
            self._harmed[number] = harm, api_key, version
            left = harm.request(Frame(api_key, version, data))
            self._broker.sendall(left)
            if len(left) < len(data):
                return

    def _responses(self) -> None:
        for data in _frames(self._broker):
            (number,) = LENGTH.unpack_from(data, LENGTH.size)
            harmed = self._harmed.pop(number, None)
            if harmed is None:
                self._client.sendall(data)
                continue
            harm, api_key, version = harmed
            left = harm.response(Frame(api_key, version, data))
            self._client.sendall(left)
            if len(left) < len(data):
                return


def _frames(side: socket.socket) -> Iterator[bytes]:
    """The frames that a side sends, until it ends."""
    with side.makefile("rb") as file:
        while len(length := file.read(LENGTH.size)) == LENGTH.size:
            (size_bytes,) = LENGTH.unpack(length)
            body = file.read(size_bytes)
            if len(body) < size_bytes:
                return
            yield length + body


def _end(side: socket.socket) -> None:
    """Close a socket on which another thread may wait."""
    with suppress(OSError):  # the other end was faster
        side.shutdown(socket.SHUT_RDWR)
    side.close()
