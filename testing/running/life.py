"""One broker of a test on its loop, from its start to its end (edge). Another life is another object."""

import logging
from concurrent.futures import Future
from contextlib import nullcontext

import outcome
import trio

from barnabas.broker.call import Broker
from barnabas.broker.life import Life
from barnabas.broker.serve import MISCONFIGURED, UNFIT_ENVIRONMENT, Serving, serve
from barnabas.config.live import BrokerConfig
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.faults.interceptor import Interceptor
from barnabas.testing.running.machine import Machine
from barnabas.testing.running.page import BrokerPage
from barnabas.world.net import Net, OsNet, SocketBuffers
from barnabas.world.world import World

logger = logging.getLogger(__name__)


class BrokerLife:
    """What runs on the loop. Other threads wait for the two futures, and call the rest through `Loop`."""

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        interception: Interceptor | None = None,
        net: Net | None = None,
        page: BrokerPage | None = None,
    ) -> None:
        self.ready: Future[Serving] = Future()  # done when it serves, or with the reason why it cannot
        self.ended: Future[None] = Future()  # done at the end; with what ended it, if that was neither stop nor kill
        self.broker: Broker | None = None  # the live parts, from before it serves
        self.is_unwanted = False  # the caller was interrupted, perhaps before there was a loop
        self._config = config
        self._machine = machine
        self._interception = interception
        self._page = page
        buffers = SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)
        self._net = net or OsNet(buffers)
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._is_killed = False

    def stop(self) -> None:
        """Begin a clean stop."""
        self._stop.set()

    def die(self) -> None:
        """End it at once, as a process does."""
        self._is_killed = True
        self._scope.cancel()

    async def run(self) -> None:
        """Serve until it is stopped or dies. Raises nothing: the futures have it."""
        with self._machine.world(self._net) as world:
            failure = _reason(await outcome.acapture(self._serve, world))
            # The machine crashes now and not at the moment of the kill: in the same turn of the loop other tasks may go
            # on to their next checkpoint, and acknowledge what they write.
            if self._is_killed:
                self._machine.crash()

        if not self.ready.done():
            self.ready.set_exception(failure or LocalBrokerError("the broker was stopped before it could serve"))
        if failure is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(failure)

    async def _serve(self, world: World) -> None:
        if self.is_unwanted:
            return
        for warning in self._config.warnings():
            logger.warning("%s", warning)
        life = Life() if self._page is None else self._page.life
        with self._scope:
            async with nullcontext() if self._page is None else self._page.served():
                await serve(
                    self._config,
                    world=world,
                    stop=self._stop,
                    task_status=self,
                    on_built=self._built,
                    interception=self._interception,
                    life=life,
                )

    def _built(self, broker: Broker) -> None:
        self.broker = broker
        if self._interception is not None:
            self._interception.built(broker)

    def started(self, value: Serving) -> None:
        """For `serve`: connections are accepted from now on."""
        self.ready.set_result(value)


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
