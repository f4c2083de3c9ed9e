"""The topic settings that a log uses; the broker's `TopicConfig` has them all.

A log reads them where it uses them and never copies them, because they may change while it is open.
"""

from typing import Protocol

from barnabas.storage.cleanable import CompactionRules
from barnabas.storage.recovery import RecoveryRules
from barnabas.storage.segment import RollRules


# Each part of the storage layer names the settings that it needs, so that its tests have to provide no others; this
# protocol is their sum.
class LogConfig(RollRules, RecoveryRules, CompactionRules, Protocol):
    """The settings for rolling, recovery and compaction, and those that the log itself uses."""

    @property
    def flush_messages(self) -> int: ...

    @property
    def flush_ms(self) -> int: ...

    @property
    def retention_ms(self) -> int: ...

    @property
    def retention_bytes(self) -> int: ...

    @property
    def file_delete_delay_ms(self) -> int: ...

    @property
    def deletes(self) -> bool: ...

    @property
    def delete_retention_ms(self) -> int: ...
