"""Allows one restore at a time (edge); waits for the last tasks of a killed one.

Theory of operation. The log end shows the progress of a restore (plan.py) only while no task writes. When a driver is
killed, its tasks run on for a moment, until Java and Python's daemon notice, and still write their records. So every
task holds a shared lock on a file of the state directory while it writes. A restore begins with an exclusive lock,
which it gets when no task of an earlier restore is left; then it holds a shared lock itself, so that the next restore
waits. The operating system releases the locks of a process however it ends. Tasks on other machines see the directory,
as they see the archive; its file system must support locks (flock) between machines.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.pipeline.plan import RestoreError

LOCK_FILE = "lock"
WAIT_SECONDS = 60.0  # for tasks that were left behind: those that still have a broker are gone in seconds
LOOK_SECONDS = 0.1


@contextmanager
def alone(state: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Until it is left no other restore with this state begins; no task of an earlier one is at work any more."""
    with (state / LOCK_FILE).open("w") as file:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise RestoreError(
                        f"another restore with the state {state} is running, or a task of one that was killed"
                    ) from error
                time.sleep(LOOK_SECONDS)
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def at_work(state: str | Path) -> Iterator[None]:
    """While a task writes; the restore that it belongs to is `alone`."""
    with (Path(state) / LOCK_FILE).open("r") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
