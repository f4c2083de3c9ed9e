"""The tests here need a client: say so in one line, instead of with a traceback for each file.

Without what all of them need the run ends. A file that needs a further package is skipped, with the reason.
"""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

NEEDS = {"confluent_kafka": "confluent-kafka", "barnabas": "path/to/barnabas"}
# What pip calls a module, where it calls it otherwise; and what a module needs that the file does not import itself.
NAMES = {**NEEDS, "faststream": "faststream[kafka]"}
BESIDE = {"fastapi": ["httpx2"]}
HOW = "`make examples`, then .venv/bin/python -m pytest; elsewhere: pip install"


def missing(modules: Iterator[str]) -> list[str]:
    """What pip has to install for these modules."""
    wanted = [name for module in modules for name in (module, *BESIDE.get(module, ()))]
    return list(dict.fromkeys(NAMES.get(name, name) for name in wanted if importlib.util.find_spec(name) is None))


def imported_by(file: Path) -> Iterator[str]:
    """The packages that the first level of a file imports."""
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.partition(".")[0]


class Lacking(pytest.Module):
    """A file of tests whose packages are not installed."""

    def collect(self) -> list[pytest.Item]:
        lacking = " ".join(missing(imported_by(self.path)))
        pytest.skip(f"not installed: {lacking} ({HOW} {lacking})", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Lacking.from_parent(parent, path=module_path) if missing(imported_by(module_path)) else None


if there := " ".join(missing(iter(NEEDS))):
    pytest.exit(f"not installed: {there} ({HOW} {there})", 4)
