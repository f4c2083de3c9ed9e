"""What tests of a log write to it, and find in its directory."""

from barnabas.storage.check import check_partition
from barnabas.storage.entries import walk_buffer

DIRECTORY = "/data/orders-0"
FIRST_LOG = "00000000000000000000.log"


def entries_of(world, log) -> list[bytes]:
    return [bytes(data) for _, data in walk_buffer(memoryview(world.log_bytes(log)))]


def findings(world) -> list[str]:
    return [str(finding) for finding in check_partition(world.disk, DIRECTORY)]


def idempotent(sequence: int, producer_id: int = 7) -> dict:
    return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
