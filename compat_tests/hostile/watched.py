"""`barnabas …`, with every long step of its event loop written to a file as a line of JSON: when, how long, which task.

A step's length is the processor time of the loop's thread, so that other work on the machine does not count.

    STEPS_FILE=steps.jsonl python -m compat_tests.hostile.watched serve --data-dir data
"""

import json
import os
import pathlib
import time

import trio

from barnabas.broker import serve
from barnabas.cli.commands import main
from barnabas.world.pacing import Pace
from barnabas.world.watchdog import Watchdog

WRITTEN_SECONDS = 0.001


class WritingWatchdog(Watchdog):
    """Measures by the thread's processor time."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(pace)
        self._path = pathlib.Path(os.environ["STEPS_FILE"])
        self._began = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        super().before_task_step(task)
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        seconds = time.thread_time() - self._began
        if seconds > WRITTEN_SECONDS:
            frames = [
                f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}" for frame, line in task.iter_await_frames()
            ]
            said = {"at": time.time(), "ms": round(seconds * 1000, 2), "task": task.name, "stopped": frames[-3:]}
            with self._path.open("a") as file:
                file.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    serve.Watchdog = WritingWatchdog
    main()
