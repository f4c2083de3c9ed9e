"""The tests here need a client: say so in one line, instead of with a traceback for each file."""

import importlib.util

import pytest

NEEDS = {"confluent_kafka": "confluent-kafka", "barnabas": "path/to/barnabas"}
MISSING = [package for module, package in NEEDS.items() if importlib.util.find_spec(module) is None]

if MISSING:
    there = " ".join(MISSING)
    pytest.exit(
        f"not installed: {there} (`make examples`, then .venv/bin/python -m pytest; elsewhere: pip install {there})", 4
    )
