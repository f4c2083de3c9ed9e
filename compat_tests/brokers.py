"""A broker as a process of its own, as a user runs it: started, killed and restarted on the same directory and port."""

import os
import pathlib
import subprocess
import sys
from typing import Self

from barnabas.testing.running.child import BrokerChild


class BrokerProcess(BrokerChild):
    """`barnabas serve` in a directory of the test's, with settings as keywords (underscores are dots)."""

    def __init__(self, directory: pathlib.Path, **settings: str | int) -> None:
        properties = {name.replace("_", "."): str(value) for name, value in settings.items()}
        super().__init__(directory / "data", properties, directory / "stderr.log")
        self.directory = directory

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def run_barnabas(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
