"""Contains a bug: its exception ends one operation, not the broker.

    with contained(logger, "%s cannot be followed", key) as attempt:
        await follow(key)
    if attempt.failed: ...

An unexpected exception ends the block and is logged once, with its traceback. The caller must know what ended with the
block: a partition is not followed any more, a role is refused, a periodic check is skipped until the next one. Kafka
does the same at the same places (`markPartitionFailed`, an error code for each partition of a LeaderAndIsr, the tasks
of KafkaScheduler). Do not contain code that may leave state half changed on which other code depends: there the broker
ends, and the next start reads the state from disk.

Unit tests and simulations fail when a traceback is logged that they do not provoke, so no bug stays hidden.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Self

import trio

PAUSE_SECONDS = 1.0  # before a failed task begins again: a bug that strikes each time must not keep the loop busy


class Attempt:
    """Whether a `contained` block ended with an unexpected exception."""

    __slots__ = ("_args", "_logger", "_message", "failed")

    def __init__(self, logger: logging.Logger, message: str, args: tuple[object, ...]) -> None:
        self._logger = logger
        self._message = message
        self._args = args
        self.failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        # `trio.Cancelled` is a BaseException and passes.
        if not isinstance(error, Exception):
            return False
        self._logger.error(self._message, *self._args, exc_info=error)
        self.failed = True
        return True


def contained(logger: logging.Logger, message: str, *args: object) -> Attempt:
    """Log an unexpected exception of the block with this message, and continue after the block."""
    # This is a class, not a generator: a fetcher contains the work of each row of each response.
    return Attempt(logger, message, args)


async def kept_up(logger: logging.Logger, what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Call `run` until it returns; after an unexpected exception, again. A restart of `run` must lose nothing."""
    while True:
        with contained(logger, "%s: begins again", what) as attempt:
            await run()
        if not attempt.failed:
            return
        await trio.sleep(PAUSE_SECONDS)
