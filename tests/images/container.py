"""A container without Docker: a root directory, a network and names of hosts of its own, by `unshare` and `chroot`.

The files of docker/kafka are at the places that the Dockerfile copies and links them to, so variables of a compose file
hold as they are: ports, names of hosts, directories.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.rooms import ROOT

SCRIPTS = ROOT / "docker" / "kafka"
READY_SECONDS = 60.0
END_SECONDS = 30.0
UNSHARE = ["unshare", "--map-root-user", "--net", "--mount", "--uts", "--pid", "--fork"]
# What is seen inside of the machine outside: programs, the interpreter, the package. Everything else is new and empty.
SEEN = ("/usr", "/dev", "/proc", "/etc/passwd", "/etc/alternatives", "/etc/ssl", sys.base_prefix, sys.prefix, str(ROOT))
LINKS = ("/bin", "/sbin", "/lib", "/lib64")
PATH = f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/usr/sbin:/bin"


def await_line(
    process: subprocess.Popen[str], pattern: str, lines: list[str], seconds: float, kill: Callable[[], object]
) -> None:
    """Read the lines that a process prints into `lines`, until one has this; after so many seconds it is killed."""
    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if re.search(pattern, line):
                return
    finally:
        timer.cancel()
    pytest.fail(f"no line has {pattern!r}:\n{''.join(lines)}")


class Container:
    """The image with these variables, started by its entry point; `with` ends it.

    `hosts`: the names by which containers of the compose file know each other, its own first; all are this machine.
    `beside`: the command of another server, which runs in the same network, and outside of its root directory.
    """

    def __init__(
        self, root: Path, variables: Mapping[str, str], hosts: Sequence[str], beside: Sequence[str] = ()
    ) -> None:
        self._root = root
        self._variables = dict(variables)
        self._hosts = hosts
        self._beside = beside
        self.lines: list[str] = []
        _lay_out(root, hosts)

    def __enter__(self) -> Self:
        root = shlex.quote(str(self._root))
        beside = f"{shlex.join(self._beside)} > {root}.beside.log 2>&1 &" if self._beside else ""
        places = [shlex.quote(place) for place in dict.fromkeys(SEEN) if Path(place).exists()]
        steps = [
            "set -e",
            "ip link set lo up",
            f"hostname {self._hosts[0]}",
            beside,
            *(f"mount --rbind {place} {root}{place}" for place in places),
            'exec env -i "$@"',
        ]
        variables = [f"{name}={value}" for name, value in {"PATH": PATH, **self._variables}.items()]
        inside = [*variables, "chroot", str(self._root), "/__cacert_entrypoint.sh"]
        self._process = subprocess.Popen(
            [*UNSHARE, "sh", "-c", "\n".join(steps), "sh", *inside],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait_for(self, pattern: str) -> None:
        """Wait until a line that it prints has this."""
        await_line(self._process, pattern, self.lines, READY_SECONDS, self._kill)

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a program in it, as `docker exec` does, with this on standard input; what it printed."""
        (first,) = self._first()
        inside = ["nsenter", f"--target={first}", "--user", "--preserve-credentials", "--net", "--mount", "--pid"]
        ran = subprocess.run(
            [*inside, "chroot", str(self._root), "env", "-i", f"PATH={PATH}", *command],
            input=text,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr + "".join(self.lines)
        return ran.stdout

    def end(self) -> str:
        """Everything that it printed. Its first process gets SIGTERM, as from `docker stop`."""
        for first in self._first():
            os.kill(first, signal.SIGTERM)
        return self.wait()

    def wait(self) -> str:
        """Wait until it has ended by itself; everything that it printed."""
        timer = threading.Timer(END_SECONDS, self._kill)
        timer.start()
        try:
            # The pipe ends with the last process.
            self.lines += self._process.stdout
            self._process.wait()
        finally:
            timer.cancel()
        return "".join(self.lines)

    def _kill(self) -> None:
        # With the first process of its namespace all others end.
        for first in self._first():
            os.kill(first, signal.SIGKILL)

    def _first(self) -> list[int]:
        """The first process in it, while there is one."""
        pid = self._process.pid
        if self._process.returncode is not None:
            return []
        try:
            return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except FileNotFoundError:
            return []


def _lay_out(root: Path, hosts: Iterable[str]) -> None:
    """The directories and files of the image, and where those of this machine are mounted."""
    for place in ("/etc/kafka/docker", "/etc/confluent/docker"):
        shutil.copytree(SCRIPTS, root / place[1:])
    (root / "__cacert_entrypoint.sh").symlink_to("/etc/kafka/docker/entrypoint")
    for place in ("tmp", "data", "var/lib/kafka/data", "bitnami/kafka/data", "etc/kafka/secrets"):
        (root / place).mkdir(parents=True)
    for link in LINKS:
        if Path(link).is_symlink():
            (root / link[1:]).symlink_to(os.readlink(link))
    for place in map(Path, SEEN):
        seen = root / str(place)[1:]
        if place.is_dir():
            seen.mkdir(parents=True, exist_ok=True)
        elif place.exists():
            seen.parent.mkdir(parents=True, exist_ok=True)
            seen.touch()
    names = "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *hosts))
    (root / "etc/hosts").write_text(names, encoding="utf-8")
