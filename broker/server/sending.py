"""Sends the responses of a connection, and keeps account of their memory and of the time that the client takes."""

import trio

from barnabas.broker.server.connections import Connection, Connections
from barnabas.storage.disk import FileSlice
from barnabas.world.waiting import Pieces

SENT_AT_A_TIME_BYTES = 1 << 18  # between two checkpoints
JOINED_BYTES_MAX = 4096  # of a response that waits for those of the next requests


async def send(connections: Connections, connection: Connection, pieces: Pieces) -> None:
    """Send what is unsent, then the pieces. They are freed, and file slices released, also after an error."""
    if not send_at_once(connection, pieces):
        await send_on(connections, connection, pieces)


def send_at_once(connection: Connection, pieces: Pieces) -> bool:
    """Send what is unsent and a response of one piece, if the network takes it now; True if nothing is left to send.

    Otherwise `pieces` becomes what is left, for `send_on`.
    """
    if connection.unsent:
        small = small_piece(pieces)
        if small is None:
            pieces.insert(0, connection.unsent)
        else:
            pieces[:] = [connection.unsent + small]
        connection.unsent = b""

    # There is a piece: callers pass none only if there is `unsent`.
    first = pieces[0]

    # The usual response fits into the socket's buffer: one system call, no checkpoint, no accounting.
    if len(pieces) == 1 and not isinstance(first, FileSlice):
        sent_bytes = connection.stream.send_now(first)
        if sent_bytes == len(first):
            return True
        pieces[0] = memoryview(first)[sent_bytes:]
    return False


async def send_on(connections: Connections, connection: Connection, pieces: Pieces) -> None:
    """Send what `send_at_once` has left: from here on the time depends on the client."""
    # From here on the connection may be closed as idle, or for the memory of its response. Little memory is not
    # counted: a Fetch response takes as much beside its file slices.
    connection.sending = True
    began = connection.progress_at = trio.current_time()
    held_bytes = 0
    for piece in pieces:
        if not isinstance(piece, FileSlice):
            held_bytes += len(piece)
    if held_bytes > JOINED_BYTES_MAX:
        connections.hold_answer(connection, held_bytes)
    await _send_pieces(connections, connection, pieces)

    # `sending` is not reset after an error: the connection ends, and until then the sweep may close it.
    connection.sending = False
    if connection.tally is not None:
        connection.tally.sent(trio.current_time() - began)


async def _send_pieces(connections: Connections, connection: Connection, pieces: Pieces) -> None:
    """Send each piece and free it; those that are not sent are freed, too."""
    stream = connection.stream
    pause_at_bytes = connection.stream.sent_bytes + SENT_AT_A_TIME_BYTES
    pieces.reverse()  # so that `del pieces[-1]` frees each piece once it is sent
    try:
        while pieces:
            # A fast client takes many slices without a wait, so this loop needs a checkpoint of its own.
            if stream.sent_bytes >= pause_at_bytes:
                await trio.lowlevel.checkpoint()
                pause_at_bytes = stream.sent_bytes + SENT_AT_A_TIME_BYTES
            piece = pieces[-1]
            if isinstance(piece, FileSlice):
                await stream.send_slice(piece)
                piece.release()
            else:
                await stream.send_all(piece)
                if connection.answer_bytes:
                    connections.hold_answer(connection, connection.answer_bytes - len(piece))
            del piece, pieces[-1]
    finally:
        # A slice that is never sent would keep the descriptor of its segment open.
        for left in pieces:
            if isinstance(left, FileSlice):
                left.release()


def small_piece(pieces: Pieces) -> bytes | bytearray | memoryview | None:
    """The one piece of a response that is small enough to be copied; None of others."""
    piece = pieces[0] if len(pieces) == 1 else None
    return None if piece is None or isinstance(piece, FileSlice) or len(piece) > JOINED_BYTES_MAX else piece
