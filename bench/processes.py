"""Processes under measurement: brokers of several kinds, and when they are ready."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.testing.running.processes import cpu_seconds_of, resident_bytes_of


class Measured:
    """A child process that prints one line when it is ready, with the port in it."""

    def __init__(
        self, command: list[str], *, environment: dict[str, str] | None = None, cwd: str | None = None
    ) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=cwd,
        )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline().strip()
        # The page is there before the broker is ready, if its address is given.
        if self.ready_line.startswith("page "):
            self.ready_line = self.process.stdout.readline().strip()
        if not self.ready_line:
            assert self.process.stderr is not None
            raise RuntimeError(f"{command} did not become ready:\n{self.process.stderr.read()}")
        self.port = int(self.ready_line.split("://")[1].split(",")[0].rsplit(":", 1)[1])

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        return cpu_seconds_of(self.process.pid)

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return resident_bytes_of(self.process.pid)

    def stop(self) -> str:
        """SIGTERM; what it wrote to standard error."""
        self.process.terminate()
        _, errors = self.process.communicate(timeout=60)
        return errors


@contextmanager
def broker(*settings: str, source: pathlib.Path | None = None) -> Iterator[Measured]:
    """A broker on a fresh directory and a free port; of the sources below `source`, if they are others than these."""
    environment = None if source is None else os.environ | {"PYTHONPATH": str(source.absolute())}
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", directory, "--listen", "127.0.0.1:0"]
        for setting in settings:
            command += ["--set", setting]
        running = Measured(command, environment=environment, cwd=directory)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.stop()


@contextmanager
def bare_loop() -> Iterator[Measured]:
    """The ceiling: a trio loop that does the least that a Produce must cost (`bare_loop.py`)."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        running = Measured([sys.executable, "-m", "bench.bare_loop", directory])
        try:
            yield running
        finally:
            running.stop()


def seconds_to_ready(command: list[str], environment: dict[str, str]) -> float:
    """From the start of the process to its first line."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    elapsed = time.perf_counter() - began
    process.terminate()
    process.communicate(timeout=60)
    if not line:
        raise RuntimeError(f"{command} said nothing")
    return elapsed


def seconds_to_end(command: list[str], environment: dict[str, str]) -> float:
    """From the start of the process to its end."""
    began = time.perf_counter()
    subprocess.run(command, check=True, env=environment)
    return time.perf_counter() - began


def install_wheel(directory: pathlib.Path, *, compiled: bool = False) -> pathlib.Path:
    """A wheel of this checkout, installed into a folder with its byte code; dependencies come from this environment."""
    directory = directory / ("compiled" if compiled else "pure")
    root = pathlib.Path(__file__).parent.parent
    shutil.rmtree(root / "build", ignore_errors=True)  # what an earlier wheel was made of would go into this one
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheels = directory / "wheels"
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(root)],
        check=True,
        env=os.environ | ({"BARNABAS_COMPILE": "1"} if compiled else {}),
    )
    shutil.rmtree(root / "build", ignore_errors=True)
    (wheel,) = wheels.glob("*.whl")
    target = directory / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)
    return target


def environment_of(installed: pathlib.Path) -> dict[str, str]:
    """The environment in which Python finds the package that was installed there, and no sources."""
    return os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
