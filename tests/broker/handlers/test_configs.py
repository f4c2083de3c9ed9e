"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of a whole broker: what is altered holds at once."""

import logging

import pytest
import trio

from barnabas.controller.admin.entity_configs import change_entity, read_entity
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ConfigChange
from barnabas.controller.store.sqlitestore import SqliteStore
from barnabas.controller.store.store import StoreUnavailable
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.altering import APPEND, BROKER, LOGGER, TOPIC, alter, altered, describe, replacing
from tests.broker.harness import Machine
from tests.broker.steps import StepMeter

INVALID, NO_TOPIC = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def started(nursery) -> Machine:
    return await Machine(nursery, broker_id="1").start()


async def value_of(client, resource_type, name, key):
    (row,) = (await describe(client, resource_type, name, key)).configs
    return row.value, row.config_source


# -- altering


async def test_a_change_that_is_only_to_be_checked_is_checked_and_not_made(nursery, autojump_clock):
    client = await (await started(nursery)).connect()
    await client.create_topic("t")
    (refused,) = await alter(client, (TOPIC, "t", {"flush.ms": "x"}), validate_only=True)
    assert refused[0] == ErrorCode.INVALID_CONFIG
    assert await alter(client, (TOPIC, "t", {"flush.ms": "5"}), validate_only=True) == [(0, None)]
    assert await value_of(client, TOPIC, "t", "flush.ms") == ("9223372036854775807", 5)
    (row,) = (await client.ask(replacing(BROKER, "1", {"log.roll.ms": "9"}, validate_only=True))).responses
    assert (row.error_code, await value_of(client, BROKER, "1", "log.roll.ms")) == (0, (None, 5))


async def test_a_list_does_not_grow_beyond_what_a_response_can_have(nursery, autojump_clock):
    client = await (await started(nursery)).connect()
    await client.create_topic("t")
    name = "leader.replication.throttled.replicas"
    first, more = (",".join(f"{partition}:{broker}" for partition in range(3000)) for broker in "12")
    assert await alter(client, (TOPIC, "t", {name: (APPEND, first)})) == [(0, None)]
    ((code, message),) = await alter(client, (TOPIC, "t", {name: (APPEND, more)}))
    assert (code, message) == (INVALID, f"{name} would be longer than 32767 bytes.")
    assert await value_of(client, TOPIC, "t", name) == (first, 1)


async def test_what_does_not_act_is_named_in_the_log(nursery, autojump_clock, caplog):
    client = await (await started(nursery)).connect()
    await client.create_topic("t")
    await altered(client, TOPIC, "t", preallocate="true")
    await altered(client, BROKER, "", num_io_threads="16")
    assert "topics/t: preallocate has no effect in this version" in caplog.text
    assert "brokers/<default>: num.io.threads has no effect in this version" in caplog.text


async def test_a_store_that_cannot_write_refuses_the_change(nursery, autojump_clock):
    client = await (await started(nursery)).connect()
    await client.create_topic("t")
    (refused,) = await alter(client, (BROKER, "1", {f"zzz{number}": "x" * 30_000 for number in range(40)}))
    assert refused[0] == INVALID
    assert "limited to" in refused[1]


# -- what is altered holds


async def test_a_topics_value_holds_from_the_next_request_on(nursery, autojump_clock):
    client = await (await started(nursery)).connect()
    await client.create_topic("t")
    await altered(client, TOPIC, "t", max_message_bytes="100")
    assert (await client.produce("t", b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await altered(client, TOPIC, "t", max_message_bytes=None)
    assert (await client.produce("t", b"x" * 200)).error_code == 0


async def test_the_brokers_value_holds_for_topics_without_their_own(nursery, autojump_clock):
    client = await (await started(nursery)).connect()
    await client.create_topic("follows")
    await client.create_topic("keeps", max_message_bytes="5000")
    await altered(client, BROKER, "", message_max_bytes="100")
    assert (await client.produce("follows", b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await client.produce("keeps", b"x" * 200)).error_code == 0
    await altered(client, BROKER, "1", message_max_bytes="1000")
    assert (await client.produce("follows", b"x" * 200)).error_code == 0
    assert await value_of(client, TOPIC, "follows", "max.message.bytes") == ("1000", 2)


async def test_a_listener_does_not_lose_its_protocol_and_the_broker_starts_again(nursery, autojump_clock):
    machine = await started(nursery)
    client = await machine.connect()
    name, more = "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,LATER:SSL"
    ((code, _),) = await alter(client, (BROKER, "1", {name: "PLAINTEXT:SSL"}))
    assert code == INVALID
    assert await alter(client, (BROKER, "1", {name: more})) == [(0, None)]
    await machine.stop()
    await machine.start()
    assert (await value_of(await machine.connect(), BROKER, "1", name))[0] == more


async def test_what_was_altered_survives_a_restart(nursery, autojump_clock):
    machine = await started(nursery)
    client = await machine.connect()
    await client.create_topic("t")
    await altered(client, BROKER, "", message_max_bytes="100")
    await altered(client, TOPIC, "t", flush_ms="5")
    await machine.stop()
    client = await (await machine.start()).connect()
    assert (await client.produce("t", b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await value_of(client, BROKER, "", "message.max.bytes") == ("100", 3)
    assert await value_of(client, TOPIC, "t", "flush.ms") == ("5", 1)


async def test_kafkas_nodes_are_written(nursery, autojump_clock):
    machine = await started(nursery)
    client = await machine.connect()
    await client.create_topic("t")
    await altered(client, TOPIC, "t", segment_bytes=" 100000 ")
    await altered(client, BROKER, "1", zzz="1")
    await altered(client, BROKER, "", message_max_bytes="9")
    store = machine._database.session()
    written = {}
    for entity in ("topics/t", "brokers/1", "brokers/<default>"):
        written[entity], _ = await store.get(f"/config/{entity}")
    notified = [
        ConfigChange.decode((await store.get(f"{paths.CONFIG_CHANGES}/{name}"))[0], name).entity_path
        for name in await store.children(paths.CONFIG_CHANGES)
    ]
    assert written == {
        "topics/t": b'{"version":1,"config":{"segment.bytes":" 100000 "}}',
        "brokers/1": b'{"version":1,"config":{"zzz":"1"}}',
        "brokers/<default>": b'{"version":1,"config":{"message.max.bytes":"9"}}',
    }
    assert notified == ["topics/t", "brokers/1", "brokers/<default>"]
    await store.close()


async def test_what_another_broker_altered_is_followed(nursery, autojump_clock):
    machine = await started(nursery)
    client = await machine.connect()
    await client.create_topic("t")
    store = machine._database.session()
    await change_entity(store, "topics/t", lambda texts: {**texts, "max.message.bytes": "100"})
    await trio.sleep(0.1)
    assert (await client.produce("t", b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await store.close()


async def test_what_cannot_be_used_in_the_store_is_ignored_with_a_line(nursery, autojump_clock, caplog):
    machine = await started(nursery)
    await machine.stop()
    store = machine._database.session()
    wrong = {"log.segment.bytes": "x", "broker.id": "5", "message.max.bytes": "100"}
    await change_entity(store, "brokers/1", lambda texts: wrong)
    await change_entity(store, "brokers/<default>", lambda texts: {"log.roll.ms": "0"})
    client = await (await machine.start()).connect()
    assert "log.segment.bytes in the store (brokers/1) is not valid and is ignored" in caplog.text
    assert "log.roll.ms must be greater than or equal to 1" in caplog.text
    assert await value_of(client, BROKER, "1", "message.max.bytes") == ("1048588", 5)
    await altered(client, BROKER, "", log_roll_ms=None)
    assert await value_of(client, BROKER, "1", "message.max.bytes") == ("100", 2)
    await store.close()


async def test_a_notification_is_removed_when_it_is_old(nursery, autojump_clock):
    machine = await started(nursery)
    client = await machine.connect()
    await altered(client, BROKER, "1", zzz="1")
    await trio.sleep(16 * 60)
    await altered(await machine.connect(), BROKER, "1", zzz="2")
    store = machine._database.session()
    with trio.fail_after(60):
        while await store.children(paths.CONFIG_CHANGES) != ["config_change_0000000001"]:
            await trio.sleep(1)
    assert await read_entity(store, "brokers/1") == {"zzz": "2"}
    await store.close()


async def test_a_damaged_notification_is_ignored_with_a_line(nursery, autojump_clock, caplog):
    machine = await started(nursery)
    store = machine._database.session()
    await store.create(paths.CONFIG_CHANGE_PREFIX, b"{", sequential=True)
    client = await machine.connect()
    await altered(client, BROKER, "", message_max_bytes="100")
    assert await value_of(client, BROKER, "1", "message.max.bytes") == ("100", 3)
    assert "ignoring a node that cannot be read" in caplog.text
    await store.close()


async def test_what_does_not_act_is_named_again_at_the_next_start(nursery, autojump_clock, caplog):
    machine = await started(nursery)
    await altered(await machine.connect(), BROKER, "", num_io_threads="16")
    await machine.stop()
    caplog.clear()
    await machine.start()
    assert "brokers/<default> in the store: num.io.threads has no effect in this version" in caplog.text


async def test_one_that_waits_for_a_connection_gets_it_when_more_are_allowed(nursery, autojump_clock):
    machine = await Machine(nursery, broker_id="1", max_connections="1").start()
    client = await machine.connect()
    await client.ask(m.ApiVersionsRequest(), 0)  # it has the one place
    waiting = await machine.connect()
    await waiting.send(m.ApiVersionsRequest(), 0)
    assert await waiting.is_quiet(seconds=5)
    await altered(client, BROKER, "1", max_connections="2")
    with trio.fail_after(2):
        assert (await waiting.receive()).error_code == 0


async def test_other_addresses_are_advertised_at_once(nursery, autojump_clock):
    client = await (await started(nursery)).connect()
    await altered(client, BROKER, "1", advertised_listeners="PLAINTEXT://elsewhere:7")
    await trio.sleep(1)
    (broker,) = (await client.ask(m.MetadataRequest(topics=[]))).brokers
    assert (broker.host, broker.port) == ("elsewhere", 7)
    await altered(client, BROKER, "1", advertised_listeners=None)
    await trio.sleep(1)
    (broker,) = (await client.ask(m.MetadataRequest(topics=[]))).brokers
    assert (broker.host, broker.port) == ("127.0.0.1", 9092)


async def test_addresses_that_are_not_to_be_found_leave_the_old_ones(nursery, autojump_clock, monkeypatch, caplog):
    known_hosts = ["castle"]

    async def resolves(host):
        return host in known_hosts

    monkeypatch.setattr("barnabas.broker.serve.machine_host_name", lambda: "castle")
    monkeypatch.setattr("barnabas.broker.serve.resolves", resolves)
    client = await (await Machine(nursery, broker_id="1", listeners="PLAINTEXT://0.0.0.0:9092").start()).connect()
    await altered(client, BROKER, "1", advertised_listeners="PLAINTEXT://here:1")
    known_hosts.clear()
    await altered(client, BROKER, "1", advertised_listeners=None)
    await trio.sleep(1)
    (broker,) = (await client.ask(m.MetadataRequest(topics=[]))).brokers
    assert (broker.host, broker.port) == ("here", 1)
    assert "the addresses to advertise stay as they are" in caplog.text


async def test_other_addresses_are_advertised_once_the_store_can_be_reached(nursery, autojump_clock, monkeypatch):
    machine = await started(nursery)
    client = await machine.connect()
    write = SqliteStore.set

    async def unreachable(self, path, *content):
        monkeypatch.setattr(SqliteStore, "set", write)
        raise StoreUnavailable(path, "for a moment")

    monkeypatch.setattr(SqliteStore, "set", unreachable)
    await altered(client, BROKER, "1", advertised_listeners="PLAINTEXT://elsewhere:7")
    assert SqliteStore.set is write
    await trio.sleep(2)
    (broker,) = (await client.ask(m.MetadataRequest(topics=[]))).brokers
    assert (broker.host, broker.port) == ("elsewhere", 7)


async def test_properties_of_a_topic_that_fit_each_other_hold_whatever_the_brokers_are(nursery, autojump_clock):
    machine = await Machine(nursery, broker_id="1", log_cleaner_max_compaction_lag_ms="1000").start()
    client = await machine.connect()
    await client.create_topic("t")
    await altered(client, TOPIC, "t", min_compaction_lag_ms="2000", max_compaction_lag_ms="3000")
    assert await value_of(client, TOPIC, "t", "min.compaction.lag.ms") == ("2000", 1)


async def test_fewer_replicas_that_are_enough_commit_what_waited(nursery, autojump_clock):
    machine = await started(nursery)
    client, waiting = await machine.connect(), await machine.connect()
    await client.create_topic("t", min_insync_replicas="2")
    assert await client.give_role(machine, "t", replicas=[1, 2], isr=[1]) == 0
    assert (await client.produce("t", b"x", acks=1)).error_code == 0
    assert (await client.fetch("t", max_wait_ms=0)).high_watermark == 0
    await altered(client, TOPIC, "t", min_insync_replicas=None)
    assert (await waiting.fetch("t", max_wait_ms=0)).high_watermark == 1


async def test_a_replica_out_of_sync_leads_when_that_is_allowed_while_brokers_run(nursery, autojump_clock):
    machine = await started(nursery)
    client = await machine.connect()
    await client.create_topic("t")
    store = machine._database.session()
    state = paths.PartitionState(leader=-1, leader_epoch=5, controller_epoch=1, isr=(9,))
    await store.set(paths.partition_state("t", 0), state.encode())
    await machine.stop()
    client = await (await machine.start()).connect()
    assert (await client.metadata("t"))["t"].partitions[0].leader_id == -1
    await altered(client, TOPIC, "t", unclean_leader_election_enable="true")
    await trio.sleep(1)
    assert (await client.metadata("t"))["t"].partitions[0].leader_id == 1
    await store.close()


# -- levels of loggers


@pytest.fixture
def levels_restored():
    loggers = [logging.getLogger(name) for name in (None, "barnabas", "barnabas.broker.server.dispatch")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


async def test_a_loggers_level_is_set_and_taken_away(nursery, autojump_clock, levels_restored):
    client, ours = await (await started(nursery)).connect(), "barnabas.broker.server.dispatch"
    assert await alter(client, (LOGGER, "1", {"root": "WARN"})) == [(0, None)]
    assert await value_of(client, LOGGER, "1", ours) == ("WARN", 6)
    assert await alter(client, (LOGGER, "1", {ours: "TRACE"})) == [(0, None)]
    assert logging.getLogger(ours).isEnabledFor(logging.DEBUG)
    assert await value_of(client, LOGGER, "1", ours) == ("TRACE", 6)
    assert await alter(client, (LOGGER, "1", {ours: None})) == [(0, None)]
    assert await value_of(client, LOGGER, "1", ours) == ("WARN", 6)


async def test_one_level_is_for_all_loggers_of_ours(nursery, autojump_clock, levels_restored):
    client = await (await started(nursery)).connect()
    assert await alter(client, (LOGGER, "1", {"barnabas": "ERROR"})) == [(0, None)]
    assert await value_of(client, LOGGER, "1", "barnabas.broker.server.dispatch") == ("ERROR", 6)
    assert await value_of(client, LOGGER, "1", "root") != ("ERROR", 6)


async def test_where_one_level_is_refused_none_is_changed(nursery, autojump_clock):
    client, before = await (await started(nursery)).connect(), logging.root.level
    refused = (ErrorCode.INVALID_CONFIG, "Logger barnabas.nope does not exist!")
    assert await alter(client, (LOGGER, "1", {"root": "ERROR", "barnabas.nope": None})) == [refused]
    assert logging.root.level == before


async def test_a_level_that_is_only_to_be_checked_is_not_changed(nursery, autojump_clock):
    client, before = await (await started(nursery)).connect(), logging.root.level
    assert await alter(client, (LOGGER, "1", {"root": "FATAL"}), validate_only=True) == [(0, None)]
    assert logging.root.level == before


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
async def test_a_change_reaches_many_partitions_in_short_steps(nursery, autojump_clock, kind, name):
    client = await (await started(nursery)).connect()
    await client.create_topic("t", 600)
    with StepMeter() as meter:
        assert await alter(client, (kind, name, {"min.insync.replicas": "2"})) == [(0, None)]
        await trio.sleep(1)
    meter.check()
