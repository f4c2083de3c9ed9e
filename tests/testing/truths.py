"""What tests share with `test_truth.py`."""

from barnabas.testing.simulation.truth import Truth
from barnabas.wire.records import BatchHeader

TOPIC_ID = bytes(15) + b"\1"


def batch(offset, *, count=1, epoch=0, producer=-1, sequence=-1, crc=None):
    """A batch's header; what is not said follows from the offset."""
    crc = 1000 + offset if crc is None else crc
    return BatchHeader(offset, 100, epoch, 2, crc, 0, count - 1, 0, 0, producer, 0, sequence, count)


def truth_of(*batches, epoch=0):
    truth = Truth("t", TOPIC_ID, 0)
    for each in batches:
        truth.known[each.base_offset, each.partition_leader_epoch] = each
        truth.commit(each, epoch, is_internal=False)
    return truth
