"""What counting costs a request: the metrics of its API, beside a broker that does not keep them.

One broker in a process of its own has two connections: one was made, and has shown what its requests are like, while
the broker counted, the other one while it did not. Both halves of a pair have the same process and memory. What is
counted for a topic is an integer of its partition, and is not taken out. It is run as `python -m bench.counted`, reads
a mode a line, and prints its CPU seconds so far.
"""

import statistics
import sys
import time

from barnabas.broker.call import Broker
from barnabas.testing import LocalBroker
from bench.intercepted import TOPIC, USED, cpu_us_of, requests, switched
from bench.load import Client

COUNTED, UNCOUNTED = "counted", "uncounted"
PAIRS = 25


def serve() -> None:
    """The process under measurement."""
    with LocalBroker(topics=[TOPIC]) as broker:
        live = broker._live("bench")
        counting = live.look(lambda parts: parts.tally.apis)

        def count(parts: Broker, mode: str) -> None:
            # A request of a key without a tally is not counted.
            parts.tally.apis = counting if mode == COUNTED else dict.fromkeys(counting)  # type: ignore[arg-type]

        print(f"ready: broker at PLAINTEXT://{broker.bootstrap_servers}", flush=True)
        for line in sys.stdin:
            mode = line.strip()
            if mode != USED:
                live.look(lambda parts, mode=mode: count(parts, mode))
            print(time.process_time(), flush=True)


def counted() -> None:
    """The metrics of requests: CPU a request beside a broker that does not count, medians of pairs"""
    print("| request | CPU µs without | with, median of the pairs | quartiles |")
    print("|-|-:|-:|-|")
    with switched("bench.counted") as served:
        clients = {}
        for mode in (COUNTED, UNCOUNTED):
            served.take(mode)
            clients[mode] = Client(served.port)
            for request in requests().values():
                for _ in range(10):
                    clients[mode].ask_frame(request)
        for name, request in requests().items():
            ratios = []
            without = []
            for pair in range(PAIRS):
                order = (COUNTED, UNCOUNTED) if pair % 2 else (UNCOUNTED, COUNTED)
                cpu = {mode: cpu_us_of(served, clients[mode], request, mode) for mode in order}
                without.append(cpu[UNCOUNTED])
                ratios.append((cpu[COUNTED] / cpu[UNCOUNTED] - 1) * 100)
            first, median, third = statistics.quantiles(ratios, n=4)
            row = f"{statistics.median(without):.1f} | {median:+.1f} % | {first:+.1f} to {third:+.1f} %"
            print(f"| {name} | {row} |", flush=True)
        for client in clients.values():
            client.close()


if __name__ == "__main__":
    serve()
