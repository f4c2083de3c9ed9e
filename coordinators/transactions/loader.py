"""What the log of a coordinator partition says about its transactional ids (pure)."""

import logging

from barnabas.coordinators.transactions.records import decode_record
from barnabas.coordinators.transactions.replay import TransactionalIds, replay

logger = logging.getLogger(__name__)


class TransactionLoader:
    """Replays a whole log (`shards.loading.Loader`)."""

    # The last record of an id is its whole state.
    needs_all_records = False

    def __init__(self) -> None:
        self._ids = TransactionalIds()

    def replay(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        """The last record of a key. Raises MalformedRecord."""
        record = decode_record(key, value)
        if record is None:
            logger.warning("passed over a record at offset %d of a kind that is not served", offset)
        else:
            replay(self._ids, record, offset)

    def replay_marker(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """The records of this topic belong to no transaction."""

    def finish(self) -> TransactionalIds:
        """The ids."""
        return self._ids
