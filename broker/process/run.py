"""One broker as a process (edge): signals, descriptors, and the ready line.

`serve()` knows none of this, so that tests and simulated clusters can run several brokers in one process. The first
SIGTERM or SIGINT asks for a clean stop; a second one, or one that comes before the broker is ready, stops at once.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple

import trio

from barnabas.broker.config.live import BrokerConfig
from barnabas.broker.net import OsNet, SocketBuffers
from barnabas.broker.process.heap import freeze_heap, keep_small, share_one_heap
from barnabas.broker.serve import MISCONFIGURED, UNFIT_ENVIRONMENT, Serving, serve
from barnabas.broker.world import real_world

logger = logging.getLogger(__name__)

STATUS_STOPPED_AT_ONCE = 1
THREAD_SWITCH_SECONDS = 0.0005  # how long a thread that checks a large batch may keep the loop from running
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Failure(NamedTuple):
    """Why the broker ended, when it did not end because it was asked to."""

    message: str
    misconfigured: bool


class ReadyReport:
    """trio's task status: called once, when the broker serves."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self.is_ready = False
        self._print_line = print_line

    def started(self, value: Serving) -> None:
        self.is_ready = True
        self._print_line(value.ready_line)
        freeze_heap()
        trio.lowlevel.spawn_system_task(keep_small, value.load)


def run_broker(config: BrokerConfig, print_line: Callable[[str], None]) -> Failure | None:
    """Serve until a signal asks to stop; the failure that ended it otherwise."""
    raise_descriptor_limit()
    share_one_heap()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    for warning in config.warnings():
        logger.warning("%s", warning)
    try:
        trio.run(_serve_until_signal, config, print_line)
    except MISCONFIGURED as error:
        return Failure(str(error), misconfigured=True)
    except UNFIT_ENVIRONMENT as error:
        return Failure(str(error), misconfigured=False)
    except OSError as error:
        return Failure(error.strerror or str(error), misconfigured=False)
    return None


async def _serve_until_signal(config: BrokerConfig, print_line: Callable[[str], None]) -> None:
    stop = trio.Event()
    token = trio.lowlevel.current_trio_token()
    ready = ReadyReport(print_line)
    with trio.CancelScope() as scope:

        def ask_to_stop() -> None:
            if stop.is_set():
                logger.warning("stopping at once; the next start checks the logs")
                logging.shutdown()
                os._exit(STATUS_STOPPED_AT_ONCE)  # a thread that waits for a disk could not be ended otherwise
            if not ready.is_ready:
                scope.cancel()
            stop.set()

        previous = [signal.signal(number, lambda *_: token.run_sync_soon(ask_to_stop)) for number in STOP_SIGNALS]
        try:
            buffers = SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)
            await serve(config, world=real_world(OsNet(buffers)), stop=stop, task_status=ready)
        finally:
            for number, handler in zip(STOP_SIGNALS, previous, strict=True):
                signal.signal(number, handler)


def raise_descriptor_limit() -> None:
    """As many descriptors as the system lets this process have, as the JVM does: each connection and segment is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:  # macOS: the hard limit may say "infinity" while the kernel has another
        logger.info("the limit of open files stays %d: %s", soft, error)
