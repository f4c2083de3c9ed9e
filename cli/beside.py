"""One piece of work, and a task beside it that may end it (edge)."""

import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from barnabas.client.errors import ClientError

Result = TypeVar("Result")


async def beside(
    companion: Callable[[trio.CancelScope], Awaitable[None]], work: Callable[[], Awaitable[Result]]
) -> Result | None:
    """The result of `work`, which `companion` ends early by cancelling the scope that it is given: then None."""
    result: Result | None = None
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(companion, nursery.cancel_scope)
        # An exception that leaves the nursery would be wrapped in a group.
        try:
            result = await work()
        except (ClientError, OSError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


def end_by(signal_number: int | None) -> None:
    """End the program with the status of this signal; None: go on."""
    if signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    if signal_number is not None:
        sys.exit(128 + signal_number)
