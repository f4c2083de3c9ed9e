"""The metrics of a broker in Prometheus' text format, or in OpenMetrics (shell).

`exposition` reads everything at the scrape from the live parts of the broker, and writes it piece by piece. Between
scrapes nothing runs. All loops give way within a millisecond, so a scrape of thousands of partitions delays no client.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Final

import trio

from barnabas.broker.call import Broker
from barnabas.console.cluster_samples import add_controller, add_groups, add_transactions
from barnabas.console.lags import GroupLags
from barnabas.console.metric_table import METRICS, Kind, Metric
from barnabas.console.network_samples import Rates, add_network, add_process
from barnabas.console.partition_samples import add_directories, add_fetchers, add_partitions, add_topics
from barnabas.console.process_facts import ProcessFacts, process_facts
from barnabas.console.request_samples import add_requests
from barnabas.console.samples import Samples
from barnabas.world.pacing import pause_after

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LINES_AT_A_TIME = 250  # of one piece, at about a microsecond each
_TOTAL = "_total"
NO_OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


class Metrics:
    """What the scrapes of one broker share: rates and lags are compared with those of the last minute."""

    def __init__(
        self, broker: Broker, state: Callable[[], int], read_facts: Callable[[], ProcessFacts] = process_facts
    ) -> None:
        """`state` gives Kafka's number of the broker's state."""
        self.broker = broker
        self._state = state
        self._read_facts = read_facts

        # The first scrape shows the rates since this moment: before it nothing is measured.
        self._rates = Rates(trio.current_time(), broker.world.processor_seconds())
        self._lags = GroupLags(broker)
        self._scraping = trio.Lock()

    async def samples(self) -> Samples:
        """All samples of now."""
        broker = self.broker
        samples = Samples()
        partitions_max = broker.config.barnabas_metrics_partitions_max

        # A scraper that comes again before the last scrape is done waits: it would only double the work.
        async with self._scraping:
            await add_topics(broker, samples)
            await pause_after()
            await add_requests(broker, samples)
            await add_network(broker, self._rates, samples)
            await pause_after()
            left_out = await add_partitions(broker, partitions_max, samples)
            left_out += await add_fetchers(broker, self._rates, partitions_max, samples)
            await add_directories(broker, samples)
            await pause_after()
            await add_controller(broker, self._state(), samples)
            await pause_after()
            left_out += await add_groups(broker, self._lags, partitions_max, samples)
            await add_transactions(broker, samples)
            await pause_after()
            await add_process(broker, self._read_facts, samples)

        # A scraper that shows partitions must not take the missing ones for deleted ones.
        samples.add("barnabas_series_left_out", left_out)
        return samples


def wants_openmetrics(accept: str) -> bool:
    """Whether the Accept header of a scrape names OpenMetrics, as Prometheus' does."""
    return "application/openmetrics-text" in accept


async def exposition(
    metrics: Metrics, *, openmetrics: bool = False, names: Mapping[str, str] = NO_OTHER_NAMES
) -> AsyncIterator[bytes]:
    """The pieces of the document, whose type is TEXT_TYPE or OPENMETRICS_TYPE.

    `names` has other names for some metrics; in OpenMetrics a counter has to keep its own.
    """
    samples = await metrics.samples()
    for metric in METRICS:
        lines = samples.lines[metric.name]
        if not lines:
            continue
        # A family without samples is left out with its head: it has nothing to describe.
        own = metric.name
        name = names.get(own, own)
        yield _head(metric._replace(name=name), openmetrics).encode()

        # Each portion is freed when it is written: to free all lines of thousands of partitions at the end
        # would take milliseconds.
        while lines:
            some = lines[:LINES_AT_A_TIME]
            del lines[:LINES_AT_A_TIME]
            if name != own:
                some = [name + line[len(own) :] for line in some]
            # The path of a log directory may have bytes that are no text.
            yield ("\n".join(some) + "\n").encode("utf-8", "replace")
            await pause_after(len(some) // 2)
    if openmetrics:
        yield b"# EOF\n"


def _head(metric: Metric, openmetrics: bool) -> str:
    # In OpenMetrics a counter's family has the name without the end of its samples.
    is_counter = metric.kind is Kind.COUNTER
    name = metric.name.removesuffix(_TOTAL) if openmetrics and is_counter else metric.name
    return f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind.value}\n"
