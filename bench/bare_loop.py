"""The ceiling: per request one frame read, one batch header unpacked, one CRC, one pwrite, one answer. No protocol.

What a Python broker on trio cannot beat on this machine; the broker's own figures are read as a ratio to it. Frames
with an API key other than Produce are answered with the bytes that were last written (a bare Fetch).
"""

import os
import struct
import sys

import trio
from crc32c import crc32c

PRODUCE = 0
RECEIVE_BYTES = 1 << 18
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
ANSWER = struct.Struct(">iiq")


async def serve_one(stream: trio.SocketStream, descriptor: int, state: dict[str, int]) -> None:
    buffer = bytearray()
    sock = stream.socket
    while True:
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            data = await sock.recv(RECEIVE_BYTES)
            if not data:
                return
            buffer += data
        size = int.from_bytes(buffer[:4], "big")
        frame = memoryview(bytes(buffer[4 : 4 + size]))
        del buffer[: 4 + size]
        key, correlation_id, start = struct.unpack_from(">hxxi", frame)[0], 0, struct.unpack_from(">i", frame, 8)[0]
        if key == PRODUCE:
            batch = frame[start:]
            header = BATCH_HEADER.unpack_from(batch)
            if crc32c(batch[21:]) != header[4]:
                raise ValueError("the batch is damaged")
            os.pwrite(descriptor, batch, state["end"])
            state["end"] += len(batch)
            state["last"] = len(batch)
            await sock.send(ANSWER.pack(12, correlation_id, state["end"]))
        else:
            data = os.pread(descriptor, state["last"], state["end"] - state["last"])
            await stream.send_all(ANSWER.pack(12 + len(data), correlation_id, state["end"]) + data)


async def main(directory: str) -> None:
    descriptor = os.open(f"{directory}/log", os.O_RDWR | os.O_CREAT)
    state = {"end": 0, "last": 0}

    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            await serve_one(stream, descriptor, state)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        print(f"bare loop at BARE://127.0.0.1:{listener.socket.getsockname()[1]}, ready", flush=True)
        await trio.serve_listeners(handle, [listener], handler_nursery=nursery)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
