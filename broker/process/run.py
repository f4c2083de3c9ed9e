"""One broker as a process (edge): signals, descriptors, and the ready line.

`serve()` has none of this, so that tests and simulated clusters can run several brokers in one process. The first
SIGTERM or SIGINT requests a clean stop; a second one, or one that comes before the broker is ready, stops at once. With
listeners of TLS, SIGHUP reads their key and trust stores again if they have changed.
"""

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import trio

from barnabas.broker.call import Broker
from barnabas.broker.life import BrokerState, Life
from barnabas.broker.logins import zookeeper_access
from barnabas.broker.process.heap import freeze_heap, keep_small, share_one_heap
from barnabas.broker.serve import MISCONFIGURED, UNFIT_ENVIRONMENT, Serving, serve
from barnabas.config.live import BrokerConfig
from barnabas.world.containment import contained
from barnabas.world.net import OsNet, SocketBuffers
from barnabas.world.world import World, in_worker_thread, real_world

logger = logging.getLogger(__name__)

STATUS_STOPPED_AT_ONCE = 1
# How long a thread, which checks a large batch for example, may hold the GIL while the event loop waits for it.
# Python's default is ten times as long.
THREAD_SWITCH_SECONDS = 0.0005
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
HANDLED_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP)

LOADING_LOOK_SECONDS = 1.0
LOADING_LINE_SECONDS = 10.0  # in a log file, not more often than a person reads


class Failure(NamedTuple):
    """The error that ended the broker; None after a requested stop."""

    message: str
    misconfigured: bool


class Beside(NamedTuple):
    """What is served beside Kafka's protocol; handed in, because it stands above the broker.

    `open(life, world)` binds an address, or raises OSError, and returns what serves there until it is cancelled. If it
    `is_required`, that comes before the start of the broker, so that it can say how far the start is, and a failure
    ends the start. Otherwise it comes after the start, and a failure is a warning.
    """

    open: Callable[[Life, World], Awaitable[Callable[[], Awaitable[None]]]]
    is_required: bool


ShowLoading = Callable[[int, int, float], None]  # (loaded logs, all logs, seconds since the start)


class ReadyReport:
    """Trio's task status: `started` is called once, when the broker serves."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self.is_ready = False
        self.begin: Callable[[], object] = lambda: None  # what waits for the broker to be ready
        self._print_line = print_line

    def started(self, value: Serving) -> None:
        self.is_ready = True
        self._print_line(value.ready_line)
        # Now the modules are imported and the logs loaded: what exists lives as long as the broker.
        freeze_heap()
        # This is a system task, because it belongs to the process: it ends with Trio, not with the
        # broker's nurseries.
        trio.lowlevel.spawn_system_task(keep_small, value.load, value.held_bytes)
        self.begin()


def run_broker(
    config: BrokerConfig,
    print_line: Callable[[str], None],
    beside: Beside | None = None,
    show_loading: ShowLoading | None = None,
) -> Failure | None:
    """Serve until a signal requests a stop. Returns the failure that ended the broker; None after a requested stop.

    While logs are loaded, which may take minutes after a crash, `show_loading` is called once a second; without it,
    a line is logged every ten seconds.
    """
    # These come before Trio starts its threads: `share_one_heap` must be early.
    raise_descriptor_limit()
    share_one_heap()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    for warning in config.warnings():
        logger.warning("%s", warning)
    try:
        trio.run(_serve_until_signal, config, print_line, beside, show_loading)
    # Expected failures become one message. Anything else is a bug, and its traceback is shown.
    except MISCONFIGURED as error:
        return Failure(str(error), misconfigured=True)
    except UNFIT_ENVIRONMENT as error:
        return Failure(str(error), misconfigured=False)
    except OSError as error:
        return Failure(error.strerror or str(error), misconfigured=False)

    logger.info("stopped")
    return None


async def _serve_until_signal(
    config: BrokerConfig,
    print_line: Callable[[str], None],
    beside: Beside | None,
    show_loading: ShowLoading | None,
) -> None:
    stop = trio.Event()
    token = trio.lowlevel.current_trio_token()
    life = Life()
    ready = ReadyReport(print_line)
    with trio.CancelScope() as scope:

        def ask_to_stop(number: int) -> None:
            if stop.is_set():
                logger.warning("stopping at once; the next start checks the logs")
                logging.shutdown()
                os._exit(STATUS_STOPPED_AT_ONCE)  # a thread that waits for a disk could not be ended otherwise
            logger.info("%s: stopping; a second signal stops at once", signal.Signals(number).name)

            # The start does not look at `stop`, and may wait for the store or the check of the logs: it is cancelled.
            if not ready.is_ready:
                scope.cancel()
            stop.set()

        def reload_on_hangup(broker: Broker) -> None:
            secured = broker.secured

            # Without key stores SIGHUP keeps its default action, which ends the process.
            if secured is not None:
                signal.signal(signal.SIGHUP, lambda *_: token.run_sync_soon(secured.ask_to_reload))

        # Python runs the handler between any two instructions of the main thread. `run_sync_soon` moves the work to a
        # step of the event loop.
        previous = [signal.getsignal(number) for number in HANDLED_SIGNALS]
        for number in STOP_SIGNALS:
            signal.signal(number, lambda number, _: token.run_sync_soon(ask_to_stop, number))
        try:
            buffers = SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)
            access = await zookeeper_access(config, in_worker_thread)
            world = real_world(OsNet(buffers), access=access)

            # These are system tasks, as `keep_small` is: they end with Trio.
            if beside is not None and beside.is_required:
                trio.lowlevel.spawn_system_task(await beside.open(life, world))
            elif beside is not None:
                ready.begin = partial(trio.lowlevel.spawn_system_task, _serve_beside, beside, life, world)
            trio.lowlevel.spawn_system_task(tell_loading, life, show_loading)
            await serve(config, world=world, stop=stop, task_status=ready, on_built=reload_on_hangup, life=life)
        # The handlers are restored, because the token is invalid after Trio has ended.
        finally:
            for number, handler in zip(HANDLED_SIGNALS, previous, strict=True):
                signal.signal(number, handler)


async def tell_loading(life: Life, show: ShowLoading | None) -> None:
    """Say how many logs are loaded until all are; a start of less than a second says nothing."""
    with contained(logger, "what is loaded is not shown"):
        began = trio.current_time()
        line_due = LOADING_LINE_SECONDS
        while life.state < BrokerState.RUNNING:
            await trio.sleep(LOADING_LOOK_SECONDS)
            loading = life.loading
            if loading is None or loading.done == loading.total:
                continue

            seconds = trio.current_time() - began
            if show is not None:
                show(loading.done, loading.total, seconds)
            elif seconds >= line_due:
                line_due += LOADING_LINE_SECONDS
                logger.info("%d of %d logs are loaded", loading.done, loading.total)


async def _serve_beside(beside: Beside, life: Life, world: World) -> None:
    # The broker goes on if this fails in any way. It is a system task, whose exception would end Trio.
    with contained(logger, "nothing is served beside Kafka's protocol"):
        try:
            serve_beside = await beside.open(life, world)
        except OSError as error:
            logger.warning("%s", error.strerror or error)
        else:
            await serve_beside()


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit, as the JVM does: each connection and each segment needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:  # macOS: the kernel's own limit may be below the hard limit
        logger.info("the limit of open files stays %d: %s", soft, error)
