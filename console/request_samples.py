"""Samples of requests: counts, errors and times, as one scrape reads them of a broker's `Tally`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import trio

from barnabas.broker.call import Broker
from barnabas.broker.tally import FETCH, ApiTally
from barnabas.console.samples import Samples, labels_of
from barnabas.wire.apis import APIS
from barnabas.wire.errors import error_name
from barnabas.world.pacing import pause_after
from barnabas.world.tally import BUCKETS, Histogram, sum_of

MS = 0.001  # a microsecond, in ms
FETCHES = "Fetch"
FETCHES_BY_KIND = ("FetchConsumer", "FetchFollower")


class _Times(NamedTuple):
    """The counts of one Kafka metric of times: since the start, and lately."""

    counts: Sequence[int]
    recent: Sequence[int]


def _kinds(broker: Broker) -> Iterator[tuple[str, list[ApiTally]]]:
    """(Kafka's name of a kind of request, the tallies that count it): Fetch is counted as three kinds."""
    for key, tally in sorted(broker.tally.apis.items()):
        if key != FETCH and tally.count:
            yield APIS[key].name, [tally]
    consumers = broker.tally.apis[FETCH]
    followers = broker.tally.follower_fetches
    if consumers.count or followers.count:
        yield FETCHES, [consumers, followers]
    for name, tally in zip(FETCHES_BY_KIND, (consumers, followers), strict=True):
        if tally.count:
            yield name, [tally]


async def add_requests(broker: Broker, samples: Samples) -> None:
    """The requests by kind, version and error, and their times."""
    now = trio.current_time()

    # A kind that was never asked for has no series. Kafka has all of them from the start, with zeros.
    for name, tallies in list(_kinds(broker)):
        _add_counts(samples, name, tallies)

        # The quantiles of one time take some ten microseconds, and there are seven times for each kind.
        await pause_after()
        for part, times in _times_of(tallies, now).items():
            samples.add_summary(f"kafka_network_requestmetrics_{part}", times.counts, times.recent, MS, request=name)
            await pause_after()

        sizes = _sums([each.sizes for each in tallies], now)
        name_of_sizes = "kafka_network_requestmetrics_requestbytes"
        samples.add_summary(name_of_sizes, sizes.counts, sizes.recent, request=name)
        total_bytes = int(sum(each.sizes.total for each in tallies))
        samples.lines[name_of_sizes].append(f"{name_of_sizes}_sum{labels_of(request=name)} {total_bytes}")
        await pause_after()

        whole = [tally.direct for tally in tallies]
        whole += [tally.waiting.total for tally in tallies if tally.waiting is not None]
        samples.add_histogram(
            "barnabas_request_seconds",
            sum_of(each.counts for each in whole),
            sum(each.total for each in whole),
            request=name,
        )
        await pause_after()


def _add_counts(samples: Samples, name: str, tallies: list[ApiTally]) -> None:
    for version, count in enumerate(map(sum, zip(*(each.versions for each in tallies), strict=True))):
        if count:
            samples.add("kafka_network_requestmetrics_requests_total", count, labels_of(request=name, version=version))

    # Kafka has the errors of all kinds of Fetch together, so that a sum over all requests has each error once.
    errors = Counter[int]()
    for each in tallies if name not in FETCHES_BY_KIND else ():
        errors.update(each.error_counts())
    for code, count in sorted(errors.items()):
        samples.add("kafka_network_requestmetrics_errors_total", count, labels_of(request=name, error=error_name(code)))
    # The histogram is made with the first client that is throttled.
    throttled = sum(each.throttle.count for each in tallies if each.throttle is not None)
    samples.add("barnabas_throttled_requests_total", throttled, labels_of(request=name))


def _times_of(tallies: list[ApiTally], now: float) -> dict[str, _Times]:
    """The seven times of Kafka. A request of which a time was not observed has 0 for it."""
    # Direct requests have been observed once: their whole time is local time.
    direct = _sums([each.direct for each in tallies], now)
    waiting = [each.waiting for each in tallies if each.waiting is not None]
    total = _plus(direct, _sums([each.total for each in waiting], now))
    none = _padded(_NONE, total)
    return {
        "totaltimems": total,
        "requestqueuetimems": none,
        "localtimems": _plus(direct, _sums([each.local for each in waiting], now)),
        "remotetimems": _padded(_sums([each.remote for each in waiting], now), total),
        "responsequeuetimems": none,
        "responsesendtimems": _padded(_sums([each.sending for each in tallies], now), total),
        "throttletimems": _padded(_sums([each.throttle for each in tallies], now), total),
    }


_NONE = _Times([0] * BUCKETS, [0] * BUCKETS)


def _sums(histograms: Sequence[Histogram | None], now: float) -> _Times:
    made = [each for each in histograms if each is not None]
    if not made:
        return _NONE
    return _Times(sum_of(each.counts for each in made), sum_of(each.recent(now) for each in made))


def _plus(one: _Times, other: _Times) -> _Times:
    return _Times(sum_of([one.counts, other.counts]), sum_of([one.recent, other.recent]))


def _padded(times: _Times, whole: _Times) -> _Times:
    """The times with a zero for each request of `whole` that has none."""
    # The first bucket is that of 0 µs.
    counts, recent = list(times.counts), list(times.recent)
    counts[0] += max(0, sum(whole.counts) - sum(counts))
    recent[0] += max(0, sum(whole.recent) - sum(recent))
    return _Times(counts, recent)
