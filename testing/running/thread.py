"""Brokers on a thread of their own, with a trio loop of its own (edge).

The caller may be synchronous code, a test under asyncio or under another trio loop, or a worker of pytest-xdist. The
two threads share three things: futures say that a broker serves or has ended, and why; `Loop` has the loop run a
function; joining the thread waits for the end. The thread is a daemon, so a program that does not close its broker
still ends, and trio changes no signal handlers outside the main thread.
"""

import threading
from collections.abc import Awaitable, Callable

import trio

from barnabas.config.live import BrokerConfig
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.faults.interceptor import Interceptor
from barnabas.testing.running.clock import BrokerClock
from barnabas.testing.running.life import BrokerLife
from barnabas.testing.running.loop import Loop
from barnabas.testing.running.machine import Machine
from barnabas.testing.running.page import BrokerPage

START_SECONDS = 30.0
GIVE_UP_SECONDS = 5.0
END_SECONDS = 30.0  # a clean stop gives requests in hand five, and closes every log


class LoopThread:
    """A thread with a loop that runs `main`, and ends with it."""

    def __init__(self, loop: Loop, clock: BrokerClock, main: Callable[[], Awaitable[None]]) -> None:
        self._loop = loop
        self._clock = clock
        self._main = main
        self._thread = threading.Thread(target=self._run, name="barnabas broker", daemon=True)

    def start(self) -> None:
        """Begin; returns before the loop runs."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            trio.run(self._run_main, clock=self._clock)
        finally:
            self._loop.left()

    async def _run_main(self) -> None:
        self._loop.entered()
        await self._main()


class BrokerThread:
    """One broker and its loop, from its start to its end."""

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        interception: Interceptor | None = None,
        *,
        loop: Loop | None = None,
        clock: BrokerClock | None = None,
        page: BrokerPage | None = None,
    ) -> None:
        self._loop = loop or Loop()
        self.life = BrokerLife(config, machine, interception, page=page)
        self._thread = LoopThread(self._loop, clock or BrokerClock(self._loop), self.life.run)

    def start(self) -> tuple[int, ...]:
        """Start it and wait until it serves; its ports. LocalBrokerError says what made that impossible."""
        self._thread.start()
        life = self.life
        try:
            return tuple(each.port for each in life.ready.result(START_SECONDS).advertised)
        except BaseException as error:
            if not life.ready.done():  # too slow, or the caller was interrupted
                life.is_unwanted = True
                self._loop.tell(life.die)
            # Its loop must have ended before another one begins.
            self._thread.join(GIVE_UP_SECONDS)
            if isinstance(error, TimeoutError):
                raise LocalBrokerError(f"the broker does not serve after {START_SECONDS:g} s") from None
            raise

    def stop(self) -> None:
        """A clean stop. LocalBrokerError says what had ended the broker, if that was something else."""
        self._loop.tell(self.life.stop)
        self._await_end()

    def kill(self) -> None:
        """The broker dies at once, as a process does."""
        self._loop.tell(self.life.die)
        self._await_end()

    def _await_end(self) -> None:
        if not self._thread.join(END_SECONDS):
            raise LocalBrokerError(f"the broker has not ended within {END_SECONDS:g} s")
        self.life.ended.result(0)


def forget(machine: Machine) -> None:
    """Throw away what a machine in memory holds; from whatever thread, and under whatever loop, this is called."""
    # The caller's thread may run a loop of its own, and trio refuses a second one in it.
    thread = threading.Thread(target=trio.run, args=(machine.forget,), name="barnabas machine")
    thread.start()
    thread.join()
