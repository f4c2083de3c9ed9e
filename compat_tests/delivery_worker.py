"""A consumer process for the delivery tests: it takes effect on records, and halts where it is told to.

    delivery_worker.py BOOTSTRAP TOPIC GROUP EFFECTS MODE HALT_AFTER

MODE is when it commits: `before` an effect, `after` it, or `idempotent` (after, and the effect is keyed by the record's
place). EFFECTS is an SQLite file: one row an effect. With HALT_AFTER > 0 the worker prints `halted` and stands still
after so many effects, at the point where its death does the most harm: `before` has committed and not yet worked,
`after` has worked and not yet committed.
"""

import sqlite3
import sys
import time

from kafka import KafkaConsumer
from kafka.errors import KafkaError

BATCH = 10


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
        batch = [record for records in consumer.poll(timeout_ms=200).values() for record in records]
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
    """Commit what was polled; False while the group rebalances, and then somebody gets these records again."""
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
