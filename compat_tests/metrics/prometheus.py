"""Debian's Prometheus as a process: it scrapes brokers each second, and evaluates expressions and alert rules."""

import json
import pathlib
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from compat_tests.kafka import free_port
from compat_tests.tools import require_tool

INTERVAL_SECONDS = 1.0
READY_SECONDS = 60.0
PACE_SECONDS = 0.1  # of looking
JOB = "kafka"

Labels = Mapping[str, str]


class Prometheus:
    """A Prometheus that scrapes these ports of 127.0.0.1; `with` starts and ends it."""

    def __init__(self, directory: pathlib.Path, ports: Iterable[int], rules: pathlib.Path | None = None) -> None:
        require_tool("prometheus")
        self._directory = directory
        self._ports = list(ports)
        self._rules = rules
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "prometheus.json"
        # JSON is YAML, too.
        path.write_text(json.dumps(self._configuration()))
        command = [
            "prometheus",
            f"--config.file={path}",
            f"--storage.tsdb.path={self._directory / 'series'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        with (self._directory / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_until(self._is_ready, READY_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def query(self, expression: str) -> list[tuple[Labels, float]]:
        """What an expression has now: labels and values. AssertionError with the reason if it is wrong."""
        answer = self._get("/api/v1/query", query=expression)
        assert answer["status"] == "success", answer
        data = answer["data"]
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(row["metric"], float(row["value"][1])) for row in data["result"]]

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self._get("/api/v1/alerts")["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def wait_until(self, is_so: Callable[[], bool], seconds: float) -> float:
        """Wait until this is so, and return for how long, in s. AssertionError when the time is over."""
        began = time.monotonic()
        while not is_so():
            assert self._process is not None
            assert self._process.poll() is None, self.said()
            assert time.monotonic() - began < seconds, f"not within {seconds:g} s; {self.said()}"
            time.sleep(PACE_SECONDS)
        return time.monotonic() - began

    def scrapes(self) -> int:
        """How often the broker was scraped that was scraped least."""
        return int(min((value for _, value in self.query(f'count_over_time(up{{job="{JOB}"}}[1h])')), default=0))

    def said(self) -> str:
        """What it has complained of."""
        return (self._directory / "prometheus.log").read_text(errors="replace")[-2000:]

    def _is_ready(self) -> bool:
        try:
            return len(self.query(f'up{{job="{JOB}"}} == 1')) == len(self._ports)
        except urllib.error.URLError:
            return False

    def _get(self, path: str, **query: str) -> dict:
        url = f"http://127.0.0.1:{self._port}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            # The reason is in the body. Before it is ready there is none.
            if error.code == 503:
                raise urllib.error.URLError(error.reason) from error
            return json.load(error)

    def _configuration(self) -> Mapping[str, object]:
        interval = f"{INTERVAL_SECONDS:g}s"
        targets = [{"targets": [f"127.0.0.1:{port}" for port in self._ports]}]
        return {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "scrape_configs": [{"job_name": JOB, "static_configs": targets}],
            "rule_files": [] if self._rules is None else [str(self._rules)],
        }
