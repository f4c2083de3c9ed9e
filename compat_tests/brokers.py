"""A broker as a process of its own, as a user runs it: started, killed and restarted on the same directory and port."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import time

READY_SECONDS = 30.0


class BrokerProcess:
    """`barnabas serve` on a free port of 127.0.0.1; the port stays the same over restarts."""

    def __init__(self, directory: pathlib.Path, **settings: str | int) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.port = 0
        self.ready_line = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> pathlib.Path:
        return self.directory / "stderr.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self) -> "BrokerProcess":
        """Start and wait for the ready line."""
        command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(self.data_dir)]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.directory, env={**os.environ}
            )
        self.ready_line = self._read_ready_line()
        self.port = int(self.ready_line.split("://")[1].split(",")[0].rsplit(":", 1)[1])
        return self

    def kill(self) -> None:
        """SIGKILL: what was not written is lost, what was not flushed is with the operating system."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM: a clean stop; its exit status."""
        return self._end(signal.SIGTERM)

    def restart(self) -> "BrokerProcess":
        """Start again on the same directory and port."""
        return self.start()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float) -> int:
        """Wait until it ends by itself; its exit status."""
        assert self._process is not None, "the broker was not started"
        return self._process.wait(timeout)

    def log_text(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def _read_ready_line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self._process.stdout], [], [], 0.1)
            if readable:
                line = self._process.stdout.readline()
                if line:
                    return line.strip()
            if self._process.poll() is not None:
                break
        self.kill()
        raise RuntimeError(f"the broker did not become ready:\n{self.log_text()[-4000:]}")

    def _end(self, with_signal: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(with_signal)
        status = self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return status


def run_barnabas(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
