"""A broker as a child process (edge): `barnabas serve`, as a user runs it, ended by real signals.

The port stays the same over restarts. Standard error goes to a file; if the broker does not become ready, its output
since the start is the text of the error.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from barnabas.testing.errors import LocalBrokerError

READY_SECONDS = 30.0
END_SECONDS = 60.0
REASON_CHARACTERS = 4000
CHUNK_BYTES = 4096
PAGE = "page "  # begins the line about the HTTP listener, which comes first if it was asked for


class BrokerChild:
    """`barnabas serve` on a port of 127.0.0.1: a free one at the first start, the same one from then on."""

    def __init__(self, data_dir: Path, properties: Mapping[str, str], log_path: Path) -> None:
        self.data_dir = data_dir
        self.properties = dict(properties)
        self.log_path = log_path
        self.port = 0
        self.ready_line = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process; LocalBrokerError when there is none."""
        return self._running().pid

    def program(self) -> list[str]:
        """The command that `serve` and its options are given to."""
        return [sys.executable, "-m", "barnabas"]

    def arguments(self) -> list[str]:
        """The options of `serve`."""
        given = ["--listen", f"127.0.0.1:{self.port}"]
        # Without this every broker would open its page, and all pages have the same default address.
        properties = {"log.dirs": str(self.data_dir.absolute()), "barnabas.http.listener": "", **self.properties}
        for name, value in properties.items():
            given += ["--set", f"{name}={value}"]
        return given

    def start(self) -> Self:
        """Start and wait for the ready line; LocalBrokerError with what the broker said when it does not come."""
        command = [*self.program(), "serve", *self.arguments()]
        with self.log_path.open("a") as log:
            # The file goes on over restarts, and only what this start writes explains its failure.
            said_before = log.tell()
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.log_path.parent
            )

        try:
            line = self._read_ready_line()
        except BaseException:  # the caller was interrupted, and will not come back for it
            self.kill()
            raise

        if not line:
            self.kill()
            with self.log_path.open() as log:
                log.seek(said_before)
                said = log.read()[-REASON_CHARACTERS:].strip()
            raise LocalBrokerError(f"the broker did not become ready:\n{said}")

        self.ready_line = line
        self.port = int(line.split("://")[1].split(",")[0].rsplit(":", 1)[1])
        return self

    def restart(self) -> Self:
        """Start again on the same directory and port."""
        return self.start()

    def kill(self) -> None:
        """SIGKILL: what was not written is lost, what was not flushed is with the operating system."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM: a clean stop; its exit status. LocalBrokerError, and SIGKILL, if it takes too long."""
        return self._end(signal.SIGTERM)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float) -> int:
        """Wait until it ends by itself; its exit status."""
        return self._running().wait(timeout)

    def log_text(self) -> str:
        """What it wrote to standard error, over all its lives."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise LocalBrokerError("the broker was not started")
        return self._process

    def _read_ready_line(self) -> str:
        process = self._running()
        assert process.stdout is not None
        # A plain `readline` would wait for ever if the broker hangs before it is ready.
        deadline = time.monotonic() + READY_SECONDS
        said = ""
        while time.monotonic() < deadline:
            readable, _, _ = select.select([process.stdout], [], [], 0.1)
            if not readable:
                continue
            # The descriptor itself is read: `select` would not see a line that a buffer holds
            # already.
            chunk = os.read(process.stdout.fileno(), CHUNK_BYTES)
            if not chunk:
                return ""  # it ended
            said += chunk.decode()
            lines = [each for each in said.split("\n")[:-1] if not each.startswith(PAGE)]
            if lines:
                return lines[0].strip()
        return ""

    def _end(self, with_signal: signal.Signals) -> int:
        process = self._process
        self._process = None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(with_signal)
        try:
            return process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise LocalBrokerError(f"the broker has not ended within {END_SECONDS:g} s, and was killed") from None
        finally:
            if process.poll() is None:  # too slow, or the caller was interrupted, and will not come back for it
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
