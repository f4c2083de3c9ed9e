"""What CPU and memory a process has used, as Linux says it in /proc (edge). Blocking: never."""

import os
import pathlib

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds_of(pid: int) -> float:
    """User and system time of all threads of a process so far. OSError when it is gone."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes_of(pid: int) -> int:
    """Resident memory of a process now. OSError when it is gone."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes_of(pid: int) -> int:
    """The most memory that it had resident since it began, or since `forget_peak_of`. OSError when it is gone."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not say VmHWM")


def forget_peak_of(pid: int) -> None:
    """From here on the peak of its resident memory is counted again."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
