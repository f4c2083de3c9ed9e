"""Measurements of a broker's process, from the kernel and from the broker's own watch."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Self

from barnabas.testing.running.child import BrokerChild
from compat_tests.brokers import BrokerProcess
from compat_tests.hostile.logins import ALL, PLAINTEXT, SCRAM, WITH_LOGIN, Target
from compat_tests.secured import PASSWORD, USER, Certificates, SecuredBroker, create_scram_user, jaas

ROOT = pathlib.Path(__file__).parent.parent.parent
MIB = 1 << 20
CLEANER_BACKOFF_MS = 200


class Watched(BrokerChild):
    """A broker whose long steps are written down; see `watched.py`."""

    @property
    def steps_path(self) -> pathlib.Path:
        return self.log_path.with_name("steps.jsonl")

    def program(self) -> list[str]:
        path = os.pathsep.join([str(ROOT), *sys.path[1:]])
        environment = [f"STEPS_FILE={self.steps_path}", f"PYTHONPATH={path}"]
        return ["env", *environment, sys.executable, "-m", "compat_tests.hostile.watched"]

    def long_steps(self, since: float) -> list[dict[str, object]]:
        """The steps that ended after this time (`time.time()`), the longest first."""
        lines = self.steps_path.read_text().splitlines() if self.steps_path.exists() else []
        steps = [step for line in lines if (step := json.loads(line))["at"] >= since]
        return sorted(steps, key=lambda step: -step["ms"])


class WatchedBroker(Watched, BrokerProcess):
    """A broker with one listener."""

    def __init__(self, directory: pathlib.Path, **settings: str | int) -> None:
        # Compaction has to begin while an attack is measured: the default is 15 seconds.
        super().__init__(directory, **{"log_cleaner_backoff_ms": CLEANER_BACKOFF_MS} | settings)


class SecuredWatchedBroker(Watched, SecuredBroker):
    """A broker with a listener of each protocol, which are their names without the underscore."""

    def __init__(self, directory: pathlib.Path) -> None:
        certificates = Certificates(directory / "certificates")
        names = {protocol.replace("_", ""): protocol for protocol in ALL}
        logins = [name for name, protocol in names.items() if protocol in WITH_LOGIN]
        settings = {name: value for login in logins for name, value in jaas(login).items()}
        super().__init__(directory, names, settings | certificates.pem_stores())
        ports = {protocol: self.ports[name] for name, protocol in names.items()}
        self.target = Target(ports, certificates.trusted)

    def start(self) -> Self:
        started = super().start()
        create_scram_user(self.target.ports[PLAINTEXT], SCRAM, USER, PASSWORD)
        return started


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
