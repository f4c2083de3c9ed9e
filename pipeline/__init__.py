"""Data pipelines on Apache Spark: archive topics, restore them, read log directories, audit a cluster.

Theory of operation. The package imports without PySpark, which the extra `spark` installs: each public name is imported
from its module on first use (PEP 562), and code that needs PySpark raises `MissingSpark` without it. Every job is a
Spark plan: records go through executors, and only counts go to the driver. README.md documents the formats.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.pipeline.archiving import Source as Source
    from barnabas.pipeline.archiving import archive as archive
    from barnabas.pipeline.auditing import audit as audit
    from barnabas.pipeline.logs import Archive as Archive
    from barnabas.pipeline.logs import Segments as Segments
    from barnabas.pipeline.logs import Topics as Topics
    from barnabas.pipeline.manifest import read_archive as read_archive
    from barnabas.pipeline.plan import Selection as Selection
    from barnabas.pipeline.restoring import Target as Target
    from barnabas.pipeline.restoring import restore as restore
    from barnabas.pipeline.segments import SegmentsDataSource as SegmentsDataSource
    from barnabas.pipeline.session import MissingSpark as MissingSpark
    from barnabas.pipeline.session import open_session as open_session

# Where each public name is defined. A module must not have the name of a public function: importing a module binds its
# name in the package, which would hide the function.
HOMES = {
    "Archive": "logs",
    "MissingSpark": "session",
    "Segments": "logs",
    "SegmentsDataSource": "segments",
    "Selection": "plan",
    "Source": "archiving",
    "Target": "restoring",
    "Topics": "logs",
    "archive": "archiving",
    "audit": "auditing",
    "open_session": "session",
    "read_archive": "manifest",
    "restore": "restoring",
}

__all__ = [
    "Archive",
    "MissingSpark",
    "Segments",
    "SegmentsDataSource",
    "Selection",
    "Source",
    "Target",
    "Topics",
    "archive",
    "audit",
    "open_session",
    "read_archive",
    "restore",
]


def __getattr__(name: str) -> object:
    """A public name, from the module that defines it."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from barnabas.pipeline.session import WHAT_TO_INSTALL, MissingSpark

        raise MissingSpark(f"{WHAT_TO_INSTALL} ({error})") from error
    return value
