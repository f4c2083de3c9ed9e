"""`GET /metrics`: the exposition over HTTP."""

from collections.abc import Sequence

import trio

from barnabas.broker.life import BrokerState, Life
from barnabas.console.exchange import Answer, BadRequest, HttpRequest, Route, Send, error_answer
from barnabas.console.exposition import (
    NO_OTHER_NAMES,
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    Metrics,
    exposition,
    wants_openmetrics,
)
from barnabas.console.metric_table import CONFLUENT_NAMES
from barnabas.world.net import ConnectionLost

KAFKA = "kafka"
# A document of thousands of partitions takes megabytes until its reader has it. Usually two or three servers scrape.
SCRAPES_MAX = 8
SCRAPE_SECONDS = 60.0  # that a reader may take; no scraper waits longer
DIALECTS = {KAFKA: NO_OTHER_NAMES, "confluent": CONFLUENT_NAMES}


class _Scrapes:
    """What the scrapes of one broker share, from the first one on."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._metrics: Metrics | None = None
        self._writing: dict[trio.CancelScope, None] = {}  # the oldest is first

    async def answer(self, request: HttpRequest) -> Answer:
        """All metrics; 503 until the parts of the broker are there."""
        broker = self._life.broker

        # A broker that loads its logs has counted nothing yet, and its partitions are not known.
        if broker is None:
            return error_answer(503, f"the broker is {self._life.state.name.lower()}")
        # A broker that was started again in this process has other parts, and counts from 0.
        if self._metrics is None or self._metrics.broker is not broker:
            self._metrics = Metrics(broker, self._state)
        metrics = self._metrics

        # Prometheus asks for OpenMetrics first and takes either. In OpenMetrics the name of a counter ends in _total,
        # which the names of another dialect do not.
        names = DIALECTS.get(request.query.get("names", KAFKA))
        if names is None:
            raise BadRequest(f"names: one of {', '.join(DIALECTS)}, not {request.query['names']!r}")
        openmetrics = not names and wants_openmetrics(request.headers.get("accept", ""))

        # The pieces go out as they are made: the document of thousands of partitions is never in memory
        # as a whole.
        async def write(send: Send) -> None:
            # The scrape that has taken longest makes room, so that a slow reader cannot keep others out.
            if len(self._writing) >= SCRAPES_MAX:
                oldest = next(iter(self._writing))
                del self._writing[oldest]
                oldest.cancel()
            with trio.move_on_after(SCRAPE_SECONDS) as scope:
                self._writing[scope] = None
                try:
                    async for piece in exposition(metrics, openmetrics=openmetrics, names=names):
                        await send(piece)
                finally:
                    self._writing.pop(scope, None)
            # Without the end of the body a scraper takes nothing of it.
            if scope.cancelled_caught:
                raise ConnectionLost("the client took too long")

        return Answer(200, OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, write)

    def _state(self) -> BrokerState:
        return self._life.state


def metrics_routes(life: Life) -> Sequence[Route]:
    """The route of the metrics. They need no login: they name topics and groups, and have no record."""
    return [Route("GET", "/metrics", _Scrapes(life).answer, is_open=True)]
