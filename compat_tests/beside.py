"""Something that runs on a thread of its own while a test does something else."""

import threading
from typing import Self


class Beside:
    """As a context manager it runs until the end of the block; `_run` ends soon after `_stop` is set."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError
