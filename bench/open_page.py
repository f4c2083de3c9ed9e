"""What an open page costs a broker: 100 partitions, 5,000 records a second, and one browser that looks at all of them.

The browser is a reader of the page's feed. Halves with it and without it alternate; the broker is one process, and gets
the same records all the time. `python -m bench.open_page [pairs]`.
"""

import itertools
import socket
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from barnabas.wire import messages as m
from bench.load import PRODUCE_VERSION, Case, Client, batch_of, create_topic, frame
from bench.processes import Measured, broker

TOPIC = "looked-at"
PARTITIONS = 100
RECORDS_PER_SECOND = 5000
BATCH = Case("5 x 100 B", 5, 100)
TICK_SECONDS = 0.01
HALF_SECONDS = 10.0
SETTLING_SECONDS = 2.0  # the first event has all rows
PAIRS = 5
NS = 1_000_000_000


class Half(NamedTuple):
    """What the broker used in one half."""

    core_share: float
    resident_bytes: int


class Browser:
    """A reader of the feed, which counts what it is sent."""

    def __init__(self, port: int) -> None:
        self.events = 0
        self.bytes = 0
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(f"GET /v1/feed?topics={TOPIC} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := self._socket.recv(1 << 16):
            self.bytes += len(data)
            self.events += data.count(b"event: partitions")

    def close(self) -> None:
        """Leave."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


def free_port() -> int:
    """A port that nothing has at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def produce_frames() -> list[bytes]:
    """A Produce of one small batch to each partition."""
    records = batch_of(BATCH)
    frames = []
    for index in range(PARTITIONS):
        data = m.ProduceRequest.PartitionProduceData(index=index, records=records)
        topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        frames.append(frame(m.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION))
    return frames


def scheduled_seconds(served: Measured) -> float:
    """The processor time of all its threads, as the scheduler counts it."""
    tasks = Path(f"/proc/{served.process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / NS


def load(client: Client, frames: "itertools.cycle[bytes]", seconds: float) -> None:
    """Send so many records a second."""
    each_tick = round(RECORDS_PER_SECOND * TICK_SECONDS / BATCH.records)
    began = time.monotonic()
    for tick in range(round(seconds / TICK_SECONDS)):
        for _ in range(each_tick):
            client.send(next(frames))
        for _ in range(each_tick):
            client.receive_frame()
        time.sleep(max(0.0, began + (tick + 1) * TICK_SECONDS - time.monotonic()))


def half(served: Measured, client: Client, frames: "itertools.cycle[bytes]") -> Half:
    """Load for a while."""
    load(client, frames, SETTLING_SECONDS)
    used, began = scheduled_seconds(served), time.monotonic()
    load(client, frames, HALF_SECONDS)
    elapsed = time.monotonic() - began
    return Half((scheduled_seconds(served) - used) / elapsed, served.resident_bytes())


def open_page(pairs: int = PAIRS) -> None:
    """An open page: what a broker of 100 partitions uses more at 5,000 records/s"""
    port = free_port()
    with broker(f"barnabas.http.listener=127.0.0.1:{port}") as served:
        client = Client(served.port)
        create_topic(client, TOPIC, PARTITIONS)
        frames = itertools.cycle(produce_frames())
        load(client, frames, 2 * SETTLING_SECONDS)
        print("| closed, % of a core | open | more | MiB closed | open | events/s | kB/s |")
        print("|-|-|-|-|-|-|-|")
        more = []
        for pair in range(pairs):
            found: dict[str, Half] = {}
            for mode in ("closed", "open") if pair % 2 else ("open", "closed"):
                browser = Browser(port) if mode == "open" else None
                found[mode] = half(served, client, frames)
                if browser is not None:
                    browser.close()
                    seen = browser
            more.append((found["open"].core_share - found["closed"].core_share) * 100)
            seconds = HALF_SECONDS + SETTLING_SECONDS
            print(
                f"| {found['closed'].core_share:.2%} | {found['open'].core_share:.2%} | {more[-1]:+.2f} % "
                f"| {found['closed'].resident_bytes / (1 << 20):.1f} | {found['open'].resident_bytes / (1 << 20):.1f} "
                f"| {seen.events / seconds:.1f} | {seen.bytes / seconds / 1000:.0f} |",
                flush=True,
            )
        print(f"\nMedian: {statistics.median(more):+.2f} % of a core.")
        client.close()


if __name__ == "__main__":
    open_page(*map(int, sys.argv[1:]))
