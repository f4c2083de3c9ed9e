"""For people who test software that talks to Kafka: a broker inside their test run.

`LocalBroker` is public; `plugin.py` gives it to pytest as fixtures. Nothing is imported before it is used, for pytest
loads the plugin wherever this package is installed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.errors import LocalBrokerError
    from barnabas.testing.local import LocalBroker

__all__ = ["LocalBroker", "LocalBrokerError"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barnabas.testing import local

    value: object = getattr(local, name)
    return value
