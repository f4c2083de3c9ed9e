"""Facts about this process, as Prometheus' client libraries export them (edge)."""

import os
import resource
import time
from typing import NamedTuple

MEMORY_FILE = "/proc/self/statm"
START_FILE = "/proc/self/stat"
BOOT_FILE = "/proc/stat"
DESCRIPTORS = ("/proc/self/fd", "/dev/fd")
STARTED_FIELD = 19  # of what follows the program's name in /proc/self/stat: clock ticks since the boot

_imported_at = time.time()


class ProcessFacts(NamedTuple):
    """The names are those of the metrics, without `process_`. None: this system does not say."""

    cpu_seconds_total: float
    resident_memory_bytes: int
    open_fds: int | None
    max_fds: int
    start_time_seconds: float


def process_facts() -> ProcessFacts:
    """The facts of now. Blocking: short."""
    # All threads count: those that sync, decompress and compact, too.
    times = os.times()
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFacts(
        cpu_seconds_total=round(times.user + times.system, 3),
        resident_memory_bytes=_resident_bytes(),
        open_fds=_open_descriptors(),
        max_fds=soft_limit,
        start_time_seconds=round(_started_at(), 2),
    )


def _resident_bytes() -> int:
    try:
        with open(MEMORY_FILE, encoding="ascii") as file:
            # The second number is that of resident pages.
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    # Other systems than Linux: the largest size that it had, which macOS gives in bytes.
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _open_descriptors() -> int | None:
    for folder in DESCRIPTORS:
        try:
            return len(os.listdir(folder)) - 1  # without the one that lists them
        except OSError:
            continue
    return None


def _started_at() -> float:
    try:
        with open(START_FILE, encoding="utf-8", errors="replace") as file:
            # The name of the program is in parentheses and may have any characters.
            ticks = int(file.read().rpartition(")")[2].split()[STARTED_FIELD])
        with open(BOOT_FILE, encoding="ascii") as file:
            booted_at = next(int(line.split()[1]) for line in file if line.startswith("btime"))
        return booted_at + ticks / os.sysconf("SC_CLK_TCK")
    # Other systems: about when this was imported.
    except (OSError, StopIteration):
        return _imported_at
