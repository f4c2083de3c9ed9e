"""The one step in which the batch of a Produce is checked and appended.

Both ways of handling a Produce call `begin` for each partition, and go on from the `Begun` that it returns. What the
step has found is in there, a refusal as well, so it is asked once: `handlers/produce.py` awaits what is left to do.
"""

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.producers import Origin
from barnabas.wire.records import Batch, RecordsRefused, check_small
from barnabas.wire.sentinels import ACKS_ALL

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition
    from barnabas.replication.refused_batches import RefusedBatches
    from barnabas.storage.log import Appended
    from barnabas.storage.verification import Guard
    from barnabas.wire.errors import ErrorCode

VALID_ACKS = (ACKS_ALL, 0, 1)
BATCH_FORMAT_2_VERSION = 3  # of Produce


class Rules(NamedTuple):
    """What holds for all batches of one request."""

    version: int  # of the Produce request
    acks: int
    refused_batches: "RefusedBatches"
    is_verifying: bool  # `transaction.partition.verification.enable`


class Begun(NamedTuple):
    """What one step has made of a batch."""

    partition: "Partition"
    batch: Batch | RecordsRefused | None  # None: it needs several steps, a rebuild, or the index of each invalid record
    appended: "Appended | ErrorCode | None" = None  # None: the batch was not appended yet, or may not be
    leading_since: int = -1  # as in `Partition`, when it was appended


BegunRows = dict[int, Begun]  # of a topic's partitions, by index


def begin(
    rules: Rules, partition: "Partition", records: memoryview | None, now_ms: int, guard: "Guard | None" = None
) -> Begun:
    """Check the batch and append it, as far as one step goes. `guard`: of a batch that begins a transaction."""
    batch = None
    if records is not None and rules.version >= BATCH_FORMAT_2_VERSION:
        batch = check_small(records, partition.config, now_ms, rules.version)
    # A refused batch and an invalid acks are left to the handler, which knows in which order Kafka reports them.
    if not isinstance(batch, Batch) or rules.acks not in VALID_ACKS:
        return Begun(partition, batch)
    return Begun(partition, batch, append(rules, partition, batch, guard), partition.leading_since)


def append(rules: Rules, partition: "Partition", batch: Batch, guard: "Guard | None" = None) -> "Appended | ErrorCode":
    """Append a checked batch. The errors are those of `Partition.append_as_leader`, and the error of an earlier batch
    of the same producer that was refused."""
    # If an earlier batch of the producer failed with a retriable error, this one has a gap before it. It must fail with
    # the same error, so that the client resends both in order (`refused_batches.py`).
    refused_batches = rules.refused_batches
    code = refused_batches.code_for(partition, batch.header)
    if code is not None:
        return code

    # The check may have run in a thread while roles changed: role and epoch are checked in the step that writes.
    appended = partition.append_as_leader(
        batch, Origin.CLIENT, rules.acks, guard=guard, is_verifying=rules.is_verifying
    )
    # A success is noted, too: it ends the refusals that an earlier failure of this producer caused.
    refused_batches.note(partition, batch.header, appended)
    return appended
