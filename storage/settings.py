"""The settings of a topic that a log goes by; the broker's `TopicConfig` has them all.

They are read where they are used, and never kept: they may change while the log is open.
"""

from typing import Protocol

from barnabas.storage.cleanable import CompactionRules
from barnabas.storage.recovery import RecoveryRules
from barnabas.storage.segment import RollRules


class LogConfig(RollRules, RecoveryRules, CompactionRules, Protocol):
    """What rolling, recovery and compaction need, and what the log itself needs."""

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
