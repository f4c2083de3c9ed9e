"""One restore at a time, the last tasks of a killed one included.

Theory of operation. The log end tells how far a restore is (plan.py) only while no task writes. When a driver is
killed, its tasks live on for a moment, until Java and Python's daemon have noticed, and still write what they hold. So
every task holds a shared lock on a file of the state directory while it writes, and a restore begins with an exclusive
one: it has it when no task of a predecessor is left. Then it keeps a shared one itself, for the next restore to see.
The system frees the locks of a process however it ends. Tasks on other machines see the directory, as they do the
archive; its file system must carry locks (flock) between them.
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
