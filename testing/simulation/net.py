"""The simulated network: `world/net.py`'s Net, Listener and Stream between named parties, with faults.

Theory of operation
-------------------
Each party sees the network through its own `PartyNet`, its host name is its name. Messages travel on the wires of
`links.py` and arrive by timers, so a message costs its receiver one task step and no other task any. Buffers are
bounded: a sender waits when the far end does not read.

A party observes the same as with TCP:

    close            the other end reads the sent bytes, then the end; bytes that it sends afterwards cause a reset
    process crash    the kernel closes or resets each connection; connecting is refused
    machine crash    silence: the other end notices late, by its own timeouts; connecting fails
    cut, one way     bytes wait; the sender's connection ends after some seconds, the other end notices even later
    cut while connecting    retried with growing pauses, then failed

Faults are undone one by one: two partitions that cut the same link must both end before it works again.
"""

import errno
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from barnabas.storage.disk import FileSlice
from barnabas.testing.simulation.links import Link, Tap, Wire
from barnabas.testing.simulation.schedule import Simulation
from barnabas.world.net import ConnectionLost, Listener, Net, Stream, copied_into

BUFFER_BYTES = 1 << 17  # sent and not yet read, of one direction of a connection
SLICE_BYTES = 1 << 16  # of a slice of a file that are read and sent in one step
CONNECT_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)  # between attempts, as TCP's
# Where a request has its API key, behind the four bytes with the length of the frame.
_API_KEY = slice(4, 6)  # a short request is sent in one piece
LATE_SECONDS_MAX = 20.0  # until an end notices that the other one is gone without a word

End = bytes | None  # None: the other end sends no more


class SimStream:
    """One end of a connection."""

    __slots__ = (
        "_incoming",
        "_net",
        "_other",
        "_outgoing",
        "_received",
        "_receiver",
        "_sender",
        "_unread",
        "ended",
        "has_connected",
        "is_closed",
        "lost",
        "name",
        "peer_address",
        "sent_bytes",
    )

    def __init__(self, net: "SimNet", name: str, peer_address: str) -> None:
        self.name = name
        self.peer_address = peer_address
        self.sent_bytes = 0
        self.is_closed = False  # by this end
        self.ended = False  # the other end sends no more
        self.lost: str | None = None  # why the connection is dead
        self.has_connected = False  # whether this end made the connection
        self._net = net
        self._received = b""
        self._unread = 0  # bytes that this end sent and the other one has not read
        self._receiver: trio.lowlevel.Task | None = None
        self._sender: trio.lowlevel.Task | None = None
        self._other: SimStream
        self._outgoing: Wire[End]
        self._incoming: Wire[End]

    def join(self, other: "SimStream", outgoing: Link) -> None:
        """Become one end of a connection; the other end joins this one."""
        self._other = other
        self._outgoing = other._incoming = Wire(outgoing, other._arrive, self._given_up)

    def tap(self, tap: Tap[End]) -> None:
        """From now on tell this of what this end sends."""
        self._outgoing.tap = tap

    # -- what the party does

    def has_hung_up(self) -> bool:
        return self.ended or self.is_closed or self.lost is not None

    def receive_now(self, max_bytes: int) -> bytes | None:
        self._check()
        data = self._received
        if not data:
            return b"" if self.ended else None
        # A copy of the rest is made only if the reader takes less than has arrived, which is rare.
        data, self._received = (data, b"") if len(data) <= max_bytes else (data[:max_bytes], data[max_bytes:])
        self._other.was_read(len(data))
        return data

    def receive_into(self, room: memoryview) -> int | None:
        return copied_into(room, self.receive_now(len(room)))

    async def receive_some(self, max_bytes: int) -> bytes:
        # The broker relies on a step between two reads, as with a real socket. Without it one task
        # could read for ever, and no other one would run.
        if self._received:
            await trio.lowlevel.checkpoint()
        # The state is asked again after each wake: what woke this task may have been the loss of
        # the connection.
        while (data := self.receive_now(max_bytes)) is None:
            self._receiver = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_receiving)
        return data

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        self._check()
        taken = bytes(data[: max(0, BUFFER_BYTES - self._unread)])
        if taken:
            self._send(taken)
        return len(taken)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        # The caller may change its buffer while this waits, so the bytes are copied first.
        rest: bytes | memoryview = bytes(data)
        while True:
            self._check()
            space = BUFFER_BYTES - self._unread
            if len(rest) <= space:
                break
            if space > 0:
                self._send(bytes(rest[:space]))
                rest = memoryview(rest)[space:]
            self._sender = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_sending)
        if rest:
            self._send(bytes(rest))

    async def send_slice(self, piece: FileSlice) -> None:
        """In steps, as sendfile does: each reads the file as it then is."""
        position = piece.position
        end = piece.position + piece.size_bytes
        while position < end:
            data = piece.file.read(position, min(end - position, SLICE_BYTES))
            if not data:
                raise ConnectionLost(f"{piece.file.path} ends before byte {end}, which was announced")
            await self.send_all(data)
            position += len(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._net.forget(self)
            if self.lost is None and self._received:  # as TCP does if not everything was read
                self._other.reset_later("reset by the other end", self._outgoing.link.latency())
            elif self.lost is None:
                self._outgoing.send(None)
            # A task of this end that still reads or writes gets `ConnectionLost` from its next
            # check.
            self._wake()

    # -- what happens to it

    def reset(self, why: str) -> None:
        """The connection is dead as this end sees it; the other end does not know."""
        if self.lost is None:
            self.lost = why
            self._net.forget(self)
            self._outgoing.close()
            self._incoming.close()
            self._wake()

    def reset_later(self, why: str, seconds: float) -> None:
        """The same after a time, as when word of it has to travel."""
        self._net.clock.call_in(seconds, self.reset, why)

    def hold(self, seconds: float) -> None:
        """What this end sends from now on is late."""
        self._outgoing.hold(seconds)

    def release(self) -> None:
        """What was held arrives now."""
        self._outgoing.release()

    def part(self, seconds: float) -> None:
        """The connection is dead as this end sees it. What it has sent still arrives; the other end learns later.

        It learns soon if it has made the connection: it would wait for an answer as long as its timeout.
        """
        if self.lost is None and not self.is_closed:
            self.lost = "connection lost"
            self._net.forget(self)
            self._incoming.close()
            # The end that accepted a connection may keep it for long without noticing anything, as
            # a broker keeps an idle client.
            has_connected = self._other.has_connected
            self._other.reset_later("connection lost", self._outgoing.link.latency() if has_connected else seconds)
            self._wake()

    def other_end(self) -> "SimStream":
        """The stream that the other party holds."""
        return self._other

    def was_read(self, size_bytes: int) -> None:
        """The other end took bytes out of its buffer."""
        # The acknowledgement takes no time here, unlike the data: it only opens the window of the
        # sender.
        self._unread -= size_bytes
        if self._sender is not None:
            task = self._sender
            self._sender = None
            trio.lowlevel.reschedule(task)

    def _arrive(self, item: End) -> None:
        if self.is_closed or self.lost is not None:
            if item is not None:  # the kernel knows of no such connection
                self._other.reset_later("reset by the other end", self._incoming.link.latency())
            return
        if item is None:
            self.ended = True
        else:
            # Most messages are read before the next one arrives, so the concatenation is rare.
            self._received = self._received + item if self._received else item
            self._net.trace.note(f"net {self._incoming.link.source} {self._incoming.link.target} {len(item)}")
        if self._receiver is not None:
            task = self._receiver
            self._receiver = None
            trio.lowlevel.reschedule(task)

    def _given_up(self) -> None:
        """What this end sent was not acknowledged for too long."""
        self.reset("no acknowledgement")
        # No packet can tell the other end. It notices by its own keep-alive or timeout, at a time
        # that the seed draws.
        self._other.reset_later("the other end is gone", self._net.rng.random() * LATE_SECONDS_MAX)

    def _send(self, data: bytes) -> None:
        self._unread += len(data)
        self.sent_bytes += len(data)
        if self._net.on_send is not None:
            self._net.on_send(self, data)
        if self._net.late_answers:
            # It is the other end that is held back: the request arrives in time, and its answer is
            # late.
            late = self._net.late_answers.get((self.name, int.from_bytes(data[_API_KEY], "big")))
            if late is not None:
                self._other.hold(late)
        self._outgoing.send(data)

    def _check(self) -> None:
        if self.is_closed:
            raise ConnectionLost("this end was closed")
        if self.lost is not None:
            raise ConnectionLost(self.lost)

    def _wake(self) -> None:
        for task in (self._receiver, self._sender):
            if task is not None:
                trio.lowlevel.reschedule(task)
        self._receiver = self._sender = None

    def _stop_receiving(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._receiver = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _stop_sending(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._sender = None
        return trio.lowlevel.Abort.SUCCEEDED


class SimListener:
    """A listening address of a party."""

    def __init__(self, party: "PartyNet", host: str, port: int, backlog: int) -> None:
        self.host = host
        self.port = port
        self._party = party
        self._backlog = backlog
        self._arrived: list[SimStream] = []
        self._changed = trio.Event()

    async def serve(self, handle: Callable[[Stream], Awaitable[None]], nursery: trio.Nursery) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            # The list is replaced before the handlers start, because a handler's first step may let
            # another connection arrive.
            arrived = self._arrived
            self._arrived = []
            for stream in arrived:
                nursery.start_soon(handle, stream)

    @property
    def is_full(self) -> bool:
        """Whether the broker has not accepted for so long that the kernel takes no more."""
        # A kernel keeps room for one connection even if the backlog is 0.
        return len(self._arrived) >= max(self._backlog, 1)

    def offer(self, stream: SimStream) -> None:
        """A connection was made, and waits to be accepted."""
        self._arrived.append(stream)
        self._changed.set()

    def close(self) -> None:
        self._party.listeners.pop(self.port, None)
        for stream in self._arrived:
            stream.close()
        self._arrived.clear()


class PartyNet(Net):
    """The network as one party sees it, in one life: after a crash it is dead, and the next life has another one."""

    def __init__(self, net: "SimNet", name: str) -> None:
        self.name = name
        self.is_dead = False
        self.listeners: dict[int, SimListener] = {}
        self.streams: dict[SimStream, None] = {}
        self._net = net
        # The ports are counted, not drawn, so that a party that asks for a free port gets the same
        # one in each run of a seed.
        self._next_port = 40_000

    async def listen(self, host: str, port: int, *, backlog: int) -> Listener:
        await trio.lowlevel.checkpoint()
        if port == 0:
            port = self._next_port
            self._next_port += 1
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = self.listeners[port] = SimListener(self, host, port, backlog)
        return listener

    async def connect(self, host: str, port: int) -> Stream:
        out = self._net.link(self.name, host)
        back = self._net.link(host, self.name)
        for pause in (*CONNECT_PAUSES_SECONDS, None):
            # A handshake takes one way there and one back, before the caller may send anything.
            await trio.sleep(out.latency() + back.latency())
            if self.is_dead:
                break
            there = self._net.parties.get(host)
            if there is None or out.is_cut or back.is_cut:  # no such machine, or it is off, or out of reach
                if pause is not None:
                    await trio.sleep(pause)
                continue
            listener = there.listeners.get(port)
            if listener is None:
                raise ConnectionLost(f"{host}:{port}: connection refused")
            if not listener.is_full:
                return self._net.connect(self, there, listener)
            await trio.sleep(pause or 0)

        raise ConnectionLost(f"{host}:{port}: no server answers")


class NetRecorder(Protocol):
    """Hears of connections and cuts (`diagram/recorder.py`), and changes nothing."""

    def connected(self, near: SimStream, far: SimStream) -> None:
        """A connection was made, by the party of the near end."""

    def cut(self, source: str, target: str) -> None:
        """From now on nothing of the one reaches the other."""

    def mended(self, source: str, target: str) -> None:
        """One such cut is taken back."""


class SimNet:
    """All parties, their links and the connections between them."""

    def __init__(self, simulation: Simulation) -> None:
        self.clock = simulation.clock
        self.trace = simulation.trace
        self.rng: random.Random = simulation.rng("net")
        self.parties: dict[str, PartyNet] = {}  # that are there now
        self.parties_seen: dict[str, None] = {}
        # A fault: after a request of this party and API, what the other end sends is held back for
        # so many seconds.
        self.late_answers: dict[tuple[str, int], float] = {}
        self.on_send: Callable[[SimStream, bytes], None] | None = None
        self.recorder: NetRecorder | None = None
        self._links: dict[tuple[str, str], Link] = {}

    def party(self, name: str) -> PartyNet:
        """A party's network from now on; one that it had before is dead."""
        self.parties_seen[name] = None
        party = self.parties[name] = PartyNet(self, name)
        return party

    def link(self, source: str, target: str) -> Link:
        """One direction between two parties."""
        link = self._links.get((source, target))
        if link is None:
            # Each link has a generator of its own. A message on one link then does not change the
            # latencies of the others.
            rng = random.Random(self.rng.random())
            link = self._links[source, target] = Link(self.clock, rng, source, target)
        return link

    def connect(self, source: PartyNet, target: PartyNet, listener: SimListener) -> SimStream:
        """A new connection between two parties; the listener gets its end, the other one is returned."""
        near = SimStream(self, source.name, target.name)
        far = SimStream(self, target.name, source.name)
        near.has_connected = True
        near.join(far, self.link(source.name, target.name))
        far.join(near, self.link(target.name, source.name))
        source.streams[near] = None
        target.streams[far] = None
        if self.recorder is not None:
            self.recorder.connected(near, far)
        listener.offer(far)
        return near

    def forget(self, stream: SimStream) -> None:
        """For `SimStream`: it is closed or dead."""
        party = self.parties.get(stream.name)
        if party is not None:
            party.streams.pop(stream, None)

    @property
    def connection_count(self) -> int:
        """How many ends of connections are open."""
        return sum(len(party.streams) for party in self.parties.values())

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """Nothing from one party reaches the other; the way back is not touched."""
        self.link(source, target).cut()
        if self.recorder is not None:
            self.recorder.cut(source, target)

    def mend(self, source: str, target: str) -> None:
        """Take one `cut` back."""
        self.link(source, target).mend()
        if self.recorder is not None:
            self.recorder.mended(source, target)

    def lose_connections(self, one: str, other: str, *, late: bool) -> int:
        """Every connection between two parties is lost; `late`: one end learns of it only after a while."""
        party = self.parties.get(one)
        lost = [stream for stream in party.streams if stream.peer_address == other] if party is not None else []
        for stream in lost:
            stream.reset("connection lost")
            seconds = self.rng.random() * LATE_SECONDS_MAX if late else self.link(one, other).latency()
            stream.other_end().reset_later("connection lost", seconds)
        return len(lost)

    def part_connections(self, one: str, other: str, seconds: float) -> None:
        """One party has lost its connections to another, which gets what was sent, and learns of it so much later."""
        party = self.parties.get(one)
        for stream in list(party.streams) if party is not None else ():
            if stream.peer_address == other:
                stream.part(seconds)

    def hold_connections(self, source: str, target: str, seconds: float) -> list[SimStream]:
        """What one party sends on the connections that it has to another is late; on new connections it is not."""
        party = self.parties.get(source)
        held = [stream for stream in party.streams if stream.peer_address == target] if party is not None else []
        for stream in held:
            stream.hold(seconds)
        return held

    def crash(self, name: str, *, machine: bool) -> None:
        """A party's process dies, and with `machine` everything around it."""
        party = self.parties.pop(name, None)
        if party is None:
            return
        party.is_dead = True
        for listener in list(party.listeners.values()):
            listener.close()
        for stream in list(party.streams):
            self._break_off(stream, machine=machine)
        party.streams.clear()
        if not machine:
            self.party(name)  # the kernel is there, and refuses connections

    def _break_off(self, stream: SimStream, *, machine: bool) -> None:
        other = stream.other_end()
        if machine:
            stream.reset("this machine is off")
            other.reset_later("the other machine is gone", self.rng.random() * LATE_SECONDS_MAX)
        elif self.rng.random() < 0.5:
            stream.close()  # the kernel sends what it has, and an end
        else:
            stream.reset("this process is dead")
            other.reset_later("reset by the other end", self.link(stream.name, other.name).latency())
