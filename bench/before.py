"""This checkout beside another one of the same project: has anything become slower?

Both brokers are up; each case runs in pairs, one right after the other, alternating which goes first. What counts is
the broker's CPU per request, as the median of the pairs' ratios: a quiet machine is needed to see two hundredths.
"""

import pathlib
import statistics
from collections.abc import Iterator
from contextlib import ExitStack

from bench.load import CASES, Case, Client, batch_of, check_fetched, create_topic, fetch_frame, produce_frame
from bench.measurements import enough
from bench.pairs import Line, table
from bench.processes import Measured, broker

BEFORE, NOW = "before", "Barnabas"
SLOWER_MAX = 1.02
FETCHED_BATCHES = 50
MORE_CASES = (
    Case("1 x 100 B gzip", 1, 100, codec=1),
    Case("150 x 100 B snappy", 150, 100, codec=2),
    Case("150 x 100 B zstd", 150, 100, codec=4),
    Case("9,000 x 100 B lz4", 9000, 100, codec=3),
)


def compare(checkout: pathlib.Path, pairs: int) -> int:
    """Print the table; how many lines are slower than they may be."""
    with ExitStack() as stack:
        servers = {
            BEFORE: stack.enter_context(broker(source=checkout / "src")),
            NOW: stack.enter_context(broker()),
        }
        lines = [line for case in (*CASES, *MORE_CASES) for line in _lines(case, servers, pairs)]
    print("\n".join(table(lines)))
    return sum(statistics.median(line.ratios()) > SLOWER_MAX for line in lines)


def _lines(case: Case, servers: dict[str, Measured], pairs: int) -> Iterator[Line]:
    """Produce with acks=all, then Fetch of what was produced, batch by batch."""
    batch = batch_of(case)
    topic = f"{case.records}-{case.record_bytes}-{case.codec}"
    clients = {name: Client(server.port) for name, server in servers.items()}
    for client in clients.values():
        create_topic(client, topic)
        # So many that both logs hold what is fetched below: a Fetch beyond the log end costs next to nothing.
        for _ in range(FETCHED_BATCHES):
            client.ask_frame(produce_frame(topic, batch))
    produced = [produce_frame(topic, batch)]
    fetched = [fetch_frame(topic, number * case.records, 1) for number in range(FETCHED_BATCHES)]
    for name, frames in ((f"Produce {case.name}", produced), (f"Fetch {case.name}", fetched)):
        if frames is fetched:
            for client in clients.values():
                check_fetched(client.ask_frame(frames[0]))
        line = Line(name, "CPU µs a request", SLOWER_MAX, higher_is_better=False, against=BEFORE)
        count = max(enough(client, frames[0]) for client in clients.values())
        requests = (frames * (count // len(frames) + 1))[:count]
        for pair in range(pairs):
            for contender in sorted(servers, reverse=pair % 2 == 1):
                figures = clients[contender].repeat(requests, servers[contender], len(batch))
                line.add(contender, figures.cpu_us_per_request)
        if frames is fetched:
            for client in clients.values():
                check_fetched(client.ask_frame(frames[-1]))
        yield line
    for client in clients.values():
        client.close()
