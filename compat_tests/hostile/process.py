"""Measurements of a broker's process, from the kernel and from the broker's own watch."""

import json
import os
import pathlib
import subprocess
import sys

from compat_tests.brokers import BrokerProcess

ROOT = pathlib.Path(__file__).parent.parent.parent
MIB = 1 << 20
CLEANER_BACKOFF_MS = 200


class WatchedBroker(BrokerProcess):
    """A broker whose long steps are written down; see `watched.py`."""

    def __init__(self, directory: pathlib.Path, **settings: str | int) -> None:
        # Compaction has to begin while an attack is measured: the default is 15 seconds.
        super().__init__(directory, **{"log_cleaner_backoff_ms": CLEANER_BACKOFF_MS} | settings)
        self.steps_path = directory / "steps.jsonl"

    def program(self) -> list[str]:
        path = os.pathsep.join([str(ROOT), *sys.path[1:]])
        environment = [f"STEPS_FILE={self.steps_path}", f"PYTHONPATH={path}"]
        return ["env", *environment, sys.executable, "-m", "compat_tests.hostile.watched"]

    def long_steps(self, since: float) -> list[dict[str, object]]:
        """The steps that ended after this time (`time.time()`), the longest first."""
        lines = self.steps_path.read_text().splitlines() if self.steps_path.exists() else []
        steps = [step for line in lines if (step := json.loads(line))["at"] >= since]
        return sorted(steps, key=lambda step: -step["ms"])


class Bystander:
    """A client in a process of its own that writes and reads one short record all the time, and times it."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "compat_tests.hostile.bystander", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> tuple[list[float], str]:
        """End it: all its round trips in milliseconds, and the error that ended them ("" where none did)."""
        said, _ = self._process.communicate("stop\n", timeout=120)
        result = json.loads(said)
        return list(result["ms"]), str(result["error"])


def percentile(values: list[float], share: float) -> float:
    """The value below which this share lies."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]
