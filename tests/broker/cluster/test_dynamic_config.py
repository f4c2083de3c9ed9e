"""What a broker knows of the configuration in the store, whatever happens to store, session and broker meanwhile."""

import pytest
import trio

from barnabas.controller.admin.entity_configs import change_entity
from barnabas.controller.store import paths
from barnabas.controller.store.sqlitestore import SqliteStore
from barnabas.controller.store.store import SessionExpired, StoreUnavailable
from barnabas.replication.logs.partition_logs import Logs
from barnabas.replication.replicas import Replicas
from tests.broker.harness import Machine

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
WITH_SCRAM = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.login.scram-sha-256.sasl.jaas.config": f"{MODULE} required;",
}
MONTH_MS = str(30 * 24 * 3_600_000)


async def altered(machine, entity, **texts) -> None:
    """As another broker does it; underscores are dots."""
    store = machine.session()
    dotted = {name.replace("_", "."): text for name, text in texts.items()}
    await change_entity(store, entity, lambda _: dotted)
    await store.close()


def failing_once(monkeypatch, path, number, error) -> list[int]:
    """One read of a node fails, in whatever session: the one of this number. All reads of it so far, by number."""
    read, reads = SqliteStore.get, []

    async def get(store, asked, watch=None):
        if asked == path:
            reads.append(len(reads) + 1)
            if reads[-1] == number:
                raise error
        return await read(store, asked, watch)

    monkeypatch.setattr(SqliteStore, "get", get)
    return reads


@pytest.mark.parametrize("error", [StoreUnavailable("here", "for a moment"), SessionExpired(1)])
@pytest.mark.parametrize("number", [1, 2], ids=["quotas", "users"])
async def test_a_store_that_fails_while_all_is_read_again_ends_no_broker(
    nursery, autojump_clock, monkeypatch, number, error
):
    machine = Machine(nursery)
    machine.properties |= WITH_SCRAM
    await machine.start()
    await altered(machine, "users/K", producer_byte_rate="1000")
    await trio.sleep(1)
    reads = failing_once(monkeypatch, "/config/users/K", number, error)
    await machine.broker.store.expire()
    await trio.sleep(60)
    assert len(reads) > number
    assert machine.failure is None
    assert machine.is_running


async def test_what_is_altered_while_logs_are_read_holds_though_its_notice_has_expired(
    nursery, autojump_clock, monkeypatch
):
    machine = await Machine(nursery, broker_id="1").start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.create_topic("u")
    await machine.crash()
    load, store = Logs.load, machine.session()

    async def load_for_half_an_hour(logs, *needed):
        await altered(machine, "topics/t", retention_ms=MONTH_MS)
        await altered(machine, "brokers/<default>", log_retention_ms=MONTH_MS)
        await load(logs, *needed)
        await trio.sleep(1800)
        # By another broker, as they are older than 15 minutes.
        for name in await store.children(paths.CONFIG_CHANGES):
            await store.delete(f"{paths.CONFIG_CHANGES}/{name}")

    monkeypatch.setattr(Logs, "load", load_for_half_an_hour)
    await machine.start()
    kept = {log.topic_partition.topic: str(log.config.retention_ms) for log in machine.broker.replicas.logs}
    assert kept == {"t": MONTH_MS, "u": MONTH_MS}


async def test_at_the_start_a_contradiction_in_its_own_values_leaves_those_of_all_brokers(
    nursery, autojump_clock, caplog
):
    machine = await Machine(nursery, broker_id="1").start()
    await altered(machine, "brokers/<default>", log_retention_ms=MONTH_MS)
    await altered(machine, "brokers/1", log_cleaner_dedupe_buffer_size=str(2 << 20))
    await machine.stop()
    # More memory is needed for four threads, so the two contradict each other.
    await machine.start(log_cleaner_threads="4")
    assert "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread" in caplog.text
    assert str(machine.broker.config.log_retention_ms) == MONTH_MS


async def test_listeners_that_a_tool_writes_are_those_of_the_next_start(nursery, autojump_clock, caplog):
    own = "listener.name.login"
    later = {name.replace("login", "later"): text for name, text in WITH_SCRAM.items() if name.startswith(own)}
    machine = Machine(nursery, broker_id="1")
    machine.properties |= WITH_SCRAM | later
    await machine.start()
    more = {
        "listeners": f"{WITH_SCRAM['listeners']},LATER://127.0.0.1:9095",
        "listener.security.protocol.map": f"{WITH_SCRAM['listener.security.protocol.map']},LATER:SASL_PLAINTEXT",
    }
    await altered(machine, "brokers/1", log_retention_ms=MONTH_MS, **more)
    await trio.sleep(60)
    assert machine.is_running
    assert str(machine.broker.config.log_retention_ms) == MONTH_MS
    assert "listeners in the store (brokers/1) are those of the next start" in caplog.text
    await machine.stop()
    await machine.start()
    assert [each.listener for each in machine.serving.advertised] == ["PLAINTEXT", "LOGIN", "LATER"]


async def test_after_a_lost_session_partitions_are_not_gone_through_once_for_each_topic(
    nursery, autojump_clock, monkeypatch
):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    for name in ("t", "u", "v"):
        await client.create_topic(name)
    looked, reconfigured = [], Replicas.reconfigured

    async def reconfigured_and_noted(replicas, topic):
        looked.append(topic)
        await reconfigured(replicas, topic)

    monkeypatch.setattr(Replicas, "reconfigured", reconfigured_and_noted)
    await machine.broker.store.expire()
    await trio.sleep(60)
    assert looked == [None]
