"""How kazoo's threads connect to ZooKeeper and wait for it (edge): TLS, shorter timeouts, another `select`."""

import select
import socket
import ssl
from collections.abc import Callable, Sequence

from kazoo.handlers.threading import SequentialThreadingHandler

CONNECTIONS_TRIED_IN_A_SESSION = 3  # to each server, so that one without an answer does not use up the session
CONNECT_MIN_SECONDS = 0.25


def handler_of_threads(
    session_seconds: float, host_count: int, tls: object | None, on_refused: Callable[[str], None]
) -> SequentialThreadingHandler:
    """kazoo's handler of threads with another `select`, shorter timeouts, and a socket pair that never blocks the loop.

    `session_seconds` is the timeout of the session, `host_count` the number of servers. `on_refused` gets the reason
    for which a server could not be reached, in kazoo's thread: kazoo tries again without a word.
    """
    handler = SequentialThreadingHandler()
    handler.create_socket_pair = _socket_pair

    # With kazoo's own timeouts one server that does not answer would use up the session before another is tried. A
    # ZooKeeper that is starting is such a server: it accepts connections, but never greets on them.
    connect_seconds = max(session_seconds / CONNECTIONS_TRIED_IN_A_SESSION / host_count, CONNECT_MIN_SECONDS)
    create_connection = handler.create_connection
    silent: list[socket.socket] = []  # the connection that has not been greeted yet

    def create_connection_in_time(
        address: tuple[str, int], *args: object, timeout: float, hostname: str | None = None, **options: object
    ) -> socket.socket:
        try:
            connection: socket.socket = create_connection(
                address, *args, timeout=min(timeout, connect_seconds), **options
            )
        except OSError as error:
            on_refused(f"ZooKeeper at {hostname}:{address[1]} cannot be reached: {error.strerror or error}")
            raise

        if tls is not None:
            assert isinstance(tls, ssl.SSLContext)

            # kazoo's own TLS context is made from PEM files; it cannot read Java's stores.
            # `hostname` is the name in `zookeeper.connect`, `address` has the IP address of that
            # name.
            connection.settimeout(connect_seconds)
            try:
                connection = tls.wrap_socket(connection, server_hostname=hostname)
            except ssl.SSLError as error:
                on_refused(f"TLS with ZooKeeper at {hostname}: {error}")
                connection.close()
                raise

        silent[:] = [connection]
        return connection

    def select_in_time(
        readers: Sequence[socket.socket],
        writers: Sequence[socket.socket],
        others: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> Ready:
        # The limit is for the time in which kazoo waits for the greeting, which it reads from this
        # socket alone.
        if not silent or silent != list(readers):
            return _select(readers, writers, others, timeout)
        ready = _select(readers, writers, others, connect_seconds if timeout is None else min(timeout, connect_seconds))
        if ready[0]:
            silent.clear()
        return ready

    handler.create_connection = create_connection_in_time
    handler.select = select_in_time
    return handler


class _Bell:
    """The writing end of kazoo's socket pair, which wakes kazoo's thread: one byte for each request.

    kazoo's own would block the loop while that thread, busy connecting, leaves too many bytes unread.
    """

    def __init__(self, writer: socket.socket) -> None:
        writer.setblocking(False)
        self._writer = writer
        self.close = writer.close

    def send(self, data: bytes) -> int:
        try:
            return self._writer.send(data)
        # The buffer is full of unread bytes. One may be dropped: there are fewer requests than bytes (IN_FLIGHT_MAX in
        # `zkclient.py`).
        except BlockingIOError:
            return len(data)


def _socket_pair() -> tuple[socket.socket, _Bell]:
    reader, writer = socket.socketpair()
    return reader, _Bell(writer)


Ready = tuple[list[socket.socket], list[socket.socket], list[socket.socket]]


def _select(
    readers: Sequence[socket.socket],
    writers: Sequence[socket.socket],
    _: Sequence[socket.socket],
    timeout: float | None = None,
) -> Ready:
    """As select.select, but without its limit of 1024 for descriptors. `timeout` in seconds; None waits for ever."""
    # kazoo's own `select` makes and closes a selector at each call, which is a third of the cost
    # of a request.
    poll = select.poll()
    for each in readers:
        poll.register(each, select.POLLIN)
    for each in writers:
        poll.register(each, select.POLLOUT)
    ready = {descriptor for descriptor, _ in poll.poll(None if timeout is None else max(timeout, 0) * 1000)}
    return (
        [each for each in readers if each.fileno() in ready],
        [each for each in writers if each.fileno() in ready],
        [],
    )
