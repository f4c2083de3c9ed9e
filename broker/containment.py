"""What a mistake of ours costs: the one thing that was being done, not the broker around it.

    with contained(logger, "%s cannot be followed", key) as attempt:
        await follow(key)
    if attempt.failed: ...

An unexpected exception is logged with its traceback, once, and the block is over. So the caller must be able
to say what is over with it: a partition that is not followed any more, a role that is refused, a look that is left out
until the next one. Kafka does the same at the same places (`markPartitionFailed`, an error code for each partition of a
LeaderAndIsr, the tasks of KafkaScheduler). Where state may be half changed and other things depend on it, nothing is
contained: the broker ends, and starts from what is on disk.

Unit tests and simulations fail when a traceback is logged, unless they provoke it, so that no mistake stays hidden.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

PAUSE_SECONDS = 1.0  # before a task begins again: a mistake that it meets each time must not keep the loop busy


@dataclass(slots=True)
class Attempt:
    """How a block ended."""

    failed: bool = False


@contextmanager
def contained(logger: logging.Logger, message: str, *args: object) -> Iterator[Attempt]:
    """Log an unexpected exception with this message, and go on behind the block. Cancellation passes."""
    attempt = Attempt()
    try:
        yield attempt
    except Exception:
        logger.exception(message, *args)
        attempt.failed = True


async def kept_up(logger: logging.Logger, what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a task; after a mistake of ours it begins again. For tasks that look at what there is, and so lose nothing
    by that."""
    while True:
        with contained(logger, "%s: begins again", what) as attempt:
            await run()
        if not attempt.failed:
            return
        await trio.sleep(PAUSE_SECONDS)
