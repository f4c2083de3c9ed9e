"""Brokers inside a test run, for tests of software that uses Kafka.

`LocalBroker` and `LocalCluster` are public; `plugin.py` offers them to pytest as fixtures. Nothing is imported before
it is used, because pytest loads the plugin in every environment in which this package is installed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.cluster import LocalCluster
    from barnabas.testing.errors import LocalBrokerError
    from barnabas.testing.local import LocalBroker

__all__ = ["LocalBroker", "LocalBrokerError", "LocalCluster"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "LocalCluster":
        from barnabas.testing.cluster import LocalCluster

        return LocalCluster
    from barnabas.testing import local

    value: object = getattr(local, name)
    return value
