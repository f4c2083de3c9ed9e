"""Commands as processes: what they print, and their status."""

import json
import os
import selectors
import subprocess
import sys
from contextlib import contextmanager

READY_SECONDS_MAX = 30


class Commands:
    """Runs commands against a `LocalBroker` or a `LocalCluster`."""

    def __init__(self, broker, folder):
        self.broker = broker
        self._folder = folder

    def __call__(self, *arguments, given=b"", status=0, seconds=60):
        ended = subprocess.run(
            [sys.executable, "-m", "barnabas", *arguments],
            input=given,
            capture_output=True,
            timeout=seconds,
            check=False,
            cwd=self._folder,
            env={**os.environ, "BARNABAS_BOOTSTRAP": self.broker.bootstrap_servers},
        )
        assert ended.returncode == status, ended.stderr.decode()
        assert b"Traceback" not in ended.stderr
        return ended

    def lines(self, *arguments, **options):
        return self(*arguments, **options).stdout.decode().splitlines()

    def rows(self, *arguments, **options):
        return [json.loads(line) for line in self.lines(*arguments, "--json", **options)]


def barnabas(*arguments, cwd=None, stdin=None, **environment):
    command = [sys.executable, "-m", "barnabas", *arguments]
    taken = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
        **taken,
    )


@contextmanager
def running_broker(*arguments, cwd):
    command = [sys.executable, "-m", "barnabas", "serve", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ready_line(process):
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(READY_SECONDS_MAX), "the broker is not ready"
    return process.stdout.readline()
