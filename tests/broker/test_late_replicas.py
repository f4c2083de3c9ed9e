"""A replica that comes back when its leader has deleted the records that it is missing."""

import pytest

from barnabas.wire.sentinels import READ_COMMITTED
from tests.broker.clusters import cluster, create_topic, until
from tests.broker.requests import deletion_request, fetch_request
from tests.broker.transactional import T0, THREE
from tests.broker.writers import Writer, stable_offset


@pytest.mark.parametrize("leave", ["stop", "crash"])
async def test_a_transaction_that_ended_while_a_replica_was_away_is_not_open_there(nursery, autojump_clock, leave):
    """It would be open for ever when that replica leads: readers of committed records would wait in front of it."""
    async with cluster(nursery, 3, **THREE) as machines:
        one, two, _ = machines
        client = await one.connect()
        await create_topic(client, "t", [1, 2], min_insync_replicas="1")
        gone, other = Writer(machines, "gone"), Writer(machines, "other")
        await gone.init()
        assert not await gone.add(T0)
        assert not await gone.write("t", b"a")
        await until(lambda: two.broker.replicas.get("t", 0).log.log_end_offset == 1)
        await getattr(two, leave)()
        assert not await gone.end(commit=True)
        await gone.completed()
        await other.init()
        await other.transaction({T0: b"b"})
        await other.completed()
        await until(lambda: stable_offset(machines, "t") == (4, 4))
        deleted = await (await one.connect()).ask(deletion_request(("t", 0, 4)))
        assert deleted.topics[0].partitions[0].error_code == 0
        await two.start()
        await other.transaction({T0: b"c"})
        await other.completed()
        await until(lambda: sorted(one.broker.replicas.get("t", 0).in_sync_replicas) == [1, 2])
        await one.stop()
        await until(lambda: two.broker.replicas.get("t", 0).is_leader)
        assert two.broker.replicas.get("t", 0).log.producers.open_transactions == {}
        asked = fetch_request([("t", 0, 4)], max_wait_ms=0, isolation_level=READ_COMMITTED)
        (row,) = (await (await two.connect()).ask(asked, 12)).responses[0].partitions
        assert (row.last_stable_offset, row.high_watermark) == (6, 6)
        assert row.records
