"""TLS on a raw stream (edge): `TlsStream` is a `Stream` whose bytes OpenSSL encrypts in memory.

The raw stream's bytes go through two `MemoryBIO`s: no task, no lock and no checkpoint beside those of the raw stream.
(`trio.SSLStream` took four times the CPU for a small request, and twice for a megabyte.) What one receive brought is
decrypted before the caller gets it, if it has at most RECORDS_A_STEP records; what is sent leaves as one piece of at
most ENCRYPT_BYTES.

The end of the stream is its end with and without a close_notify: clients often close without one, and a frame's length
shows whether it was cut. Reference security.md, S.4.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

import trio

from barnabas.world.net import ConnectionLost, Stream
from barnabas.world.tls_records import HEAD_BYTES, ArrivedRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.disk import FileSlice

# OpenSSL's buffers never shrink, so an idle connection keeps buffers of these sizes. Smaller pieces take more CPU.
ENCRYPT_BYTES = 1 << 16
RECEIVE_BYTES_MIN = 1 << 14
RECORDS_A_STEP = 100  # about a millisecond, if they are key updates
# After so many steps of RECORDS_A_STEP records without data the connection fails. An honest peer updates its keys only
# every 2^24 records.
FRUITLESS_STEPS_MAX = 20
# The size of the buffer that a receive decrypts into, one for the whole run. What does not fit waits for the next one.
DECRYPT_BYTES = 1 << 18
# The most encrypted bytes that the network has not taken, answers to the peer's key updates included. A peer that reads
# what it is sent never lets so many collect.
UNSENT_BYTES_MAX = 1 << 18
HANDSHAKE_RECORD = 0x16
RECORD_BYTES_MAX = 1 << 14  # of a record in plaintext; a handshake begins with such records
PEER_CLOSED = "the peer closed the connection"
# A fatal alert, as Kafka answers a client without TLS: TLS 1.2, internal_error.
ALERT = b"\x15\x03\x03\x00\x02\x02\x50"


class HandshakeFailed(ConnectionLost):
    """The peers do not agree, or the peer is none of TLS. The alert is sent; the stream must be closed."""


# OpenSSL's state of a handshake takes 45 kB, and clients may begin one and stay silent. If more than this many wait for
# their clients, the one that has waited longest ends. To begin as many others takes the broker a second, and an honest
# client goes on sooner.
WAITING_MAX = 1500


class _Handshakes:
    """All handshakes of a run."""

    def __init__(self) -> None:
        # A step takes up to 1.3 ms, and a thousand clients may connect at once. So each turn of the event loop does one
        # step only, and the requests of connected clients are handled in between.
        self.steps = trio.Lock()
        self.waiting: dict[TlsStream, trio.CancelScope] = {}  # of the server's side, the longest waiting first

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Around a step without a wait."""
        async with self.steps:
            try:
                yield
            finally:
                await trio.lowlevel.cancel_shielded_checkpoint()


_room: trio.lowlevel.RunVar[memoryview] = trio.lowlevel.RunVar("room")


def _room_of_run() -> memoryview:
    """Memory for what one step decrypts. OpenSSL would otherwise allocate as much as it may return, for each record."""
    try:
        return _room.get()
    except LookupError:
        made = memoryview(bytearray(DECRYPT_BYTES))
        _room.set(made)
        return made


def _copied(room: memoryview, size_bytes: int | None) -> bytes | None:
    return None if size_bytes is None else bytes(room[:size_bytes])


_handshakes: trio.lowlevel.RunVar[_Handshakes] = trio.lowlevel.RunVar("handshakes")


def _handshakes_of_run() -> _Handshakes:
    try:
        return _handshakes.get()
    except LookupError:
        made = _Handshakes()
        _handshakes.set(made)
        return made


async def accept_tls(raw: Stream, context: ssl.SSLContext) -> "TlsStream":
    """The handshake of a server. A silent client costs no more than its raw stream.

    HandshakeFailed when the client does not speak TLS, or is refused; ConnectionLost when it goes away.
    """
    begun = bytearray(await _some(raw))
    if begun[0] != HANDSHAKE_RECORD:
        raw.send_now(ALERT)
        raise HandshakeFailed("the client does not speak TLS")
    while len(begun) < HEAD_BYTES:
        begun += await _some(raw)
    length = int.from_bytes(begun[HEAD_BYTES - 2 : HEAD_BYTES])
    if length > RECORD_BYTES_MAX:
        raw.send_now(ALERT)
        raise HandshakeFailed(f"a record of {length} bytes")
    while len(begun) < HEAD_BYTES + length:
        begun += await _some(raw)
    handshakes = _handshakes_of_run()
    async with handshakes.turn():
        stream = TlsStream(raw, context, server_hostname=None, server_side=True)
        is_complete = stream.advance(begun)
    await stream.complete(handshakes, is_complete)
    return stream


async def connect_tls(raw: Stream, context: ssl.SSLContext, host: str) -> "TlsStream":
    """The handshake of a client with the server of this host, whose name is checked if the context says so."""
    handshakes = _handshakes_of_run()
    async with handshakes.turn():
        try:
            stream = TlsStream(raw, context, server_hostname=host, server_side=False)
        except (ValueError, UnicodeError) as error:  # the host is no name that TLS can send
            raise HandshakeFailed(f"{host!r}: {error}") from error
        is_complete = stream.advance(b"")
    await stream.complete(handshakes, is_complete)
    return stream


async def _some(raw: Stream) -> bytes:
    """At least a byte; ConnectionLost at the end."""
    arrived = await raw.receive_some(RECEIVE_BYTES_MIN)
    if not arrived:
        raise ConnectionLost(PEER_CLOSED)
    return arrived


class TlsStream:
    """A `Stream` over another one, after a handshake."""

    __slots__ = (
        "_arrived",
        "_decrypted_all",
        "_ended",
        "_failure",
        "_fruitless_steps",
        "_incoming",
        "_is_whole",
        "_kept_back",
        "_outgoing",
        "_raw",
        "_raw_ended",
        "_tls",
        "_unsent",
        "peer_address",
    )

    def __init__(self, raw: Stream, context: ssl.SSLContext, *, server_hostname: str | None, server_side: bool) -> None:
        self._raw = raw
        self._arrived = ArrivedRecords()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )

        # Whether the handshake is complete and the network has taken all that was encrypted. If not, no close_notify is
        # sent.
        self._is_whole = False
        self._raw_ended = False  # the raw stream has ended, and OpenSSL does not know it yet
        self._ended = False
        self._failure: ConnectionLost | None = None  # of decryption: raised when all data before it was served
        self._decrypted_all = True  # whether no whole record is left of what OpenSSL got
        self._fruitless_steps = 0  # since the last byte of data
        self._unsent = b""  # encrypted, and not taken by the network
        self._kept_back = 0  # bytes that are encrypted, and that `send_now` did not count as taken
        self.peer_address = raw.peer_address

    @property
    def sent_bytes(self) -> int:
        """Bytes that the network has taken, as they are encrypted."""
        return self._raw.sent_bytes

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's verified certificate in DER; None if there is none, or none was asked for."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """The TLS version and the cipher suite."""
        suite = self._tls.cipher()
        return f"{self._tls.version()} {suite[0] if suite is not None else ''}"

    def advance(self, arrived: bytes | bytearray) -> bool:
        """Take a step of the handshake with what arrived, if anything has; whether it is complete."""
        self._arrived.add(arrived)
        while True:
            # Only one portion is taken at a time: data that follows the handshake is decrypted later, in steps.
            if self._arrived.has_portion:
                portion, _ = self._arrived.take(RECORDS_A_STEP)
                self._incoming.write(portion)
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not self._arrived.has_portion:
                    return False
            except ssl.SSLError as error:
                raise self._failed(error, HandshakeFailed) from error
            else:
                return True

    async def complete(self, handshakes: _Handshakes, is_complete: bool) -> None:
        """Take the other steps of the handshake."""
        while not is_complete:
            await self._flush()
            arrived = await self._wait(handshakes)
            async with handshakes.turn():
                is_complete = self.advance(arrived)
        await self._flush()
        self._decrypted_all = False  # a request may have come with the end of the handshake

    async def _wait(self, handshakes: _Handshakes) -> bytes:
        """What the peer says next in the handshake."""
        if not self._tls.server_side:
            return await _some(self._raw)
        waiting = handshakes.waiting
        with trio.CancelScope() as scope:
            waiting[self] = scope
            if len(waiting) > WAITING_MAX:
                waiting.pop(next(iter(waiting))).cancel()
            try:
                return await _some(self._raw)
            finally:
                waiting.pop(self, None)
        raise HandshakeFailed("too many clients do not go on with their handshakes")

    def has_hung_up(self) -> bool:
        return self._raw.has_hung_up()

    def receive_now(self, max_bytes: int) -> bytes | None:
        room = _room_of_run()[:max_bytes]
        return _copied(room, self.receive_into(room))

    def receive_into(self, room: memoryview) -> int | None:
        if self._has_more():
            size_bytes = self._decrypt(room)
            if size_bytes is not None or self._has_more():
                return size_bytes
        arrived = self._raw.receive_now(min(max(len(room), RECEIVE_BYTES_MIN), DECRYPT_BYTES))
        if arrived is None:
            return None
        self._take(arrived)
        return self._decrypt(room)

    async def receive_some(self, max_bytes: int) -> bytes:
        # The checkpoint comes before bytes are taken: a cancelled call has taken none.
        while True:
            if self._has_more():
                await trio.lowlevel.checkpoint()
            else:
                self._take(await self._raw.receive_some(max(max_bytes, RECEIVE_BYTES_MIN)))
            room = _room_of_run()[:max_bytes]
            data = _copied(room, self._decrypt(room))
            if data is not None:
                return data

    def _has_more(self) -> bool:
        """Whether the caller may get something before more arrives: records, the end, or a failure."""
        is_decrypted = self._decrypted_all and not self._arrived.has_portion
        return not is_decrypted or self._raw_ended or self._ended or self._failure is not None

    def _take(self, arrived: bytes) -> None:
        if not arrived:
            self._raw_ended = True
        # A small request comes as one record, which need not be cut into portions.
        elif self._arrived.would_be_one(arrived):
            self._feed(arrived)
        else:
            self._arrived.add(arrived)

    def _decrypt(self, room: memoryview) -> int | None:
        """Decrypt into `room` the records that have arrived as a whole: how many bytes; 0 at the end, None after
        RECORDS_A_STEP records without data, or if more must arrive."""
        size_bytes = self._read_records(room, 0)
        records_left = RECORDS_A_STEP
        while size_bytes < len(room) and records_left and self._arrived.has_portion:
            portion, records = self._arrived.take(records_left)
            records_left -= records
            self._feed(portion)
            size_bytes = self._read_records(room, size_bytes)

        if self._raw_ended and size_bytes < len(room) and not self._arrived.has_portion:
            self._raw_ended = False
            self._feed(self._arrived.take_left())
            self._incoming.write_eof()
            size_bytes = self._read_records(room, size_bytes)

        if size_bytes:
            self._fruitless_steps = 0
        elif not records_left:
            self._note_fruitless()

        return self._result(size_bytes)

    def _feed(self, portion: memoryview | bytes | bytearray) -> None:
        self._incoming.write(portion)
        self._decrypted_all = self._failure is not None

    def _note_fruitless(self) -> None:
        self._fruitless_steps += 1
        if self._fruitless_steps >= FRUITLESS_STEPS_MAX:
            self._failure = ConnectionLost("the peer sends records of TLS without data")

    def _read_records(self, room: memoryview, position: int) -> int:
        """Decrypt into `room` from `position` on, until it is full or nothing is left; where that ends."""
        read = cast("Callable[[int, memoryview], int]", self._tls.read)
        try:
            while position < len(room) and not self._decrypted_all:
                read_bytes = read(0, room[position:])
                if read_bytes:
                    position += read_bytes

                    # OpenSSL takes one record at a time, so if nothing is pending it holds no other whole record. A
                    # `read` that finds none would cost an exception.
                    self._decrypted_all = not self._incoming.pending and not self._tls.pending()
                else:  # a close_notify
                    self._ended = self._decrypted_all = True
        except ssl.SSLWantReadError:
            self._decrypted_all = True
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._ended = self._decrypted_all = True
        except ssl.SSLError as error:
            self._decrypted_all = True
            self._failure = self._failed(error, ConnectionLost)

        return position

    def _result(self, decrypted_bytes: int) -> int | None:
        self._answer()
        if decrypted_bytes:
            return decrypted_bytes
        if self._failure is not None:
            raise self._failure
        return 0 if self._ended else None

    def _answer(self) -> None:
        """Send what OpenSSL answers by itself, such as a key update, as far as the network takes it."""
        if not self._outgoing.pending:
            return
        self._unsent += self._outgoing.read()
        with suppress(ConnectionLost):  # what was decrypted is served first; the next receive or send reports the loss
            self._unsent = self._unsent[self._raw.send_now(self._unsent) :]
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self._failure = ConnectionLost("the peer causes answers of TLS and does not read them")

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        if self._unsent:
            self._unsent = self._unsent[self._raw.send_now(self._unsent) :]
            if self._unsent:
                return 0

        # The caller sends the `_kept_back` bytes again, but their records have left by now.
        counted = min(self._kept_back, len(data))
        self._kept_back -= counted
        piece = memoryview(data)[counted : counted + ENCRYPT_BYTES]
        if piece:
            self._encrypt(piece)
            encrypted = self._outgoing.read()
            self._unsent = encrypted[self._raw.send_now(encrypted) :]

            # Records that the network did not take as a whole leave with the next call. To make sure of that call,
            # their bytes do not count as sent: the caller sends them again, and they are skipped.
            if self._unsent:
                self._kept_back += len(piece)
            else:
                counted += len(piece)

        return counted

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._unsent:
            await self._flush()
        view = memoryview(data)
        size_bytes = len(data)
        position = min(self._kept_back, size_bytes)
        self._kept_back -= position
        while position < size_bytes:
            self._encrypt(view[position : position + ENCRYPT_BYTES])
            await self._flush()
            position += ENCRYPT_BYTES
            # A fast client takes all of it without a wait, so the loop has to give way here.
            if position < size_bytes:
                await trio.lowlevel.checkpoint()

    async def send_slice(self, piece: "FileSlice") -> None:
        position = piece.position
        end = piece.position + piece.size_bytes
        while position < end:
            data = piece.file.read(position, min(end - position, ENCRYPT_BYTES))
            # The file was truncated meanwhile. The length of the frame is sent already and cannot be corrected.
            if not data:
                raise ConnectionLost(f"{piece.file.path} ends before byte {end}, which was announced")
            await self.send_all(data)
            position += len(data)
            if position < end:
                await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Say so to the peer, as far as the network takes it now, and close."""
        if self._is_whole:
            self._is_whole = False
            with suppress(ssl.SSLError):  # raised always: `unwrap` expects the peer's answer, which is not awaited
                self._tls.unwrap()
            with suppress(ConnectionLost):
                self._raw.send_now(self._unsent + self._outgoing.read())
        self._raw.close()

    def _encrypt(self, piece: memoryview) -> None:
        try:
            while (written := self._tls.write(piece)) < len(piece):
                piece = piece[written:]
        except ssl.SSLError as error:
            raise self._failed(error, ConnectionLost) from error

    async def _flush(self) -> None:
        """Send all that is encrypted."""
        unsent, self._unsent = self._unsent + self._outgoing.read(), b""
        if unsent:
            self._is_whole = False  # until the network has taken it: a cancelled call leaves a part of a record
            await self._raw.send_all(unsent)
        self._is_whole = True

    def _failed(self, error: ssl.SSLError, kind: type[ConnectionLost]) -> ConnectionLost:
        """The exception of this error; the alert that OpenSSL wrote is sent as far as the network takes it."""
        self._is_whole = False
        with suppress(ConnectionLost):
            self._raw.send_now(self._unsent + self._outgoing.read())
        self._unsent = b""
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return ConnectionLost(PEER_CLOSED)
        why = error.reason or str(error)
        return kind(f"{why}: {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else why)
