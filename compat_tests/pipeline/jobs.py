"""`barnabas pipeline …` in the environment that has Spark: as a process that may be killed, or many by a warm one."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from compat_tests.spark.environment import spark_environment, spark_python

Event = dict[str, Any]
JOB_SECONDS = 1800.0
LOOK_SECONDS = 0.01
# Starts faster and runs slower; the first compiler alone would have little room.
SHORT_LIVED_JVM = {"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m"}


class Job:
    """One command with `--json`; its lines as they come. `more` goes to its environment."""

    def __init__(self, directory: pathlib.Path, *arguments: str, **more: str) -> None:
        self.log = directory / "job.log"
        self._lines: queue.Queue[str | None] = queue.Queue()
        command = [str(spark_python()), "-m", "barnabas.pipeline", *arguments, "--json"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=spark_environment(**more),
                start_new_session=True,  # a group of its own: Python, its Java, and their workers
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def events(self) -> Iterator[Event]:
        """Every line, until it ends."""
        while (line := self._lines.get(timeout=JOB_SECONDS)) is not None:
            yield json.loads(line)

    def wait(self) -> int:
        return self._process.wait(JOB_SECONDS)

    def finish(self) -> list[Event]:
        """Every line of a command that succeeds."""
        said = list(self.events())
        status = self.wait()
        assert status == 0, f"status {status}: {said[-3:]}\n{self.log.read_text()[-6000:]}"
        return said

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self, everything: bool) -> None:
        """SIGKILL: Python alone, whose Java notices and ends by itself, or the whole group at once."""
        assert self._process.poll() is None, "it has ended before it was killed"
        if everything:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait(60)

    def await_sight(self, is_there: Callable[[], bool]) -> bool:
        """Whether something came to be seen before the command ended."""
        deadline = time.monotonic() + JOB_SECONDS
        while time.monotonic() < deadline:
            if is_there():
                return True
            if self._process.poll() is not None:
                return False
            time.sleep(LOOK_SECONDS)  # the pace of looking
        raise AssertionError(f"nothing was to be seen:\n{self.log.read_text()[-6000:]}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


@dataclass(frozen=True)
class Ran:
    """What a command of `Commands` did."""

    status: int
    stdout: str
    stderr: str

    def events(self) -> list[Event]:
        """Every line of a command that succeeded."""
        assert self.status == 0, f"status {self.status}: {self.stdout[-2000:]}\n{self.stderr[-4000:]}"
        return [json.loads(line) for line in self.stdout.splitlines()]


class Commands:
    """A process that runs one command after another (commands.py)."""

    def __init__(self, directory: pathlib.Path, **more: str) -> None:
        self.log = directory / "commands.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(spark_python()), "-m", "compat_tests.pipeline.commands"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=spark_environment(**more),
            )

    def run(self, *words: str | pathlib.Path) -> Ran:
        stdin, stdout = self._pipes()
        stdin.write(json.dumps(list(map(str, words))) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, self.log.read_text()[-6000:]
        return Ran(**json.loads(line))

    def events(self, *words: str) -> list[Event]:
        """The lines of a command with `--json` that succeeds."""
        return self.run(*words, "--json").events()

    def compare(self, place: pathlib.Path, bootstrap: str) -> list[Event]:
        """Each partition of an archive beside the topic that it was made of."""
        return self.run("compare", str(place), bootstrap).events()

    def close(self) -> None:
        """Let it end, and its Java."""
        for pipe in self._pipes():
            pipe.close()
        self._process.wait(60)

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def archive_arguments(place: pathlib.Path, bootstrap: str, names: list[str], *more: str) -> list[str]:
    wanted = [word for name in names for word in ("--topic", name)]
    return ["archive", str(place), "--bootstrap-server", bootstrap, *wanted, *more]


def restore_arguments(place: pathlib.Path, bootstrap: str, *more: str) -> list[str]:
    return ["restore", str(place), "--bootstrap-server", bootstrap, *more]
