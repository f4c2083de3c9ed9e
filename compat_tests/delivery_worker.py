"""A consumer process for the delivery tests: it writes an effect for each record, and halts at a given point.

    delivery_worker.py BOOTSTRAP TOPIC GROUP EFFECTS MODE HALT_AFTER

MODE is when it commits: `before` an effect, `after` it, or `idempotent` (after, and the effect is keyed by the record's
place). EFFECTS is an SQLite file: one row an effect. With HALT_AFTER > 0 the worker prints `halted` and stands still
after so many effects, at the point where its death does the most harm: `before` has committed and not yet worked,
`after` has worked and not yet committed.

A test must not wait for both members to read: kafka-python 3.0.12 can put one to sleep for ever, with Apache Kafka as
with Barnabas (2 and 1 of 40 groups of two, polled every 200 ms). The member that leads first deals out shares before it
knows the topic's partitions, and joins again when it does. `need_rejoin()` is true then for no other reason than that
`_assignment_snapshot` differs from `_metadata_snapshot`, and `_perform_assignment` makes them equal while SyncGroup is
still on its way. When a `poll()` runs out of time at this moment, `join_group_async` leaves its join task to be taken
up by the next `poll()`, which asks `need_rejoin()`, hears no, and never looks at the task: the share that the broker
gave is not taken over, and heartbeats, which were switched off for the join, stay off. The broker drops the member
after its session, and the other one gets all partitions.
"""

import sqlite3
import sys
import time

from kafka import KafkaConsumer
from kafka.errors import KafkaError

BATCH = 10
POLL_MS = 1000  # far from the 200 ms or so after which the leader's second join goes on: see above


def main() -> None:
    bootstrap, topic, group, effects_path, mode, halt_after = sys.argv[1:]
    effects = sqlite3.connect(effects_path, isolation_level=None, timeout=30)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=BATCH,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([topic])
    done = 0
    while True:
        batch = [record for records in consumer.poll(timeout_ms=POLL_MS).values() for record in records]
        if mode == "before" and batch and not committed(consumer):
            continue  # the group changes: what is not committed must not be worked on
        for record in batch:
            if int(halt_after) and done >= int(halt_after):
                halt()
            verb = "INSERT OR IGNORE" if mode == "idempotent" else "INSERT"
            table = "idempotent_effect" if mode == "idempotent" else "effect"
            effects.execute(
                f"{verb} INTO {table} VALUES (?, ?, ?)", (record.partition, record.offset, record.value.decode())
            )
            done += 1
        if mode != "before" and batch:
            if int(halt_after) and done >= int(halt_after):
                halt()
            committed(consumer)


def committed(consumer: KafkaConsumer) -> bool:
    """Commit what was polled; False while the group rebalances: then a member gets these records again."""
    try:
        consumer.commit()
    except KafkaError:
        return False
    return True


def halt() -> None:
    print("halted", flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
