"""What a topic's configuration says about its records, with Kafka's defaults, as `check_produced` asks for it."""

from dataclasses import dataclass

LONG_MAX = 2**63 - 1


@dataclass
class Rules:
    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = LONG_MAX
    compacted: bool = False
