"""A broker on a thread of its own, with a trio loop of its own (edge).

The caller may be synchronous code, a test under asyncio or under another trio loop, or a worker of pytest-xdist. The
two threads share three things: a future has the port when the broker serves, or the error if it cannot; callbacks on
the loop (`TrioToken.run_sync_soon`) stop or kill it; joining the thread waits for the end. The thread is a daemon, so a
program that does not close its broker still ends, and trio changes no signal handlers outside the main thread.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import outcome
import trio

from barnabas.broker.interception import Interception
from barnabas.broker.serve import MISCONFIGURED, UNFIT_ENVIRONMENT, Serving, serve
from barnabas.config.live import BrokerConfig
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.machine import Machine
from barnabas.world.net import OsNet, SocketBuffers
from barnabas.world.world import World

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
GIVE_UP_SECONDS = 5.0
END_SECONDS = 30.0  # a clean stop gives requests in hand five, and closes every log


class BrokerThread:
    """A broker from its start to its end; another life is another object on the same machine."""

    def __init__(self, config: BrokerConfig, machine: Machine, interception: Interception | None = None) -> None:
        self._config = config
        self._machine = machine
        self._interception = interception
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_killed = False
        self._is_unwanted = False  # the caller was interrupted, perhaps before there was a token
        self._ready: Future[int] = Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="barnabas broker", daemon=True)

    def start(self) -> int:
        """Start it and wait until it serves; its port. LocalBrokerError says what made that impossible."""
        self._thread.start()
        try:
            return self._ready.result(START_SECONDS)
        except TimeoutError:
            raise LocalBrokerError(f"the broker does not serve after {START_SECONDS:g} s") from None
        finally:
            if not self._ready.done():  # too slow, or the caller was interrupted
                self._is_unwanted = True
                self._tell(self._die)
                self._thread.join(GIVE_UP_SECONDS)

    def stop(self) -> None:
        """A clean stop. LocalBrokerError says what had ended the broker, if that was something else."""
        self._tell(self._stop.set)
        self._await_end()

    def kill(self) -> None:
        """The broker dies at once, as a process does."""
        self._tell(self._die)
        self._await_end()

    def _tell(self, act: Callable[[], object]) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # it ended by itself
                self._token.run_sync_soon(act)

    def _die(self) -> None:
        self._is_killed = True
        self._scope.cancel()

    def _await_end(self) -> None:
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            raise LocalBrokerError(f"the broker has not ended within {END_SECONDS:g} s")
        if self._failure is not None:
            raise self._failure

    # -- on the thread

    def _run(self) -> None:
        buffers = SocketBuffers(self._config.socket_send_buffer_bytes, self._config.socket_receive_buffer_bytes)
        with self._machine.world(OsNet(buffers)) as world:
            self._failure = _reason(outcome.capture(trio.run, self._serve, world))
            # The machine crashes now and not at the moment of the kill: in the same turn of the loop other tasks may go
            # on to their next checkpoint, and acknowledge what they write.
            if self._is_killed:
                self._machine.crash()
        if not self._ready.done():
            self._ready.set_exception(self._failure or LocalBrokerError("the broker was stopped before it could serve"))

    async def _serve(self, world: World) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._is_unwanted:
            return
        for warning in self._config.warnings():
            logger.warning("%s", warning)
        with self._scope:
            await serve(self._config, world=world, stop=self._stop, task_status=self, interception=self._interception)

    def started(self, value: Serving) -> None:
        """For `serve`: connections are accepted from now on."""
        self._ready.set_result(value.advertised[0].port)


def _reason(ended: outcome.Outcome[None]) -> BaseException | None:
    """The exception for the caller: the broker's own reasons as LocalBrokerError; bugs as they are."""
    if not isinstance(ended, outcome.Error):
        return None
    error = ended.error
    if not isinstance(error, (OSError, *MISCONFIGURED, *UNFIT_ENVIRONMENT)):
        return error
    reason = LocalBrokerError((isinstance(error, OSError) and error.strerror) or str(error))
    reason.__cause__ = error
    return reason


def forget(machine: Machine) -> None:
    """Throw away what a machine in memory holds; from whatever thread, and under whatever loop, this is called."""
    thread = threading.Thread(target=trio.run, args=(machine.forget,), name="barnabas machine")
    thread.start()
    thread.join()
