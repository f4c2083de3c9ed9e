"""How many Python functions and coroutines an ordinary request takes once its shape is known: no noise, no clock."""

import inspect
import socket
import struct
import sys
import threading
from collections import Counter

import pytest
import trio

from barnabas.storage.entries import walk_buffer
from barnabas.storage.osdisk import OsDisk
from barnabas.wire import messages as m
from barnabas.wire.asking import request_frame
from barnabas.wire.records import build_batch
from barnabas.world.net import OsNet
from barnabas.world.world import wall_clock_ms
from tests.broker import harness
from tests.broker.clusters import create_topic
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, produce_request

REQUESTS = 200
# A third of them walks the records in columns; the compiled form has one loop for that.
FUNCTIONS_MAX = 110
COROUTINES_MAX = 3
# Each follower sends about one Fetch for a Produce; how many exactly depends on the machine.
REPLICATED_FUNCTIONS_MAX = 400
REPLICATED_COROUTINES_MAX = 20


class Calls:
    """Counts the calls of the broker's functions in this thread."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.functions = self.coroutines = 0

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _note(self, frame, event, _):
        code = frame.f_code
        # How often Trio's loop turns depends on the machine.
        if event == "call" and "/barnabas/" in code.co_filename:
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


def follow(port: int, topic_id: bytes, replica_id: int, is_over: threading.Event) -> None:
    """In a thread of its own: a follower that fetches partition 0 in a session, each time from its log end."""
    number = session_id = epoch = offset = 0
    state = m.FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=-1)
    with socket.create_connection(("127.0.0.1", port)) as leader:
        stream = leader.makefile("rb")
        while not is_over.is_set():
            fields = {"max_wait_ms": 100, "session": (session_id, epoch), "replica_state": state}
            request = fetch_request([(topic_id, 0, offset)], leader_epoch=0, last_fetched_epoch=0, **fields)
            request.topics[0].partitions[0].log_start_offset = 0
            number += 1
            frame = request_frame(request, 17, number, "follower")
            leader.sendall(frame)
            body = stream.read(int.from_bytes(stream.read(4), "big"))
            if not body:
                return  # the broker stops
            response = m.decode(m.FetchResponse, 17, body[5:])
            session_id, epoch = response.session_id, epoch + 1
            for row in (row for topic in response.responses for row in topic.partitions):
                assert row.error_code == 0
                for span, _ in walk_buffer(memoryview(bytes(row.records))):
                    offset = span.last_offset + 1


async def calls_of(machine, frame, window):
    """Of a warm broker, while a client sends this frame again and again."""
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


async def test_a_produce_with_three_replicas_takes_few_functions_at_the_leader(nursery, tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "now_ms", wall_clock_ms)
    machine = Machine(nursery, disk=OsDisk(), net=OsNet(), log_dirs=str(tmp_path), listeners="PLAINTEXT://127.0.0.1:0")
    await machine.start()
    # It takes the controller's connections and answers nothing, so that the controller does not try again and again.
    silent = socket.create_server(("127.0.0.1", 0))
    for broker_id in (2, 3):
        await machine.join(broker_id, silent.getsockname()[1])
    client = await machine.connect()
    topic_id = await create_topic(client, "t", [machine.broker.broker_id, 2, 3])
    batch = build_batch([(None, bytes(100))] * 150, timestamp_ms=1_700_000_000_000)
    frame = client.frame_of(produce_request("t", bytearray(batch.data), acks=-1))
    port, is_over = machine.serving.advertised[0].port, threading.Event()
    for replica_id in (2, 3):
        nursery.start_soon(trio.to_thread.run_sync, follow, port, topic_id, replica_id, is_over)
    calls = await calls_of(machine, frame, 5)
    is_over.set()
    silent.close()
    assert calls.functions / REQUESTS <= REPLICATED_FUNCTIONS_MAX, calls.by_name.most_common(150)
    assert calls.coroutines / REQUESTS <= REPLICATED_COROUTINES_MAX, calls.by_name.most_common(150)
