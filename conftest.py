"""Settings that all tests share."""

import importlib.util
import os
import signal
import threading
import time
from functools import partial

import pytest
import trio

from barnabas.form import FORM

# Names of threads that a test must not leave behind: the loop of brokers, and what holds a session with ZooKeeper. They
# would go on beside all later tests of the process.
THREADS_OF_BROKERS = ("barnabas broker", "(zk_loop)")
END_SECONDS = 10.0  # kazoo ends a second after it was stopped

_of_session: list[threading.Thread] = []  # threads that fixtures of the whole run have made

# No deadline: the machine may be busy, and a slow example is no wrong one. A failure prints how to see it again. In
# continuous integration the examples are always the same, so that a failure there is due to the change under test.
# The environment of `make examples` has no Hypothesis, and runs its tests below this file.
if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings

    profile = {"deadline": None, "max_examples": 100, "print_blob": True, "derandomize": "CI" in os.environ}
    settings.register_profile("barnabas", **profile)
    settings.load_profile("barnabas")


def pytest_make_parametrize_id(config, val, argname):
    """Bytes are named by their argument and a number: compressed ones differ between runs (gzip writes the time), and
    the processes that share a run must find the same names. Everything else keeps pytest's name."""
    return argname if isinstance(val, bytes) else None


# A shell has what it starts in the background ignore SIGINT, and all processes below inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config):
    return f"barnabas: the {FORM} form"


def pytest_runtest_setup(item):
    """Calls within a compiled module are bound when it is compiled, so a test cannot put another function there."""
    if FORM == "compiled" and (marker := item.get_closest_marker("pure_form")):
        pytest.skip(f"only in the pure form: {marker.kwargs['reason']}")
    # pytest-trio runs a test by the clock that the test asks for, and not by one that only its fixtures ask for: all
    # their waits would take real time.
    if "autojump_clock" in getattr(item, "fixturenames", ()) and item.get_closest_marker("trio"):
        item.add_marker(pytest.mark.trio(run=partial(_run_by_clock, item)), append=False)


def _run_by_clock(item, function, *, clock, instruments):
    trio.run(function, clock=item.funcargs["autojump_clock"], instruments=instruments)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    before = _threads_of_brokers() if fixturedef.scope == "session" else []
    made = yield
    if fixturedef.scope == "session":
        _of_session.extend(each for each in _threads_of_brokers() if each not in before)
    return made


@pytest.fixture(autouse=True, scope="module")
def no_broker_is_left_behind():
    """A module fails that leaves a broker of its own running on a thread, or a session with ZooKeeper."""
    before = _threads_of_brokers()
    yield
    deadline = time.monotonic() + END_SECONDS
    while True:
        left = [each for each in _threads_of_brokers() if each not in before and each not in _of_session]
        # A broker of the whole run has another thread once a test has restarted it.
        restarted = [each for each in _of_session if not each.is_alive()]
        if len(left) <= len(restarted) or time.monotonic() > deadline:
            break
        left[-1].join(0.1)
    assert len(left) <= len(restarted), f"threads of brokers are left behind: {[each.name for each in left]}"
    for ended, now in zip(restarted, left, strict=False):
        _of_session[_of_session.index(ended)] = now


def _threads_of_brokers():
    return [each for each in threading.enumerate() if any(name in each.name for name in THREADS_OF_BROKERS)]
