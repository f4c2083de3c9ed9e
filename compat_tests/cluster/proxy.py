"""The network between the parties without root: a TCP proxy before every server.

Theory of operation. All parties run on 127.0.0.1. A server advertises the address of a proxy, which forwards every
connection to the server's own port. The proxy finds the party of a connection in /proc: the socket belongs to a
process, and each process acts for a party (an unknown process is a client). The direction from A to B is cut by holding
back the bytes in it, and by not forwarding new connections of A. After the cut held bytes are forwarded, as a network
retransmits them. Unlike in a real cut, a new connection looks open to the client.

One thread and one selector serve all connections. A cut direction is not read, so its sender blocks when buffers are
full.
"""

import contextlib
import os
import pathlib
import selectors
import socket
import threading
from collections.abc import Sequence

from compat_tests.cluster.network import Address

CLIENTS = "clients"
CHUNK_BYTES = 256 * 1024
TURN_SECONDS = 0.05


class Pipe:
    """One way of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket, way: tuple[str, str]) -> None:
        self.source = source
        self.target = target
        self.way = way
        self.held = b""


class ProxyNetwork:
    """A proxy before each server; started with the first address that is asked for."""

    def __init__(self, parties: Sequence[str]) -> None:
        self.parties = list(parties)
        self._behind: dict[tuple[str, int], Address] = {}
        self._before: dict[tuple[str, int], socket.socket] = {}
        self._processes: dict[int, str] = {}
        self._cut: set[tuple[str, str]] = set()
        self._waiting: list[tuple[socket.socket, str, Address, str]] = []
        self._pipes: list[Pipe] = []
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def listen_address(self, party: str, port: int) -> Address:
        """Where the server binds: a port of its own behind the proxy."""
        with self._lock:
            if (party, port) not in self._behind:
                with socket.create_server(("127.0.0.1", 0)) as probe:
                    self._behind[party, port] = probe.getsockname()
            return self._behind[party, port]

    def reach_address(self, party: str, port: int) -> Address:
        """Where everybody reaches it: the proxy's port."""
        self.listen_address(party, port)
        with self._lock:
            if (party, port) not in self._before:
                server = socket.create_server(("127.0.0.1", 0))
                server.setblocking(False)
                self._before[party, port] = server
                self._selector.register(server, selectors.EVENT_READ, (party, self._behind[party, port]))
            return self._before[party, port].getsockname()

    def command(self, party: str, words: Sequence[str]) -> list[str]:
        return list(words)

    def cut(self, source: str, target: str) -> None:
        with self._lock:
            self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        with self._lock:
            self._cut.discard((source, target))

    def note_process(self, party: str, pid: int) -> None:
        with self._lock:
            self._processes[pid] = party

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for pipe in self._pipes:
            pipe.source.close()
        for server in self._before.values():
            server.close()
        self._selector.close()

    # -- the thread

    def _carry(self) -> None:
        while not self._closed.is_set():
            ready = self._selector.select(TURN_SECONDS)
            with self._lock:
                for key, _ in ready:
                    if isinstance(key.data, Pipe):
                        self._pass_on(key.data)
                    elif key.data is not None:
                        self._accept(key.fileobj, *key.data)  # type: ignore[arg-type]
                self._open_waiting()
                self._hold_and_release()

    def _accept(self, server: socket.socket, party: str, behind: Address) -> None:
        with contextlib.suppress(OSError):
            incoming, peer = server.accept()
            self._waiting.append((incoming, party, behind, self._party_of(peer)))

    def _open_waiting(self) -> None:
        still = []
        for incoming, party, behind, source in self._waiting:
            if (source, party) in self._cut or (party, source) in self._cut:
                still.append((incoming, party, behind, source))
                continue
            try:
                outgoing = socket.create_connection(behind, timeout=1.0)
            except OSError:
                _reset(incoming)
                continue
            for one, other, way in ((incoming, outgoing, (source, party)), (outgoing, incoming, (party, source))):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one.settimeout(1.0)
                pipe = Pipe(one, other, way)
                self._pipes.append(pipe)
                self._selector.register(one, selectors.EVENT_READ, pipe)
        self._waiting = still

    def _hold_and_release(self) -> None:
        for pipe in self._pipes:
            is_read = pipe.source.fileno() >= 0 and pipe.source in self._selector.get_map()
            if pipe.way in self._cut and is_read:
                self._selector.unregister(pipe.source)
            elif pipe.way not in self._cut and not is_read and pipe.source.fileno() >= 0:
                self._selector.register(pipe.source, selectors.EVENT_READ, pipe)

    def _pass_on(self, pipe: Pipe) -> None:
        if pipe.way in self._cut or pipe.source.fileno() < 0:
            return
        try:
            data = pipe.source.recv(CHUNK_BYTES)
            if data:
                pipe.target.sendall(data)  # a server that is paused holds the others up for a second at most
                return
        except OSError:
            data = b""
        self._drop(pipe)

    def _drop(self, pipe: Pipe) -> None:
        for end in (pipe.source, pipe.target):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
        _reset(pipe.source)
        _reset(pipe.target)
        self._pipes = [other for other in self._pipes if other.source.fileno() >= 0]

    def _party_of(self, peer: Address) -> str:
        """For whom the process acts that holds the other end of this connection."""
        inode = _inode_of(peer[1])
        for pid, party in self._processes.items():
            if inode is not None and inode in _sockets_of(pid):
                return party
        return CLIENTS


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _inode_of(local_port: int) -> str | None:
    """The inode of the connected socket with this local port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # Java's sockets are of the second family
        with contextlib.suppress(OSError):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == local_port and fields[9] != "0":
                    return fields[9]
    return None


def _sockets_of(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if link.startswith("socket:["):
                    found.add(link[8:-1])
    return found
