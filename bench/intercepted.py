"""What the seam for tests costs a request: nothing armed, the request log on, a fault armed for something else.

One broker in a process of its own changes its mode between runs, so both halves of a pair have the same process, memory
and connection. It is run as `python -m bench.intercepted`, reads a mode a line, and prints its CPU seconds so far.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.broker.call import Broker
from barnabas.testing import LocalBroker
from barnabas.wire import messages as m
from bench.load import WINDOW, Case, Client, batch_of, check_fetched, check_produced, fetch_frame, frame, produce_frame
from bench.processes import Measured

TOPIC = "bench"
METADATA_VERSION = 12
HEARTBEAT_VERSION = 4
REQUESTS = 1500  # of one half of a pair
PAIRS = 9
SMALL, MANY = Case("1 x 100 B", 1, 100), Case("150 x 100 B", 150, 100)
USED = "used"  # asks for the CPU seconds, and changes nothing
NONE, IDLE, LOG, FAULT = "none", "idle", "log", "fault"
COLUMNS = {IDLE: "nothing armed", LOG: "request log", FAULT: "another fault armed"}


class Seam:
    """A broker whose seam is taken out, idle, or used."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._live = broker._live("bench")
        self._interception = self._live.look(lambda parts: parts.interception)

    def take(self, mode: str) -> None:
        """From now on requests meet this."""
        self._broker.faults.clear()
        # What it has stays: in a long test it is full, and forgets as much as it takes up.
        self._broker.requests.is_on = mode == LOG
        if mode == FAULT:
            self._broker.faults.fail("DeleteTopics", "REQUEST_TIMED_OUT", may_miss=True)
        interception = None if mode == NONE else self._interception

        def put(parts: Broker) -> None:
            object.__setattr__(parts, "interception", interception)  # it is frozen, for all but this

        self._live.look(put)


def serve() -> None:
    """The process under measurement."""
    with LocalBroker(topics=[TOPIC]) as broker:
        seam = Seam(broker)
        print(f"ready: broker at PLAINTEXT://{broker.bootstrap_servers}", flush=True)
        for line in sys.stdin:
            if line.strip() != USED:
                seam.take(line.strip())
            print(time.process_time(), flush=True)


class Switched(Measured):
    """That process, as its parent sees it."""

    def take(self, mode: str) -> float:
        """Change the mode; the CPU seconds until now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{mode}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def switched(module: str = "bench.intercepted") -> Iterator[Switched]:
    """A broker whose mode can be changed."""
    running = Switched([sys.executable, "-m", module])
    try:
        yield running
    finally:
        running.stop()


def requests() -> dict[str, bytes]:
    """One frame of each kind that is measured."""
    topics = [m.MetadataRequest.MetadataRequestTopic(name=TOPIC)]
    return {
        f"Produce {SMALL.name}": produce_frame(TOPIC, batch_of(SMALL)),
        f"Produce {MANY.name}": produce_frame(TOPIC, batch_of(MANY)),
        f"Fetch {SMALL.name}": fetch_frame(TOPIC, 0, 1),
        "Metadata of a topic": frame(m.MetadataRequest(topics=topics), METADATA_VERSION),
        "Heartbeat": frame(m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HEARTBEAT_VERSION),
    }


def intercepted() -> None:
    """The seam for tests: CPU a request beside a broker without it, medians of pairs"""
    print(f"| request | CPU µs without | {' | '.join(COLUMNS.values())} |")
    print("|-|-|-|-|-|")
    with switched() as served:
        client = Client(served.port)
        check_produced(client.ask_frame(produce_frame(TOPIC, batch_of(SMALL))))
        check_fetched(client.ask_frame(fetch_frame(TOPIC, 0, 1)))
        client.close()
        for name, request in requests().items():
            # As a client's: one that sends heartbeats writes and reads over other connections.
            client = Client(served.port)
            shares = []
            without = []
            for mode in COLUMNS:
                ratios = []
                for pair in range(PAIRS):
                    order = (NONE, mode) if pair % 2 else (mode, NONE)
                    cpu = {each: cpu_us_of(served, client, request, each) for each in order}
                    without.append(cpu[NONE])
                    ratios.append(cpu[mode] / cpu[NONE])
                shares.append(f"{(statistics.median(ratios) - 1) * 100:+.1f} %")
            client.close()
            print(f"| {name} | {statistics.median(without):.1f} | {' | '.join(shares)} |", flush=True)


def cpu_us_of(served: Switched, client: Client, request: bytes, mode: str) -> float:
    """What a request costs the broker in this mode."""
    before = served.take(mode)
    # The requests of a window come at once, so that both halves of a pair have as many wake-ups: one by one, it is the
    # client's speed that decides how many a broker finds at a time.
    for _ in range(REQUESTS // WINDOW):
        client.send(request * WINDOW)
        for _ in range(WINDOW):
            client.receive_frame()
    return (served.take(USED) - before) / REQUESTS * 1e6


if __name__ == "__main__":
    serve()
