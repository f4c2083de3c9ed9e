"""What tests share with `test_transactions.py`."""

from tests.broker.clusters import until
from tests.broker.harness import Machine
from tests.broker.writers import leader_in, stable_offset

THREE = {
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
    "transaction_state_log_num_partitions": "1",
    "min_insync_replicas": "2",
}


ONE = {"transaction_state_log_num_partitions": "1"}


T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


async def decided(machines, topic="t", partition=0) -> None:
    """Wait until no transaction is open in this partition."""
    await until(lambda: _is_decided(machines, topic, partition), 120)


def _is_decided(machines, topic, partition) -> bool:
    if leader_in(machines, topic, partition) is None:
        return False
    stable, high_watermark = stable_offset(machines, topic, partition)
    return stable == high_watermark


async def one_broker(nursery, **properties) -> tuple[Machine, ...]:
    machine = await Machine(nursery, **ONE, **properties).start()
    client = await machine.connect()
    await client.create_topic("t", 2)
    await client.create_topic("u")
    return (machine,)
