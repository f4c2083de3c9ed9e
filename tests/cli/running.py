"""Commands for a cluster as processes: what they print, and their status."""

import json
import os
import subprocess
import sys


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
