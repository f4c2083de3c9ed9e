"""Where the brokers of a `LocalBroker` live, one after the other: on threads, or as child processes (edge).

Nothing is imported before it is used: a broker as a child process needs none of the broker's code here.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from barnabas.testing.arguments import HOST
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.running.child import REASON_CHARACTERS, BrokerChild

if TYPE_CHECKING:
    from barnabas.broker.call import Broker
    from barnabas.testing.faults.interceptor import Interceptor
    from barnabas.testing.running.disk import LiveDisk
    from barnabas.testing.running.machine import Snapshot
    from barnabas.testing.running.page import BrokerPage
    from barnabas.testing.running.secured import Secured


class Host(Protocol):
    """Where brokers live, one after the other."""

    def start(self, port: int) -> int:
        """Start one and wait until it serves; its port."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def control_port(self, port: int) -> int:
        """Where requests of this package go, if clients go to `port`."""

    def is_alive(self) -> bool:
        """Whether the broker that was started has not ended by itself."""

    def interceptor(self) -> "Interceptor":
        """What is between clients and brokers. LocalBrokerError if they run where nothing can be."""

    def release(self) -> None:
        """No broker is started again: clear all faults, so that no request is held back."""

    def close(self) -> None:
        """Remove the data; no broker runs."""


class ThreadHost:
    """Brokers on threads of this process."""

    def __init__(self, data_dir: Path | None, properties: Mapping[str, str], secured: "Secured") -> None:
        from barnabas.testing.running.clock import BrokerClock
        from barnabas.testing.running.loop import Loop
        from barnabas.testing.running.machine import DirectoryMachine, MemoryMachine

        self._properties = properties
        self._secured = secured
        self._control_port = 0
        self._interceptor: Interceptor | None = None
        self.page: BrokerPage | None = None  # set before the first start, if there is to be one
        self.loop = Loop()
        self.clock = BrokerClock(self.loop)
        now_ms = self.clock.now_ms
        self._machine = MemoryMachine(now_ms) if data_dir is None else DirectoryMachine(str(data_dir), now_ms)

    def start(self, port: int) -> int:
        from barnabas.config.live import BrokerConfig
        from barnabas.config.parse import ConfigError
        from barnabas.testing.running.thread import BrokerThread

        where = {**self._listeners(port), "log.dirs": self._machine.log_directory}
        try:
            config = BrokerConfig({**self._properties, **where})
        except ConfigError as error:
            raise LocalBrokerError(str(error)) from error
        interceptor = self.interceptor()
        self._thread = BrokerThread(
            config, self._machine, interceptor, loop=self.loop, clock=self.clock, page=self.page
        )
        # A broker cannot become ready while its time stands still.
        with self.clock.running():
            port, *others = self._thread.start()
        # This package uses a listener of its own if the other one has TLS or a login.
        self._control_port = others[0] if others else port
        return port

    def _listeners(self, port: int) -> Mapping[str, str]:
        from barnabas.testing.running.secured import CONTROL

        if self._secured.is_plaintext:
            return {"listeners": f"PLAINTEXT://{HOST}:{port}"}
        return self._secured.listeners({self._secured.protocol: port, CONTROL: self._control_port}, CONTROL)

    def control_port(self, port: int) -> int:
        return self._control_port or port

    def is_alive(self) -> bool:
        return not self._thread.life.ended.done()

    def disk(self) -> "LiveDisk":
        """The disk of all brokers here."""
        from barnabas.testing.running.disk import LiveDisk

        return LiveDisk(self.loop, lambda: self._machine.disk)

    @property
    def is_in_memory(self) -> bool:
        """Whether the data are in memory."""
        from barnabas.testing.running.machine import MemoryMachine

        return isinstance(self._machine, MemoryMachine)

    def snapshot(self) -> "Snapshot":
        """The data in memory as they are now."""
        from barnabas.testing.running.loop import NoLoop
        from barnabas.testing.running.machine import MemoryMachine

        assert isinstance(self._machine, MemoryMachine)
        try:
            return self.loop.call(self._machine.snapshot)
        # The loop has ended with the broker, so nothing else uses the machine.
        except NoLoop:
            return self._machine.snapshot()

    def restore(self, snapshot: "Snapshot") -> None:
        """Have these data in memory at the next start; no broker runs."""
        from barnabas.testing.running.machine import MemoryMachine

        assert isinstance(self._machine, MemoryMachine)
        self._machine.restore(snapshot)

    def lose(self, topic: str, partition: int, records: int) -> int:
        """Remove the end of a log; no broker runs."""
        from barnabas.testing.running.disk import lose_records

        return lose_records(self._machine.disk, self._machine.log_directory, topic, partition, records)

    def parts(self) -> "Broker":
        """The live parts of the broker that runs."""
        built = self._thread.life.broker
        if built is None:
            raise LocalBrokerError("the broker is not ready")
        return built

    def stop(self) -> None:
        with self.clock.running(), self._unless_harmed():
            self._thread.stop()

    def kill(self) -> None:
        with self._unless_harmed():
            self._thread.kill()

    @contextmanager
    def _unless_harmed(self) -> Iterator[None]:
        """A broker that ended because the test harmed its disk has ended as the test wants."""
        try:
            yield
        except LocalBrokerError:
            if not getattr(self._machine.disk, "has_failed", False):
                raise

    def interceptor(self) -> "Interceptor":
        """What is between clients and each broker."""
        from barnabas.testing.faults.interceptor import Interceptor

        # One interceptor serves all lives of the broker, so that faults and the log outlive a
        # restart.
        if self._interceptor is None:
            self._interceptor = Interceptor()
        return self._interceptor

    def release(self) -> None:
        if self._interceptor is not None:
            self._interceptor.close()

    def close(self) -> None:
        from barnabas.testing.running.thread import forget

        forget(self._machine)


class ChildHost:
    """Brokers as child processes."""

    def __init__(self, data_dir: Path | None, properties: Mapping[str, str]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        scratch = Path(self._scratch.name)
        self._child = BrokerChild(data_dir or scratch / "data", properties, scratch / "broker.log")

    def start(self, port: int) -> int:
        # A restart gets the port that the first start has chosen, so that clients find the broker
        # again.
        self._child.port = port
        self._child.start()
        return self._child.port

    def stop(self) -> None:
        status = self._child.stop()
        if status != 0:
            raise LocalBrokerError(
                f"the broker ended with status {status}:\n{self._child.log_text()[-REASON_CHARACTERS:]}"
            )

    def kill(self) -> None:
        self._child.kill()

    def control_port(self, port: int) -> int:
        return port

    def is_alive(self) -> bool:
        return self._child.is_running()

    def interceptor(self) -> "Interceptor":
        raise LocalBrokerError("a broker in a process of its own has no faults and no request log: leave out `process`")

    def release(self) -> None: ...

    def close(self) -> None:
        self._scratch.cleanup()
