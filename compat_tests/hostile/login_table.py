"""What attacks on logins cost others: the longest step of the event loop, memory, and an ordinary client's p99."""

import contextlib
import pathlib
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.testing.running.processes import forget_peak_of, peak_resident_bytes_of, resident_bytes_of
from compat_tests.hostile.logins import ATTACKS, CASES, PLAINTEXT, WITH_TLS, silent_handshake
from compat_tests.hostile.process import MIB, Bystander, SecuredWatchedBroker, percentile
from compat_tests.hostile.table import STEP_MS_MAX

HALF_OPEN_SECONDS = 20.0
SPARE_DESCRIPTORS = 100


class Cost(NamedTuple):
    """What a broker paid since some time."""

    longest_step_ms: float
    where: str
    memory_mib: float


def run(seconds: float, half_open: int) -> None:
    """A row for each attack at each listener, struck for so long by one client; then many half-open handshakes."""
    with _attacked() as broker:
        print("| attack | listener | strikes | longest step, ms | memory, MiB |\n|-|-|-|-|-|", flush=True)
        for name, protocol in CASES:
            since, before = time.time(), _beginning(broker)
            strikes, ends_at = 0, time.monotonic() + seconds
            while time.monotonic() < ends_at:
                ATTACKS[name].strike(broker.target, protocol)
                strikes += 1
            _print_row(name, protocol, strikes, _cost(broker, since, before))
    for protocol in WITH_TLS:
        with _attacked() as broker:
            since, before = time.time(), _beginning(broker)
            count = _hold_half_open(broker, protocol, half_open)
            _print_row("half-open handshakes", protocol, count, _cost(broker, since, before))


@contextlib.contextmanager
def _attacked() -> Iterator[SecuredWatchedBroker]:
    """A broker with an ordinary client beside, whose round trips are printed at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="hostile-") as directory,
        SecuredWatchedBroker(pathlib.Path(directory)) as broker,
    ):
        bystander = Bystander(broker.target.ports[PLAINTEXT])
        yield broker
        milliseconds, error = bystander.stop()
        print(
            f"round trips beside: {len(milliseconds)}, p99 {percentile(milliseconds, 0.99):.1f} ms {error}", flush=True
        )


def _hold_half_open(broker: SecuredWatchedBroker, protocol: str, count: int) -> int:
    """Open so many handshakes that do not go on, and wait; how many could be opened."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + SPARE_DESCRIPTORS, most), most))
    kept: list[socket.socket] = []
    ends_at = time.monotonic() + HALF_OPEN_SECONDS
    for number in range(count):
        with contextlib.suppress(ConnectionError):
            kept.append(silent_handshake(broker.target, protocol, None if number % 2 else 100))
    time.sleep(max(ends_at - time.monotonic(), 0))
    for each in kept:
        each.close()
    return len(kept)


def _beginning(broker: SecuredWatchedBroker) -> int:
    forget_peak_of(broker.pid)
    return resident_bytes_of(broker.pid)


def _cost(broker: SecuredWatchedBroker, since: float, resident_before: int) -> Cost:
    steps = broker.long_steps(since)
    longest = steps[0] if steps else {"ms": 0.0, "task": "", "stopped": []}
    memory_mib = (peak_resident_bytes_of(broker.pid) - resident_before) / MIB
    return Cost(float(str(longest["ms"])), f"{longest['task']} {longest['stopped']}", memory_mib)


def _print_row(name: str, protocol: str, strikes: int, cost: Cost) -> None:
    where = f" {cost.where}" if cost.longest_step_ms > STEP_MS_MAX else ""
    print(
        f"| {name} | {protocol} | {strikes} | {cost.longest_step_ms:.1f}{where} | {cost.memory_mib:.0f} |", flush=True
    )
