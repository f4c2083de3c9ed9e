"""Pages in `docs/` and their charts, from the books of runs."""

import math
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from bench.pairs import COMPILED, Book, Line, number, table
from bench.run import QUIET_LOAD_MAX, is_steady

DOCS = pathlib.Path(__file__).parent.parent / "docs"
NOT_CHARTED = (
    "Produce beside the bare loop",
    "Committed records beside all records",
    "Broker CPU",
    "Broker CPU per MB",
)


class Page(NamedTuple):
    """A page's file name without suffix, its title, and what is said before the figures."""

    name: str
    title: str
    introduction: str


BROKER_PAGE = Page(
    "performance",
    "Performance beside Apache Kafka",
    """Written by `make bench ARGS=kafka` (see [bench/](../bench/README.md)); do not edit.

Barnabas and Apache Kafka 3.9.1 were run at the same time on one machine, with the same properties file
([bench/server.properties](../bench/server.properties)) and their data on the same disk; Kafka with `-Xms1g -Xmx1g` and
a ZooKeeper, Barnabas with its embedded store, from an installed wheel: *Barnabas* is pure Python, *compiled* its
compiled form. Every case was run in {pairs} pairs, one broker right after the other, in alternating order, of *warm*
brokers: before the first pair both did the same runs until the CPU per MB of Kafka's last three differed by less than 5
% ([Warm-up](#warm-up)). A Kafka that has just started costs several times as much, and a broker runs for months. A
**ratio** is Barnabas ÷ Kafka, the median of the pairs' ratios; all pairs are given, because the speed of a machine
varies: two runs of Kafka against itself differ by 5–10 %. Figures of the brokers are medians.

Topics have one partition. *Produce* and *Consume* are Kafka's own ProducerPerformance and ConsumerPerformance in their
default settings (16 kB batches). *End to end* is EndToEndLatency, which gives percentiles in whole milliseconds. Python
clients send records of 100 bytes in their default settings, except that confluent-kafka's consumer pauses for 10 ms,
not for a second, when its queue is full. *Start* is the time from exec of the broker on an empty directory: to the
ready line of Barnabas, or an open port of Kafka; and to the first record that a kafka-python process, which was started
before and retries, has produced and read through a group. CPU and memory are those of the broker process; ZooKeeper's
are not counted.

The *bare loop* is a Trio program that does the minimum work of a Produce in Python: it parses the request, checks the
CRC, walks the records, writes them and responds. It is the upper limit for a broker built like this one.
""",
)

GROWTH_PAGE = Page(
    "performance-growth",
    "Many connections, partitions and groups, beside Apache Kafka",
    """Written by `make bench ARGS=growth` (see [bench/](../bench/README.md)); do not edit.

Barnabas and Apache Kafka 3.9.1 on one machine, as in [performance.md](performance.md). Every case was run in {pairs}
pairs (10,000 partitions in half as many), in alternating order. A **ratio** is Barnabas ÷ Kafka, the median of the
pairs' ratios.

*Connections*, *one each ms* and *groups* send small requests at a fixed rate: 2,000 a second over all connections, and
of each group a heartbeat and a commit a second. What counts are latencies, and the broker's CPU per request. *Keys* is
confluent-kafka with random keys and a linger of 5 ms. *Cold data* is read in fetches of 1 MB after the page cache was
dropped. *Ten thousand partitions* are those of a broker that has just started, as its users see it.
""",
)

TLS_PAGE = Page(
    "performance-tls",
    "TLS and logins beside Apache Kafka",
    """Written by `make bench ARGS=tls` (see [bench/](../bench/README.md)); do not edit.

Barnabas, its compiled form and Apache Kafka 3.9.1 on one machine, as in [performance.md](performance.md), with a
listener in clear text and two with TLS 1.3 (TLS_AES_256_GCM_SHA384, a certificate of EC P-256). Every case was run in
{pairs} pairs of warm brokers, in alternating order. A **ratio** is Barnabas ÷ Kafka, the median of the pairs' ratios.

*confluent-kafka* produces and consumes in its default settings, once at each listener. *Encryption adds* is the
difference of the broker's CPU between the two. *Small requests* are one record after the other on one connection.
*Logins* are connections that end after a SCRAM-SHA-256 login (4,096 iterations), four at a time. *Idle connections* is
the resident memory that a connection adds after its handshake.
""",
)

TRANSACTIONS_PAGE = Page(
    "performance-transactions",
    "Transactions beside Apache Kafka",
    """Written by `make bench ARGS=transactions` (see [bench/](../bench/README.md)); do not edit.

Barnabas, its compiled form and Apache Kafka 3.9.1 on one machine: one broker of each as in
[performance.md](performance.md), then three of each with replication factor 3 as in
[performance-cluster.md](performance-cluster.md). Every case was run in {pairs} pairs of warm brokers, in alternating
order. A **ratio** is Barnabas ÷ Kafka, the median of the pairs' ratios.

*Produce* is Kafka's own ProducerPerformance with a transactional id, which commits every 100 ms; *Consume* is
ConsumerPerformance of what it wrote, at both isolation levels. *Committed records beside all records* compares these
two on the same broker: there the column Barnabas is `read_committed`, and the ratio is to `read_uncommitted`. *One id
after the other* is confluent-kafka in its default settings: begin, one record, commit. *50 ids at once* are in one
process that costs little beside the broker and does what the Java producer does. A latency is that of a whole
transaction, until the commit is confirmed. *Commits beside a mock cluster's* has the same client at the cluster that
librdkafka brings for its own tests. That one is written in C, runs in the client's process and stores nothing, so no
broker can make this client much faster. There the column Barnabas is the broker that its row names. A broker that still
writes the markers of a transaction refuses the next one of the same id, and clients pause for 20 ms then: Barnabas lets
the request wait instead.

How many ids a broker holds, how large a transaction may be, and how long a fail-over takes:
`python -m bench.scale transactions` (see [bench/](../bench/README.md)).
""",
)

CLUSTER_PAGE = Page(
    "performance-cluster",
    "A cluster beside Apache Kafka's",
    """Written by `make bench ARGS=cluster` (see [bench/](../bench/README.md)); do not edit.

Three brokers of Barnabas, three of its compiled form and three of Apache Kafka 3.9.1 (each with `-Xms512m -Xmx512m`)
were run at the same time on one machine, with the same properties file
([bench/cluster.properties](../bench/cluster.properties)), under one ZooKeeper and with their data on the same disk. All
brokers, ZooKeeper and the client share its cores, so the cost of a record is its cost at all three brokers together.
Every case was run in {pairs} pairs, one cluster right after the other, in alternating order, of warm brokers
([Warm-up](#warm-up)). A **ratio** is Barnabas ÷ Kafka, the median of the pairs' ratios; all pairs are given. CPU and
memory are sums over the three brokers.

*Produce* is Kafka's own ProducerPerformance with acks=all, to a topic with replication factor 3 and one partition,
unless it says otherwise; of several producers at once the records/s are summed. *End to end* is EndToEndLatency with
acks=all. *A thousand partitions* are three figures: the time from CreateTopics until every broker's Metadata has all
leaders; CPU when idle; and the time from the SIGKILL of a broker that leads a third of the partitions until the
Metadata of the other two has new leaders for all (ZooKeeper ends the broker's session after 6 s without a heartbeat).
""",
)


def write_report(page: Page, book: Book, pairs: int, load: float) -> None:
    """Write the page and the chart."""
    (DOCS / f"{page.name}.svg").write_text(chart(list(charted(book))))
    text = [f"# {page.title}", "", page.introduction.format(pairs=pairs), *environment(load), ""]
    text += [f"![How many times better than Kafka, by case]({page.name}.svg)", ""]
    for group, lines in book.groups():
        text += [f"## {group}", "", *table(lines), ""]
    text += ["## Warm-up", "", *warm_ups(book), ""]
    if book.failures:
        text += ["## Failed runs", "", *(f"- {failure.splitlines()[0]}" for failure in book.failures), ""]
    (DOCS / f"{page.name}.md").write_text("\n".join(text).rstrip() + "\n")


def warm_ups(book: Book) -> list[str]:
    """Kafka's cost in the runs before the first pair: how much it falls while the JVM compiles."""
    rows = ["| case | runs | Kafka's CPU, run by run: ms per MB, or ms | steady |", "|-|-:|-|-|"]
    for case, costs in book.warm_ups.items():
        each = ", ".join(map(number, costs))
        rows.append(f"| {case} | {len(costs)} | {each} | {'yes' if is_steady(costs) else 'no'} |")
    return rows


def environment(load: float) -> list[str]:
    """What the figures were taken on."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    import trio

    return [
        f"Taken on {time.strftime('%Y-%m-%d')}: {os.cpu_count()} cores ({cpu_model()}), {memory_gib()} GiB,",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, Trio {trio.__version__},",
        f"{java[0] if java else 'Java'}. Load of the machine before the run: {load:.2f}"
        f"{'' if load <= QUIET_LOAD_MAX else ' (it was **not quiet**)'}.",
    ]


def cpu_model() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30))


# -- the chart

ROW, TOP, LEFT, RIGHT, WIDTH = 20, 46, 250, 60, 860
STYLE = """text{font:12px sans-serif;fill:#333}.head{font-weight:bold}.grid{stroke:#ddd}.one{stroke:#888}
.compiled{stroke:#1f5fa8;stroke-width:3}
.good{fill:#2a7f62}.bad{fill:#b5533c}.pair{fill:#333;opacity:.45}.value{text-anchor:end}
@media (prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}.pair{fill:#eee}}"""


def charted(book: Book) -> Iterator[tuple[str, Line]]:
    """The lines that are drawn, with their names in full."""
    for group, lines in book.groups():
        if group not in NOT_CHARTED:
            for line in lines:
                if line.ratios() and "joining" not in line.name:
                    yield f"{group}: {line.name}", line


def chart(lines: list[tuple[str, Line]]) -> str:
    """How many times better Barnabas is (log scale): a bar for the median, a dot for each pair.

    A line across the bar is the median of the compiled form.

    Where lower is better the ratio is turned over, so that right is always good.
    """
    # A difference of two measurements may be none, or less: it has no place on the scale.
    values = {name: [better(ratio, line) for ratio in line.ratios() if ratio > 0] for name, line in lines}
    compiled = {name: [better(ratio, line) for ratio in line.ratios(COMPILED) if ratio > 0] for name, line in lines}
    largest = max((max(value, 1 / value) for each in values.values() for value in each), default=2)
    decades = max(math.log10(largest), math.log10(2)) * 1.05
    lowest = min((min(each) for each in values.values()), default=1.0)
    low = min(math.log10(lowest) * 1.05, -math.log10(1.25))
    scale = (WIDTH - LEFT - RIGHT) / (decades - low)

    def x(value: float) -> float:
        return round(LEFT + (math.log10(value) - low) * scale, 1)

    height = TOP + ROW * len(lines) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"><style>{STYLE}</style>']
    head = "How many times better than Kafka (right of 1: Barnabas; lines: its compiled form)"
    parts.append(f'<text class="head" x="10" y="18">{head}</text>')
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16, 32):
        if low <= math.log10(tick) <= decades:
            kind = "one" if tick == 1 else "grid"
            parts.append(f'<line class="{kind}" x1="{x(tick)}" x2="{x(tick)}" y1="{TOP - 8}" y2="{height - 6}"/>')
            parts.append(f'<text x="{x(tick) - 4}" y="{TOP - 12}">{tick:g}</text>')
    for row, (name, _) in enumerate(lines):
        y = TOP + ROW * row
        median = statistics.median(values[name])
        left, right = sorted((x(1), x(median)))
        kind = "good" if median >= 1 else "bad"
        parts.append(f'<text x="10" y="{y + 13}">{escape(name)}</text>')
        parts.append(f'<rect class="{kind}" x="{left}" y="{y + 3}" width="{right - left:.1f}" height="12"/>')
        parts += [f'<circle class="pair" cx="{x(value)}" cy="{y + 9}" r="2.5"/>' for value in values[name]]
        if compiled[name]:
            place = x(statistics.median(compiled[name]))
            parts.append(f'<line class="compiled" x1="{place}" x2="{place}" y1="{y + 1}" y2="{y + 17}"/>')
        parts.append(f'<text class="value" x="{WIDTH - 6}" y="{y + 13}">{median:.2f}</text>')
    return "\n".join([*parts, "</svg>\n"])


def better(ratio: float, line: Line) -> float:
    return ratio if line.higher_is_better else 1 / ratio
