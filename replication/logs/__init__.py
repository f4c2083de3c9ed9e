"""The partition logs of this broker: log directories, flushes, compaction, deletion."""
