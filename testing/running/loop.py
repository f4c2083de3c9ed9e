"""A trio loop, as the threads beside it use it: `call` runs a function on it and hands back what that returns (edge).

The caller may be synchronous code, a task of asyncio or of another trio loop, or code that the loop itself runs, such
as an answer that a test computes.
"""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

import outcome
import trio

from barnabas.testing.errors import LocalBrokerError

CALL_SECONDS = 30.0  # a step of the loop takes milliseconds

Result = TypeVar("Result")


class NoLoop(LocalBrokerError):
    """The loop does not run: its brokers were not started, or have ended."""


class Loop:
    """The loop of one `LocalBroker` or `LocalCluster`; between two lives of a broker there is none."""

    def __init__(self) -> None:
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread_id: int | None = None

    def entered(self) -> None:
        """Called on the loop when it begins."""
        self._thread_id = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()

    def left(self) -> None:
        """Called on its thread when the loop has ended."""
        # A loop that ends late must not hide the next one.
        if self._thread_id == threading.get_ident():
            self._token = None
            self._thread_id = None

    def tell(self, function: Callable[[], object]) -> bool:
        """Have the loop run a function soon, without waiting for it. False when there is no loop, or it has ended."""
        token = self._token
        if token is None:
            return False
        try:
            token.run_sync_soon(function)
        except trio.RunFinishedError:
            return False
        return True

    def call(self, function: Callable[[], Result]) -> Result:
        """What the function returns or raises, run between two steps of the loop. NoLoop when there is none."""
        # Code on the loop cannot wait for it.
        if self._thread_id == threading.get_ident():
            return function()
        answer: Future[outcome.Outcome[Result]] = Future()
        self._demand(lambda: answer.set_result(outcome.capture(function)))
        return _unwrapped(answer)

    def wait(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """What the async function returns or raises, run as a task of the loop. Errors as `call`."""
        if self._thread_id == threading.get_ident():
            raise LocalBrokerError("code that the broker runs cannot wait for the broker")
        answer: Future[outcome.Outcome[Result]] = Future()

        async def run() -> None:
            answer.set_result(await outcome.acapture(function))

        self._demand(lambda: trio.lowlevel.spawn_system_task(run))
        return _unwrapped(answer)

    def _demand(self, act: Callable[[], object]) -> None:
        if not self.tell(act):
            raise NoLoop("no broker runs")


def _unwrapped(answer: "Future[outcome.Outcome[Result]]") -> Result:
    try:
        answered = answer.result(CALL_SECONDS)
    except TimeoutError:
        raise LocalBrokerError(f"the loop of the broker has not answered within {CALL_SECONDS:g} s") from None
    return answered.unwrap()
