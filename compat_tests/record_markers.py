"""Records what brokers of Apache Kafka exchange about markers of transactions, for unit tests.

`python -m compat_tests.record_markers` writes `tests/coordinators/transactions/markers.json` again. An Apache Kafka
3.9.1 sends its markers to itself as to any other broker; its address for brokers is that of a proxy here, which takes a
copy of each request and its answer. Further requests come from a client: those whose answers have errors.
"""

import json
import pathlib
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress

from barnabas.wire import messages as m
from barnabas.wire.frame import LENGTH_BYTES
from compat_tests.differential.asking_transactions import Writer, await_transactions, marker, markers
from compat_tests.differential.side import Side
from compat_tests.kafka import KafkaProcess, free_port
from compat_tests.raw import RawClient

RECORDED = pathlib.Path(__file__).parent.parent / "tests" / "broker" / "transactions" / "markers.json"
METADATA_VERSIONS = {0: "2.7", 1: "3.9"}  # version of WriteTxnMarkers -> inter.broker.protocol.version
WRITE_TXN_MARKERS = 27
ONE, OTHER, FEW = "markers-one", "markers-other", "markers-few"  # topics; the last one wants two in-sync replicas

Row = dict[str, str | int]


class Recorder:
    """A proxy in front of a broker. `exchanges` are requests of one API and their answers, without their lengths."""

    def __init__(self, api_key: int, to_port: int) -> None:
        self.exchanges: list[tuple[bytes, bytes]] = []
        self._api_key = api_key
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # One of the two has closed the connection, or the broker has ended: the other end is closed as well.
        with (
            suppress(OSError),
            client,
            client.makefile("rb") as asking,
            RawClient(self._to_port, timeout=600) as broker,
        ):
            # Brokers have one request at a time on a connection.
            while prefix := asking.read(LENGTH_BYTES):
                request = asking.read(struct.unpack(">i", prefix)[0])
                broker.send_frame(request)
                answer = broker.receive_frame()
                if struct.unpack_from(">h", request) == (self._api_key,):
                    self.exchanges.append((request, answer))
                client.sendall(struct.pack(">i", len(answer)) + answer)


def transactions(side: Side) -> Iterator[str]:
    """What each one ends, after its markers are written."""
    group = side.name("group")
    side.await_coordinator(group)
    with Writer(side) as writer:
        for name, commit in (("commit", True), ("abort", False)):
            writer.transaction(ONE, b"a", commit=commit)
            yield name
        writer.init()
        writer.add(ONE, partitions=(0, 1, 2))
        writer.add(OTHER, partitions=(1,))
        writer.write(ONE, b"a", partition=2)
        writer.end()
        yield "several topics"
        writer.add_offsets(group)
        writer.commit_offsets(group, (ONE, [(0, 7)]))
        writer.end(commit=False)
        yield "offsets"


def requests() -> Iterator[tuple[str, m.WriteTxnMarkersRequest]]:
    """What a client asks, in this order: later answers follow from earlier markers."""
    yield "nothing", markers()
    yield "no topics", markers(marker(9001, 0, {}))
    yield "epoch 5 of coordinator 5", markers(marker(9001, 5, {ONE: [0]}, coordinator_epoch=5))
    yield "lower epoch", markers(marker(9001, 4, {ONE: [0]}, coordinator_epoch=5))
    yield "lower epoch of the coordinator", markers(marker(9001, 5, {ONE: [0]}, coordinator_epoch=4))
    yield "unknown topic", markers(marker(9001, 5, {"markers-none": [0]}, coordinator_epoch=5))
    yield "unknown partition", markers(marker(9001, 5, {ONE: [9]}, coordinator_epoch=5))
    yield "more replicas wanted than there are", markers(marker(9001, 5, {FEW: [0]}, coordinator_epoch=5))
    yield "two producers", markers(marker(9001, 5, {ONE: [0]}, coordinator_epoch=5), marker(9002, 0, {ONE: [0]}))
    yield "a producer twice", markers(marker(9002, 0, {ONE: [1]}), marker(9002, 0, {ONE: [2]}))


def record(version: int, directory: pathlib.Path) -> Iterator[Row]:
    """Everything in one version of WriteTxnMarkers."""
    kafka = KafkaProcess(directory, inter_broker_protocol_version=METADATA_VERSIONS[version])
    kafka.port, brokers_port = free_port(), free_port()
    recorder = Recorder(WRITE_TXN_MARKERS, brokers_port)
    kafka.settings |= {
        "offsets.topic.num.partitions": "1",
        "listeners": f"CLIENTS://{kafka.bootstrap},BROKERS://127.0.0.1:{brokers_port}",
        "advertised.listeners": f"CLIENTS://{kafka.bootstrap},BROKERS://127.0.0.1:{recorder.port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    with kafka:
        side = Side("kafka", kafka.port, kafka.data_dir, "markers")
        side.create_topic("one", 3)
        side.create_topic("other", 2)
        side.create_topic("few", min_insync_replicas="2")
        await_transactions(side)
        for name in transactions(side):
            (exchange,) = recorder.exchanges
            recorder.exchanges.clear()
            yield row(version, f"coordinator: {name}", *exchange)
        with RawClient(kafka.port) as client:
            client.in_flight.client_id = "client"
            for name, request in requests():
                asked = client.in_flight.frame(request, version)
                client.send(asked)
                yield row(version, f"client: {name}", asked[LENGTH_BYTES:], client.receive_frame())


def row(version: int, name: str, request: bytes, answer: bytes) -> Row:
    return {"version": version, "name": name, "request": request.hex(), "answer": answer.hex()}


def main() -> None:
    rows = []
    for version in METADATA_VERSIONS:
        with tempfile.TemporaryDirectory() as directory:
            rows += [json.dumps(each) for each in record(version, pathlib.Path(directory))]
    RECORDED.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
