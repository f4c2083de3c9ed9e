"""The APIs of Apache Kafka 3.9, read from the table in docs/reference/wire.md, section 1."""

import re
from pathlib import Path
from typing import NamedTuple

REFERENCE = "docs/reference/wire.md"


class Versions(NamedTuple):
    """What Kafka says of one API."""

    min_version: int
    max_version: int
    flexible_from: int | None


def _numbers(text: str) -> list[int]:
    """ "38-41" and "48 / 49" as the numbers that they stand for."""
    found = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def _rows(section: str) -> dict[int, tuple[str, Versions, bool]]:
    """Key -> name, versions, and whether the broker leaves the API out on purpose."""
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or not cells[0][:1].isdigit():
            continue
        keys = _numbers(cells[0])
        ranges = [_numbers(each) for each in cells[3].split("/")]
        if len(ranges) == 1:  # one range for all keys of the row
            ranges *= len(keys)
        flexible_from = None if cells[2] == "none" else _numbers(cells[2])[0]
        for key, of_key in zip(keys, ranges, strict=True):
            name = cells[1] if len(keys) == 1 else ""
            found[key] = name, Versions(of_key[0], of_key[-1], flexible_from), "omit" in cells[-1]
    return found


_section = (Path(__file__).parents[2] / REFERENCE).read_text(encoding="utf-8").split("\n## ")[1]
_all_rows = _rows(_section)

# What a 3.9 broker in ZooKeeper mode answers to ApiVersions.
KAFKA_APIS = {key: versions for key, (_, versions, _) in _all_rows.items()}
KAFKA_NAMES = {key: name for key, (name, _, _) in _all_rows.items() if name}  # of rows with one key
# Kafka lists them and does not serve them.
LEFT_OUT = {key for key, (_, _, is_left_out) in _all_rows.items() if is_left_out}
# Never listed by a broker in ZooKeeper mode.
KRAFT_ONLY = set(_numbers(re.search(r"^KRaft-only .* list: (.*)\. Omit", _section, re.MULTILINE)[1]))
