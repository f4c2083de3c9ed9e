"""What others notice while clients use up each limit of memory: the longest waits of well-behaved parties."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from barnabas.testing.running.processes import forget_peak_of, peak_resident_bytes_of, resident_bytes_of
from compat_tests.hostile.exhaust import LIMITS
from compat_tests.hostile.process import MIB, WatchedBroker, percentile
from compat_tests.hostile.served import PARTIES

CROWD = 20
SERVED_MS_MAX = 1000.0
# The smallest that hold the largest frame, and the members of a small machine.
REQUESTS_BYTES, MEMBERS_BYTES = 100 * MIB, 48 * MIB
# Beside what is counted: rows of responses while they are made, windows of records, and the allocator's own.
MEMORY_BYTES_MAX = REQUESTS_BYTES + MEMBERS_BYTES + 350 * MIB


class Seen(NamedTuple):
    """One limit that so many attackers use up."""

    waits_ms: dict[str, float]  # the longest of each party
    p99_ms: dict[str, float]
    errors: list[str]
    opened: int
    closed: int
    memory_bytes: int  # by which the resident memory grew at most
    longest_step_ms: float

    @property
    def holds(self) -> bool:
        """Whether everyone was served in time, without an error, in the memory that there is."""
        in_time = max(self.waits_ms.values()) <= SERVED_MS_MAX
        return in_time and not self.errors and self.memory_bytes <= MEMORY_BYTES_MAX


def measure(name: str, attackers: int, seconds: float) -> Seen:
    """A fresh broker, whose limit is used up for so long."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="limits-"))
    limits = {"queued_max_request_bytes": REQUESTS_BYTES, "group_members_max_bytes": MEMBERS_BYTES}
    try:
        with WatchedBroker(directory, **limits) as broker:
            return _measured(broker, name, attackers, seconds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measured(broker: WatchedBroker, name: str, attackers: int, seconds: float) -> Seen:
    served = _started("served", str(broker.port))
    assert served.stdout is not None
    assert served.stdout.readline() == "ready\n"
    time.sleep(1.0)
    before_bytes = resident_bytes_of(broker.pid)
    began = time.time()
    forget_peak_of(broker.pid)
    attack = _started("exhaust", str(broker.port), name, str(attackers), str(seconds))
    attacked, _ = attack.communicate(timeout=seconds + 120)
    said, _ = served.communicate("stop\n", timeout=300)
    taken_bytes = peak_resident_bytes_of(broker.pid) - before_bytes
    steps = broker.long_steps(began)

    parties = json.loads(said)
    counted = json.loads(attacked)
    return Seen(
        waits_ms={party: max(each["ms"]) for party, each in parties.items()},
        p99_ms={party: percentile(each["ms"], 0.99) for party, each in parties.items()},
        errors=[f"{party}: {error}" for party, each in parties.items() for error in each["errors"]],
        opened=counted.get("opened", 0),
        closed=counted.get("closed", 0),
        memory_bytes=taken_bytes,
        longest_step_ms=float(str(steps[0]["ms"])) if steps else 0.0,
    )


def _started(program: str, *arguments: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", f"compat_tests.hostile.{program}", *arguments]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(names: list[str], seconds: float) -> int:
    """Measure these limits with one attacker and with twenty; a row of a table each. 0 if all hold."""
    parties = " | ".join(f"{party}, ms" for party in PARTIES)
    print(f"| limit | attackers | {parties} | opened | closed | memory, MiB | longest step, ms |")
    print("|-|-|" + "-|" * (len(PARTIES) + 4), flush=True)
    broken = 0
    for name in names or list(LIMITS):
        for attackers in (1, CROWD):
            seen = measure(name, attackers, seconds)
            waits = " | ".join(f"{wait:.0f}" for wait in seen.waits_ms.values())
            heard = "".join(f"; **{error}**" for error in seen.errors)
            print(
                f"| {name} | {attackers} | {waits} | {seen.opened} | {seen.closed} | {seen.memory_bytes / MIB:.0f}"
                f" | {seen.longest_step_ms:.1f}{heard} |",
                flush=True,
            )
            broken += not seen.holds
    return min(broken, 1)
