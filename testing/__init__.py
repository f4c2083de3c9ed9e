"""Brokers inside a test run, for tests of software that uses Kafka.

`LocalBroker` and `LocalCluster` are public; `plugin.py` offers them to pytest as fixtures. Nothing is imported before
it is used, because pytest loads the plugin in every environment in which this package is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.cluster.cluster import LocalCluster
    from barnabas.testing.errors import FaultError, FaultMissed, LocalBrokerError
    from barnabas.testing.lab.control import Laboratory
    from barnabas.testing.local import LocalBroker

__all__ = ["FaultError", "FaultMissed", "Laboratory", "LocalBroker", "LocalBrokerError", "LocalCluster"]

_MODULES = {
    "FaultError": "errors",
    "FaultMissed": "errors",
    "Laboratory": "lab.control",
    "LocalBroker": "local",
    "LocalBrokerError": "errors",
    "LocalCluster": "cluster.cluster",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"barnabas.testing.{_MODULES[name]}"), name)
    return value
