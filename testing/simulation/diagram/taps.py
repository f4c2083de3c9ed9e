"""Taps on the wires of a run: each hears of one direction of a connection, and keeps its messages.

Items of a connection are pieces of a stream of bytes; a message is one frame in it, from the first byte sent to the
last one that arrives. A frame is read when it is whole, and only what `frames.py` says of it is kept. Items of a
session with the metadata store are messages already.
"""

import struct
from collections import deque
from collections.abc import Callable

from barnabas.controller.store import paths
from barnabas.controller.store.store import Check, Create, Delete, NodeError, Op, SetData, ops_of
from barnabas.testing.simulation.diagram.frames import FetchSessions, Row, Summary, Talk
from barnabas.testing.simulation.diagram.recording import Partition, Recording, Sent
from barnabas.testing.simulation.net import End, SimStream
from barnabas.testing.simulation.store import STORE
from barnabas.testing.simulation.store import Message as StoreMessage
from barnabas.testing.simulation.store import Request as StoreRequest
from barnabas.testing.simulation.tree import WatchKey
from barnabas.wire.frame import LENGTH_BYTES

TO_CLOSED = "its receiver had closed the connection"
GIVEN_UP = "no acknowledgement"  # a wire that closes by itself
STORE_LOST = "the connection to the store is lost"
READ, WRITE, WATCH = "store read", "store write", "store watch"
OP_WORDS = {Create: "create", SetData: "set", Delete: "delete", Check: "check"}
_INT32 = struct.Struct(">i")


class Messages:
    """What all taps of a run share."""

    def __init__(self, recording: Recording) -> None:
        self.now: Callable[[], float] = lambda: 0.0  # seconds since the run began
        self.fetch_sessions = FetchSessions()
        self.store_requests: dict[StoreRequest, int] = {}  # the latest message of each
        self._recording = recording

    def begin(self, source: str, target: str) -> Sent:
        """The first byte of a message is sent."""
        sent = Sent(len(self._recording.messages), self.now(), source, target)
        self._recording.messages.append(sent)
        return sent

    def summarize(self, sent: Sent, summary: Summary) -> None:
        """The message is read."""
        self._recording.topic_names.update(summary.names)
        sent.summary = summary

    def asked(self, talk: Talk, sent: Sent, frame: memoryview) -> None:
        """This message is a request."""
        self.summarize(sent, talk.asked(sent.number, frame))

    def answered(self, talk: Talk, sent: Sent, frame: memoryview) -> None:
        """This message is a response."""
        answer = talk.answered(frame)
        if answer is not None:
            sent.answers, summary = answer
            self.summarize(sent, summary)


class StreamTap:
    """One direction of a connection: what `end` sends. `read` gets each message with its whole frame."""

    def __init__(self, messages: Messages, end: SimStream, read: Callable[[Sent, memoryview], None]) -> None:
        self._messages = messages
        self._end = end
        self._read = read
        self._frame = bytearray()  # the first part of the frame that is being sent
        self._flying: deque[Sent] = deque()  # while `_frame` is not empty, the last one is not whole
        self._arrived_bytes = 0  # of the first message in `_flying`
        self._is_refused = False  # bytes came to an end that was closed

    def sent(self, item: End) -> None:
        """For `Wire`."""
        data = memoryview(item or b"")
        while data:
            # Most frames are sent in one piece; large responses are not, and some clients send byte by byte on purpose.
            # The first byte of a frame begins a message, even if no other byte will follow.
            if not self._frame:
                self._flying.append(self._messages.begin(self._end.name, self._end.peer_address))
            missing = self._missing_bytes()
            self._frame += data[:missing]
            data = data[missing:]

            sent = self._flying[-1]
            sent.size_bytes = len(self._frame)
            if self._missing_bytes() == 0:
                frame = memoryview(bytes(self._frame))[LENGTH_BYTES:]
                self._frame.clear()
                self._read(sent, frame)

    def _missing_bytes(self) -> int:
        """How many bytes the length of the frame lacks, or the rest of it."""
        if len(self._frame) < LENGTH_BYTES:
            return LENGTH_BYTES - len(self._frame)
        # A client that speaks no Kafka may claim a negative length. The broker closes the connection then.
        (length,) = _INT32.unpack_from(self._frame)
        return max(0, LENGTH_BYTES + int(length) - len(self._frame))

    def arrived(self, item: End) -> None:
        """For `Wire`."""
        # The tap hears of an item before the far end gets it, so this is what the far end was before.
        far = self._end.other_end()
        self._is_refused = self._is_refused or far.is_closed or far.lost is not None
        self._arrived_bytes += len(item or b"")
        while self._flying and self._arrived_bytes >= self._flying[0].size_bytes:
            # All that was sent of the last message is there, and that is not the whole message.
            if len(self._flying) == 1 and self._frame:
                return
            sent = self._flying.popleft()
            self._arrived_bytes -= sent.size_bytes
            sent.ended = self._messages.now()
            sent.lost = TO_CLOSED if self._is_refused else ""

    def closed(self) -> None:
        """For `Wire`."""
        # Whichever end knows why it is dead says so. A wire that gives up closes before its end knows.
        _lose(self._flying, self._messages.now(), self._end.lost or self._end.other_end().lost or GIVEN_UP)


class StoreTap:
    """One direction of a session's connection to the metadata store."""

    def __init__(self, messages: Messages, source: str, target: str) -> None:
        self._messages = messages
        self._source = source
        self._target = target
        self._flying: deque[Sent] = deque()

    def sent(self, item: StoreMessage) -> None:
        """For `Wire`."""
        sent = self._messages.begin(self._source, self._target)
        self._flying.append(sent)
        requests = self._messages.store_requests
        # A request whose connection breaks is sent again over the next one, so it may be several messages. Its answer
        # belongs to the latest of them: answers of closed connections do not arrive.
        if not isinstance(item.what, StoreRequest):
            summary = _summary_of(item.what)
        elif self._target == STORE:
            requests[item.what] = sent.number
            summary = _summary_of_request(item.what)
        else:
            sent.answers = requests[item.what]
            summary = _summary_of_request(item.what)._replace(errors=_errors_of(item.what))
        self._messages.summarize(sent, summary)

    def arrived(self, item: StoreMessage) -> None:
        """For `Wire`."""
        sent = self._flying.popleft()
        sent.ended = self._messages.now()
        sent.lost = ""

    def closed(self) -> None:
        """For `Wire`."""
        _lose(self._flying, self._messages.now(), STORE_LOST)


def _lose(flying: deque[Sent], now: float, why: str) -> None:
    for sent in flying:
        sent.ended = now
        sent.lost = why
    flying.clear()


def partition_at(path: str) -> Partition | None:
    """The partition whose state is at this path of the metadata store; None if it is another path."""
    if not path.startswith(paths.TOPICS + "/") or not path.endswith("/state"):
        return None
    _, _, _, topic, _, index, _ = path.split("/")
    return topic, int(index)


def _summary_of(what: WatchKey | str) -> Summary:
    """A message that is no request, nor its answer: a word, or what a watch is about."""
    if isinstance(what, str):
        return Summary(f"store {what}", -1)
    kind, path = what
    return Summary(WATCH, -1, f"{kind} of {path}", _rows_at(path, ""))


def _summary_of_request(request: StoreRequest) -> Summary:
    if request.item is not None:
        ops = ops_of(request.item)
        rows = tuple(row for op in ops for row in _rows_at(op.path, _state_in(op)))
        return Summary(WRITE, -1, ", ".join(f"{OP_WORDS[type(op)]} {op.path}" for op in ops), rows)
    assert request.key is not None, "a request reads or writes"
    kind, path = request.key
    return Summary(READ, -1, f"{kind} of {path}", _rows_at(path, ""))


def _rows_at(path: str, words: str) -> tuple[Row, ...]:
    partition = partition_at(path)
    return () if partition is None else (Row(*partition, "", words),)


def _state_in(op: Op) -> str:
    if not isinstance(op, Create | SetData) or partition_at(op.path) is None:
        return ""
    state = paths.PartitionState.decode(op.data, op.path)
    return f"leader {state.leader}, epoch {state.leader_epoch}, ISR {','.join(map(str, state.isr))}"


def _errors_of(request: StoreRequest) -> tuple[str, ...]:
    # A read that fails raises, a write has its error as a value, and a multi one for each of its operations.
    outcomes = request.outcome if isinstance(request.outcome, list) else [request.outcome]
    found = [each for each in (request.error, *outcomes) if isinstance(each, NodeError)]
    return tuple(dict.fromkeys(type(each).__name__ for each in found))
