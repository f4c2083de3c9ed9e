"""A test run that is interrupted while its broker starts leaves nothing behind."""

import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from barnabas.config.live import BrokerConfig
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.local import LocalBroker
from barnabas.testing.running.child import BrokerChild
from barnabas.testing.running.machine import MemoryMachine
from barnabas.testing.running.thread import BrokerThread


class SlowMachine(MemoryMachine):
    """One on which the start waits at its very beginning."""

    def __init__(self):
        super().__init__()
        self.may_go_on = threading.Event()

    @contextmanager
    def world(self, net):
        self.may_go_on.wait(10)
        with super().world(net) as world:
            yield world


class Interrupted(Future):
    """`result` is interrupted, as by Ctrl-C."""

    def __init__(self, machine):
        super().__init__()
        self.machine = machine

    def result(self, timeout=None):
        threading.Timer(0.1, self.machine.may_go_on.set).start()
        raise KeyboardInterrupt


def test_a_broker_on_a_thread_ends_though_its_loop_had_not_begun():
    machine = SlowMachine()
    thread = BrokerThread(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/memory"}), machine)
    thread.life.ready = Interrupted(machine)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
    assert thread._thread.join(10)


class InterruptedChild(BrokerChild):
    def _read_ready_line(self):
        self.started = self._process
        raise KeyboardInterrupt


def test_a_child_process_is_ended(tmp_path):
    child = InterruptedChild(tmp_path / "data", {}, tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        child.start()
    assert not child.is_running()
    assert child.started.poll() is not None


def test_a_with_block_that_is_never_entered_is_left(monkeypatch):
    broker = LocalBroker()

    def interrupted(port):
        raise KeyboardInterrupt

    monkeypatch.setattr(broker._host, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), broker:
        raise AssertionError("entered")
    assert broker._closed


DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("barnabas ready: broker 1 at PLAINTEXT://127.0.0.1:9092, cluster c, data d", flush=True)
time.sleep(600)
"""


class DeafChild(BrokerChild):
    """One that does not end."""

    def program(self):
        return [sys.executable, "-c", DEAF]


def test_a_child_process_that_does_not_end_is_killed_and_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("barnabas.testing.running.child.END_SECONDS", 0.2)
    child = DeafChild(tmp_path / "data", {}, tmp_path / "log").start()
    process = child._process
    with pytest.raises(LocalBrokerError, match=r"has not ended within 0\.2 s"):
        child.stop()
    assert process.poll() is not None
