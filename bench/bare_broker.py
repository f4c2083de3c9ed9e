"""The upper limit for a Java producer: a bare trio loop that parses, checks the CRC, walks the records and writes them.

It is not a broker: it accepts any one topic with one partition, keeps only the file, wakes no waiting requests, and
serves no reads. But ProducerPerformance can use it like a broker, and no broker in Python on trio can be faster with
the same checks. The checks are the broker's own functions.

Rare requests (ApiVersions, Metadata, InitProducerId) go through the project's codec; Produce is parsed and answered by
hand, in the one version that is advertised.
"""

import os
import struct
import sys

import trio

from barnabas.wire import messages as m
from barnabas.wire.apis import request_header_version, response_header_version
from barnabas.wire.compression import Codec, open_stream
from barnabas.wire.record_batch import BATCH_OVERHEAD_BYTES, checksum, read_batch_header
from barnabas.wire.record_walk import walk_at_once, walk_stream

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
PRODUCE_VERSION = 9
SERVED = {PRODUCE: (PRODUCE_VERSION, PRODUCE_VERSION), METADATA: (9, 9), API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (2, 2)}
RECEIVE_BYTES = 1 << 18
FEW_RECORDS = 8  # as the broker does: so few are walked in place
LARGE_RECORD_BYTES = 1 << 10
PARTITION_ANSWER = struct.Struct(">ihqqqBBB")  # index, error, offsets and time, no record errors, no message, no tags


class BareLog:
    """The file that everything is written to."""

    def __init__(self, directory: str) -> None:
        self.descriptor = os.open(f"{directory}/log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.position = 0
        self.offset = 0

    def append(self, batch: memoryview) -> int:
        """Check a batch and write it; its base offset."""
        header = read_batch_header(batch)
        if checksum(batch) != header.crc:
            raise ValueError("the batch is damaged")
        count = header.record_count
        if count < FEW_RECORDS or len(batch) > count * LARGE_RECORD_BYTES:
            walk_at_once(batch, BATCH_OVERHEAD_BYTES, count)
        else:
            walk_stream(open_stream(Codec.NONE, batch[BATCH_OVERHEAD_BYTES:]), count)
        base_offset = self.offset
        struct.pack_into(">q", batch, 0, base_offset)
        os.pwrite(self.descriptor, batch, self.position)
        self.position += len(batch)
        self.offset += count
        if self.position > 1 << 30:
            os.ftruncate(self.descriptor, 0)
            self.position = 0
        return base_offset


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def answer_produce(log: BareLog, frame: memoryview) -> bytes:
    """Parse a Produce of one batch, append it, answer."""
    correlation_id, client_id_length = struct.unpack_from(">ih", frame, 4)
    position = 10 + max(client_id_length, 0) + 1  # and no tagged fields
    position += 1  # no transactional id
    position += 6  # acks, timeout
    topics, position = read_uvarint(frame, position)
    name_start = position
    name_length, position = read_uvarint(frame, position)
    position += name_length - 1
    name = frame[name_start:position]
    partitions, position = read_uvarint(frame, position)
    if (topics, partitions) != (2, 2):
        raise ValueError("the bare loop takes one batch a request")
    (index,) = struct.unpack_from(">i", frame, position)
    size, position = read_uvarint(frame, position + 4)
    base_offset = log.append(frame[position : position + size - 1])
    body = PARTITION_ANSWER.pack(index, 0, base_offset, -1, 0, 1, 0, 0)
    return b"".join(
        (struct.pack(">iB", correlation_id, 0), b"\x02", name, b"\x02", body, b"\x00", b"\x00\x00\x00\x00\x00")
    )


def answer_rare(frame: memoryview, port: int) -> bytes:
    """Answer what a producer asks before it produces."""
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    if key not in SERVED:
        raise ValueError(f"API key {key} is not served")
    header_version = request_header_version(key, version)
    _, position = m.decode_from(m.RequestHeader, header_version, frame, 0)
    response: m.Message
    if key == API_VERSIONS:
        row = m.ApiVersionsResponse.ApiVersion
        rows = [row(api_key=each, min_version=low, max_version=high) for each, (low, high) in SERVED.items()]
        response = m.ApiVersionsResponse(api_keys=rows)
    elif key == INIT_PRODUCER_ID:
        response = m.InitProducerIdResponse(producer_id=1, producer_epoch=0)
    else:
        request = m.decode(m.MetadataRequest, version, frame, position)
        response = metadata([topic.name or "" for topic in request.topics or ()], port)
    header = m.ResponseHeader(correlation_id=correlation_id)
    return m.encode(header, response_header_version(key, version)) + m.encode(response, version)


def metadata(names: list[str], port: int) -> m.MetadataResponse:
    """Every topic exists, with one partition, here."""
    partition = m.MetadataResponse.MetadataResponsePartition
    topic = m.MetadataResponse.MetadataResponseTopic
    rows = [
        topic(name=name, partitions=[partition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])])
        for name in names
    ]
    brokers = [m.MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)]
    return m.MetadataResponse(brokers=brokers, cluster_id="bare", controller_id=1, topics=rows)


async def serve_one(stream: trio.SocketStream, log: BareLog, port: int) -> None:
    buffer = bytearray()
    sock = stream.socket
    while True:
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            data = await sock.recv(RECEIVE_BYTES)
            if not data:
                return
            buffer += data
        size = int.from_bytes(buffer[:4], "big")
        frame = memoryview(buffer[4 : 4 + size])
        del buffer[: 4 + size]
        is_produce = frame[0] == 0 and frame[1] == PRODUCE
        answer = answer_produce(log, frame) if is_produce else answer_rare(frame, port)
        await stream.send_all(struct.pack(">i", len(answer)) + answer)


async def main(directory: str) -> None:
    log = BareLog(directory)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]

        async def handle(stream: trio.SocketStream) -> None:
            async with stream:
                try:
                    await serve_one(stream, log, port)
                except trio.BrokenResourceError:
                    return  # the producer is gone

        print(f"bare broker at BARE://127.0.0.1:{port}, ready", flush=True)
        await trio.serve_listeners(handle, [listener], handler_nursery=nursery)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
