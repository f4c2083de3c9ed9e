"""Settings that all tests share."""

import importlib.util
import os
from functools import partial

import pytest
import trio

from barnabas.form import FORM

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
