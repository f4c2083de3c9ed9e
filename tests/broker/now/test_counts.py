"""How many Python functions and coroutines an ordinary request takes once its shape is known: no noise, no clock."""

import inspect
import socket
import struct
import sys
from collections import Counter

import pytest
import trio

from barnabas.storage.osdisk import OsDisk
from barnabas.wire.records import build_batch
from barnabas.world.net import OsNet
from barnabas.world.world import wall_clock_ms
from tests.broker import harness
from tests.broker.harness import Machine
from tests.broker.requests import produce_request

REQUESTS = 200
# A third of them walks the records in columns; the compiled form has one loop for that.
FUNCTIONS_MAX = 120
COROUTINES_MAX = 3


class Calls:
    """Counts the calls of Python functions in this thread."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.functions = self.coroutines = 0

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _note(self, frame, event, _):
        if event == "call":
            code = frame.f_code
            self.by_name[f"{code.co_filename.rpartition('/')[2]}:{code.co_qualname}"] += 1
            # A coroutine that goes on after a wait is called again: of these only the first call counts.
            if not code.co_flags & inspect.CO_COROUTINE:
                self.functions += 1
            elif frame.f_lasti < 0 or frame.f_lineno == code.co_firstlineno:
                self.coroutines += 1


def ask_again_and_again(port: int, frame: bytes, count: int, window: int) -> None:
    """In a thread of its own: keeps `window` requests under way."""
    whole = struct.pack(">i", len(frame)) + frame
    with socket.create_connection(("127.0.0.1", port)) as client:
        received = b""
        sent = answered = 0
        while answered < count:
            while sent < min(count, answered + window):
                client.sendall(whole)
                sent += 1
            received += client.recv(1 << 16)
            while len(received) >= 4 and len(received) >= 4 + int.from_bytes(received[:4], "big"):
                received = received[4 + int.from_bytes(received[:4], "big") :]
                answered += 1


async def calls_of(machine, frame, window):
    port = machine.serving.advertised[0].port
    await trio.to_thread.run_sync(ask_again_and_again, port, frame, REQUESTS, window)
    with Calls() as calls:
        await trio.to_thread.run_sync(ask_again_and_again, port, frame, REQUESTS, window)
    return calls


@pytest.mark.parametrize("window", [1, 5])
async def test_a_produce_of_150_records_takes_few_functions(nursery, tmp_path, window, monkeypatch):
    monkeypatch.setattr(harness, "now_ms", wall_clock_ms)
    machine = Machine(nursery, disk=OsDisk(), net=OsNet(), log_dirs=str(tmp_path), listeners="PLAINTEXT://127.0.0.1:0")
    await machine.start()
    client = await machine.connect()
    await client.create_topic("t")
    batch = build_batch([(None, bytes(100))] * 150, timestamp_ms=1_700_000_000_000)
    frame = client.frame_of(produce_request("t", bytearray(batch.data), acks=1))
    calls = await calls_of(machine, frame, window)
    assert calls.functions / REQUESTS <= FUNCTIONS_MAX, calls.by_name.most_common(150)
    assert calls.coroutines / REQUESTS <= COROUTINES_MAX
