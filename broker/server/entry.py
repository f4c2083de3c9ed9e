"""What a client must do before its first request, on a listener with TLS or SASL: the handshake, and the login.

A client that fails is logged at INFO, as in Kafka, and its connection closes. After a SASL login the client may have to
log in again among its requests (KIP-368); once the session has ended, nothing else is served.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from barnabas.broker.call import Broker
from barnabas.broker.server.before_login import AnswersBeforeLogin
from barnabas.broker.server.connections import Connection, Connections
from barnabas.broker.server.login import FailedAuthentication, Login
from barnabas.broker.server.pipelined_responses import PipelinedResponses
from barnabas.broker.tally import ListenerTally
from barnabas.security.principals import principal_of_certificate
from barnabas.security.sasl.authenticator import SASL_HANDSHAKE_KEY, Authenticator, SaslSettings
from barnabas.security.secured import SecuredListener
from barnabas.security.tls.contexts import ListenerTls
from barnabas.wire.frame import FrameReader, read_request_header
from barnabas.world.net import ConnectionLost
from barnabas.world.tls import HandshakeFailed, TlsStream, accept_tls

logger = logging.getLogger(__name__)

# Kafka has no limit of its own: a client that stops in the middle of its handshake stays for connections.max.idle.ms.
HANDSHAKE_SECONDS = 30.0
KEY_BYTES = 2  # at the beginning of a frame: the API key


async def enter(
    broker: Broker, secured: SecuredListener, connections: Connections, connection: Connection
) -> FrameReader:
    """Let a client in; what reads its requests. ConnectionLost for one that fails, which is logged."""
    connection.protocol = secured.protocol
    # A handshake alone is an authentication, too, as in Kafka's metrics.
    counted = broker.tally.listeners[connection.listener]
    with _failures_logged(connection, counted):
        if secured.tls is not None:
            await _shake_hands(secured, secured.tls, connection)
        if secured.sasl is not None:
            reader = await _log_in(broker, secured.sasl, connections, connection)
            counted.logins += 1
            return reader
    counted.logins += 1
    return FrameReader(broker.config.socket_request_max_bytes)


def must_be_answered_first(connection: Connection, frame: memoryview) -> bool:
    """Whether the requests before this one must be answered before `log_in_again` takes it."""
    return connection.login is not None and (_is_handshake(frame) or connection.login.has_ended)


async def log_in_again(
    broker: Broker, connections: Connections, connection: Connection, reader: FrameReader, frame: memoryview
) -> bool:
    """Whether the frame began another login, which is complete now; else it is to be served.

    ConnectionLost if that login fails, or the session has ended.
    """
    login = connection.login
    assert login is not None
    with _failures_logged(connection, broker.tally.listeners[connection.listener]):
        if _is_handshake(frame) and await login.run_again(read_request_header(frame), frame, reader):
            connections.hold_frame(connection, reader.pending_bytes)
            logger.debug(
                "%s has logged in again as %s: login %d of its connection",
                connection.address,
                connection.principal,
                login.count,
            )
            return True
        login.check_session()

    return False


def _is_handshake(frame: memoryview) -> bool:
    return int.from_bytes(frame[:KEY_BYTES]) == SASL_HANDSHAKE_KEY


async def _shake_hands(secured: SecuredListener, tls: ListenerTls, connection: Connection) -> None:
    stream: TlsStream | None = None
    with trio.move_on_after(HANDSHAKE_SECONDS):
        stream = await accept_tls(connection.stream, tls.server)
    if stream is None:
        raise FailedAuthentication(f"no TLS handshake within {HANDSHAKE_SECONDS:.0f} s")
    connection.stream, connection.pipelined = stream, PipelinedResponses(stream)
    # With SASL the login says who the client is, whatever certificate it has.
    if secured.sasl is None and secured.security.tls is not None:
        try:
            principal = principal_of_certificate(stream.peer_certificate, secured.security.tls.mapping_rules)
        except ValueError as error:
            raise FailedAuthentication(str(error)) from error
        connection.principal = str(principal)


async def _log_in(broker: Broker, sasl: SaslSettings, connections: Connections, connection: Connection) -> FrameReader:
    def received(pending_bytes: int) -> None:
        connection.progress_at = trio.current_time()
        connections.hold_frame(connection, pending_bytes)

    connections.note_login(connection, is_over=False)
    reader = FrameReader(sasl.token_bytes_max, takes_empty=True)
    authenticator = Authenticator(sasl, AnswersBeforeLogin(broker, connection.listener))
    login = Login(authenticator, connection.stream, broker.world.now_ms, broker.world.in_thread, received)
    await login.run(reader)
    assert login.identity is not None
    connection.login, connection.principal = login, str(login.identity.principal)
    mechanism = login.identity.mechanism
    logger.debug("%s has logged in as %s with %s", connection.address, connection.principal, mechanism)
    reader.become_ordinary(broker.config.socket_request_max_bytes)
    connections.hold_frame(connection, reader.pending_bytes)
    connections.note_login(connection, is_over=True)
    return reader


@contextmanager
def _failures_logged(connection: Connection, counted: ListenerTally) -> Iterator[None]:
    try:
        yield
    except HandshakeFailed as failure:
        counted.failed_logins += 1
        about = {"peer": connection.address}
        logger.info("failed SSL handshake with %s: %s", connection.address, failure, extra=about)
        raise
    except FailedAuthentication as failure:
        counted.failed_logins += 1
        about = {"peer": connection.address}
        logger.info("failed authentication with %s: %s", connection.address, failure, extra=about)
        raise ConnectionLost("its authentication failed") from failure
