"""Kafka's own dump tool over the files of a log, and what it finds wrong with them."""

import re
from collections.abc import Iterable
from pathlib import Path

from compat_tests.kafka import run_java_tool

FILES_AT_A_TIME = 500
DUMP_SECONDS = 600.0

FINE = re.compile(
    r"Dumping .*"
    r"|Log starting offset: \d+"
    r"|baseOffset: .* isvalid: true"
    r"|\| offset: .*"
    r"|(version: \d+ )?producerId: .*"
    r"|.* passed sanity check\."
    r"|.* is empty\."
)
GAP = re.compile(r"Non-consecutive offsets in .*|\s*\d+ is followed by \d+")  # of any compacted log


def dump(*options: str, files: Iterable[Path]) -> list[str]:
    """What kafka.tools.DumpLogSegments says of these files."""
    paths, lines = sorted(map(str, files)), []
    assert paths
    for first in range(0, len(paths), FILES_AT_A_TIME):
        chunk = ",".join(paths[first : first + FILES_AT_A_TIME])
        ran = run_java_tool("kafka.tools.DumpLogSegments", *options, "--files", chunk, timeout=DUMP_SECONDS)
        assert ran.returncode == 0, ran.stderr[-4000:]
        lines += ran.stdout.splitlines() + ran.stderr.splitlines()  # what it complains of is among the latter
    return lines


def complaints(lines: Iterable[str], *, of_compacted: bool = False) -> list[str]:
    """What is wrong; a compacted log may lack offsets."""
    found = [line for line in lines if not FINE.fullmatch(line)]
    return [line for line in found if not GAP.fullmatch(line)] if of_compacted else found
