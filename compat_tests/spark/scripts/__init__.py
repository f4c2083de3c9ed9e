"""The scripts: functions of a `Place` that return what they saw, which must be the same with every kind of broker.

A script states with `assert` what Spark's documentation promises; what it returns is compared between the kinds. Its
name is that of the function.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from compat_tests.spark.place import Place
from compat_tests.spark.scripts import batch, leaders, loss, offsets, sink, streaming, windows

Script = Callable[[Place], Any]


def _scripts_of(*modules: ModuleType) -> dict[str, Script]:
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    }


SCRIPTS = _scripts_of(batch, offsets, streaming, loss, sink, windows)
CLUSTER_SCRIPTS = _scripts_of(leaders)  # these lose a broker, and come last
