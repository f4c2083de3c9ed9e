"""What a mistake of ours costs: the one thing that was being done, not the broker around it.

    with contained(logger, "%s cannot be followed", key) as attempt:
        await follow(key)
    if attempt.failed: ...

An exception that nobody expected is logged with its traceback, once, and the block is over. So the caller must be able
to say what is over with it: a partition that is not followed any more, a role that is refused, a look that is left out
until the next one. Kafka does the same at the same places (`markPartitionFailed`, an error code for each partition of a
LeaderAndIsr, the tasks of KafkaScheduler). Where state may be half changed and other things depend on it, nothing is
contained: the broker ends, and starts from what is on disk.

Tests and simulations fail when a traceback is logged, unless they provoke it, so that no mistake stays hidden.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Attempt:
    """How a block ended."""

    failed: bool = False


@contextmanager
def contained(logger: logging.Logger, message: str, *args: object) -> Iterator[Attempt]:
    """Log what nobody expected, with this message, and go on behind the block. Cancellation passes."""
    attempt = Attempt()
    try:
        yield attempt
    except Exception:
        logger.exception(message, *args)
        attempt.failed = True
