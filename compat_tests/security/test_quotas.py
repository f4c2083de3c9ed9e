"""Quotas of bytes, beside Apache Kafka 3.9.1: clients that write and read as fast as they may, on both at once.

The rate is a saw-tooth: a window's worth of bytes in two seconds, and nine seconds of little. So a run takes 65 s: as
many bytes have passed at each mark, and the mean over four teeth is the quota.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.differential.sasl_brokers import OPEN, SaslBrokers
from compat_tests.differential.sasl_side import LOGIN
from compat_tests.security.quota_clients import (
    ACTS,
    DRIVEN,
    DRIVEN_BY_DEFAULT,
    RATE,
    Driven,
    Passed,
    alter_quota,
    await_quotas,
    bytes_until,
    drive,
    prepare,
)

pytestmark = pytest.mark.security

SECONDS, MARK_SECONDS = 65, 5
BURST_SECONDS = 5  # the first one is over, the next one comes six seconds later
CALM_SECONDS = (18, 64)  # between two bursts, and four bursts later
WINDOW_SECONDS = 11  # quota.window.num samples of a second
PHASE_SECONDS = 2  # by which the bursts of two runs of Kafka differ
TOLERANCE = 0.05
# Of a window: a client that comes a little later may get the bytes of one more sample, a tenth of a window. Clients of
# Kafka with the same quota differ by as much from each other.
TOLERANCE_AT_MARK = 0.1
Series = dict[tuple[str, str], list[Passed]]
CASES = [(each.name, kind) for each in [*DRIVEN, *DRIVEN_BY_DEFAULT] for kind in ACTS]


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Series]]:
    """Broker -> case -> what passed."""
    brokers = SaslBrokers(tmp_path_factory.mktemp("quotas"))
    try:
        brokers.start()
        ports = {kind: brokers.ports(kind) for kind in ("kafka", "barnabas")}
        for each in ports.values():
            prepare(each[OPEN], [*DRIVEN, *DRIVEN_BY_DEFAULT])
        found: dict[str, Series] = {kind: {} for kind in ports}
        for round_ in (DRIVEN, DRIVEN_BY_DEFAULT):
            with ThreadPoolExecutor() as threads:
                running = {kind: threads.submit(one_round, each, round_) for kind, each in ports.items()}
                for kind, future in running.items():
                    found[kind] |= future.result()
        yield found
    finally:
        brokers.close()


def one_round(ports: dict[str, int], driven: list[Driven]) -> Series:
    for each in driven:
        alter_quota(ports[OPEN], each.entity, RATE)
    await_quotas(ports[OPEN], ports[LOGIN], f"probe-of-{driven[0].user}")
    found = drive(ports[LOGIN], driven, SECONDS)
    for each in driven:
        alter_quota(ports[OPEN], each.entity, None)
    return found


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_as_many_bytes_pass_as_with_kafka(passed: dict[str, Series], case: tuple[str, str]) -> None:
    theirs, ours = passed["kafka"][case], passed["barnabas"][case]
    spare = TOLERANCE_AT_MARK * RATE * WINDOW_SECONDS
    for mark in range(MARK_SECONDS, SECONDS + 1, MARK_SECONDS):
        # Most bytes pass in the two seconds of a burst.
        least = bytes_until(theirs, mark - PHASE_SECONDS) - spare
        most = bytes_until(theirs, mark + PHASE_SECONDS) + spare
        assert least <= bytes_until(ours, mark) <= most, f"after {mark} s"


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_the_mean_is_the_quota_and_that_of_kafka(passed: dict[str, Series], case: tuple[str, str]) -> None:
    theirs, ours = (mean_of(passed[kind][case]) for kind in ("kafka", "barnabas"))
    assert ours == pytest.approx(theirs, rel=TOLERANCE)
    # The pauses between bursts are a little longer than needed, with Kafka, too.
    assert ours == pytest.approx(RATE, rel=2 * TOLERANCE)


def mean_of(series: list[Passed]) -> float:
    first, last = CALM_SECONDS
    return (bytes_until(series, last) - bytes_until(series, first)) / (last - first)


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_the_first_burst_is_that_of_kafka(passed: dict[str, Series], case: tuple[str, str]) -> None:
    theirs, ours = (bytes_until(passed[kind][case], BURST_SECONDS) for kind in ("kafka", "barnabas"))
    assert ours == pytest.approx(theirs, rel=TOLERANCE)
    assert 10 <= ours / RATE <= 12
