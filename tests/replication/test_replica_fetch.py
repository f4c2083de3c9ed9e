"""A leader and its followers, by what goes over the wire: progress, commits, the ISR; and consumers of followers."""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.fetching import only_row
from tests.broker.handlers.sessions import Session
from tests.broker.harness import Machine
from tests.broker.requests import (
    batch_of,
    deletion_request,
    fetch_request,
    fetched,
    list_offsets_request,
    produce_request,
    values_in,
)

ME, OTHER = 1, 2
RACKS = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Leader:
    """Broker 1 leads topic t, which has a replica on broker 2; broker 2 is registered, and is played by the test."""

    def __init__(self, machine, client, topic_id) -> None:
        self.machine, self.client, self.topic_id = machine, client, topic_id

    async def fetch(self, offset: int, *, replica=OTHER, **fields):
        """A follower's fetch of partition 0; its row."""
        asked = fetch_request([("t", 0, offset)], replica_id=replica, **{"max_wait_ms": 0} | fields)
        return only_row(await (await self.machine.connect()).ask(asked, 12))

    async def consume(self, offset: int = 0, **fields):
        return await self.client.fetch("t", offset, **{"max_wait_ms": 0} | fields)

    async def high_watermark(self) -> int:
        return (await self.consume()).high_watermark

    async def isr(self, partition: int = 0) -> list[int]:
        """What the controller has said to all."""
        (topic,) = (await self.client.metadata("t")).values()
        return list(topic.partitions[partition].isr_nodes)

    def follower(self, partition: int = 0):
        """What the leader knows of broker 2."""
        return self.machine.broker.replicas.get("t", partition).followers[OTHER]


async def leading(nursery, partitions=1, *, properties=None, **configs) -> Leader:
    machine = Machine(nursery, **{"broker_id": str(ME), "replica_lag_time_max_ms": "10000"} | (properties or {}))
    await machine.start()
    machine.other = await machine.join(OTHER)
    client = await machine.connect()
    creatable = m.CreateTopicsRequest.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=each, broker_ids=[ME, OTHER])
            for each in range(partitions)
        ],
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=text) for name, text in configs.items()],
    )
    answer = await client.ask(m.CreateTopicsRequest(topics=[creatable], timeout_ms=0), 7)
    await trio.sleep(1)
    return Leader(machine, client, answer.topics[0].topic_id)


# -- progress


async def test_a_followers_fetch_moves_the_high_watermark_and_says_so_at_once(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    assert await leader.high_watermark() == 0
    row = await leader.fetch(0)
    assert (values_in(row), row.high_watermark) == ([b"v"], 0)
    assert (await leader.fetch(1)).high_watermark == 1
    assert await leader.high_watermark() == 1


async def test_acks_all_is_answered_when_the_follower_has_it(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.send(produce_request("t", batch_of(b"v"), timeout_ms=9_000))
    assert await leader.client.is_quiet(1)
    await leader.fetch(0)
    assert await leader.client.is_quiet(1)
    await leader.fetch(1)
    assert (await leader.client.receive()).responses[0].partition_responses[0].error_code == 0


async def test_a_waiting_follower_is_woken_by_records_and_not_by_commits(nursery, autojump_clock):
    leader = await leading(nursery)
    follower = await leader.machine.connect()
    await leader.client.produce("t", b"v", acks=1)
    for session in ((0, -1), (0, 0)):
        await follower.send(fetch_request([("t", 0, 1)], replica_id=OTHER, max_wait_ms=3_000, session=session), 12)
        await trio.sleep(1)
        assert await leader.high_watermark() == 1
        began = trio.current_time()
        assert only_row(await follower.receive()).high_watermark == 1
        assert trio.current_time() == pytest.approx(began + 2, abs=0.1)


async def test_a_commit_wakes_a_waiting_consumer(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    await leader.client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    assert await leader.client.is_quiet(1)
    await leader.fetch(1)
    assert values_in(only_row(await leader.client.receive())) == [b"v"]


async def test_what_a_follower_gets_after_it_waited_is_no_progress_until_it_asks_for_more(nursery, autojump_clock):
    leader = await leading(nursery)
    follower = await leader.machine.connect()
    asked_at = trio.current_time()
    await follower.send(fetch_request([("t", 0, 0)], replica_id=OTHER, max_wait_ms=60_000), 12)
    await trio.sleep(1)
    await leader.client.produce("t", b"v", acks=1)
    assert values_in(only_row(await follower.receive())) == [b"v"]
    assert await leader.high_watermark() == 0
    known = leader.follower()
    assert (known.last_fetch_ms, known.leader_end_offset) == (asked_at * 1000, 0)


@pytest.mark.parametrize("offset", [-1, 9])
async def test_an_offset_outside_the_log_is_no_progress(nursery, autojump_clock, offset):
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    assert (await leader.fetch(offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await leader.high_watermark() == 0


async def test_a_fetch_that_must_be_cut_first_is_no_progress(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    assert (await leader.fetch(1, last_fetched_epoch=3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await leader.client.give_role(leader.machine, "t", isr=[ME, OTHER], replicas=[ME, OTHER])
    await leader.client.produce("t", b"w", acks=1)
    assert (await leader.fetch(2, last_fetched_epoch=0)).diverging_epoch.end_offset == 1
    assert await leader.high_watermark() == 0


@pytest.mark.parametrize(
    ("replica", "leader_epoch", "code"),
    [
        (7, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (7, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (ME, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (OTHER, 9, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (OTHER, 0, ErrorCode.NONE),
    ],
)
async def test_who_may_follow(nursery, autojump_clock, replica, leader_epoch, code):
    leader = await leading(nursery)
    assert (await leader.fetch(0, replica=replica, leader_epoch=leader_epoch)).error_code == code


async def test_a_deletion_is_over_when_the_follower_has_deleted_too(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    await leader.fetch(1)
    await leader.client.send(deletion_request(("t", 0, 1)), 2)
    assert await leader.client.is_quiet(1)
    asked = fetch_request([("t", 0, 1)], replica_id=OTHER, max_wait_ms=0)
    asked.topics[0].partitions[0].log_start_offset = 1
    await (await leader.machine.connect()).ask(asked, 12)
    assert (await leader.client.receive()).topics[0].partitions[0].low_watermark == 1


# -- the ISR, with a real controller


async def test_a_stuck_follower_leaves_and_comes_back_when_it_has_caught_up(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    assert await leader.isr() == [ME, OTHER]
    await trio.sleep(16)
    assert (await leader.isr(), await leader.high_watermark()) == ([ME], 1)
    await leader.fetch(0)
    await trio.sleep(1)
    assert await leader.isr() == [ME]
    await leader.fetch(1)
    await trio.sleep(1)
    assert await leader.isr() == [ME, OTHER]


async def test_a_follower_that_came_back_without_its_log_is_not_taken_in_for_what_it_had(nursery, autojump_clock):
    """Fetches say of which life they are only since 3.5: the leader itself must not rely on an earlier one."""
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    await trio.sleep(16)
    await leader.machine.other.close()
    await trio.sleep(1)
    await leader.fetch(1)  # its session with the store has ended, and it does not know yet
    await leader.machine.join(OTHER)  # on an empty disk
    await trio.sleep(6)
    assert await leader.isr() == [ME]
    await leader.fetch(0)
    await trio.sleep(1)
    assert await leader.isr() == [ME]
    await leader.fetch(1)
    await trio.sleep(1)
    assert await leader.isr() == [ME, OTHER]


async def test_a_follower_of_a_quiet_partition_joins_though_its_fetch_names_nothing(nursery, autojump_clock):
    leader = await leading(nursery)
    session = Session(await leader.machine.connect())
    await leader.machine.other.close()
    await trio.sleep(1)
    await session.rows([("t", 0, 0)], replica_id=OTHER)
    await leader.machine.join(OTHER)
    assert await leader.isr() == [ME]
    await session.rows(replica_id=OTHER)
    await trio.sleep(1)
    assert await leader.isr() == [ME, OTHER]


async def test_before_2_7_a_leader_writes_the_isr_itself_and_notes_it(nursery, autojump_clock):
    leader = await leading(nursery, properties={"inter_broker_protocol_version": "2.7-IV1"})
    await leader.client.produce("t", b"v", acks=1)
    await trio.sleep(16)
    assert (await leader.isr(), await leader.high_watermark()) == ([ME, OTHER], 1)  # not noticed yet
    await trio.sleep(10)
    assert await leader.isr() == [ME]
    await leader.fetch(1)
    await trio.sleep(10)
    assert await leader.isr() == [ME, OTHER]


@pytest.mark.parametrize(("lag_time_ms", "isr"), [("4000", [ME]), ("30000", [ME, OTHER])])
async def test_replica_lag_time_max_ms_says_how_long(nursery, autojump_clock, lag_time_ms, isr):
    leader = await leading(nursery, properties={"replica_lag_time_max_ms": lag_time_ms})
    await leader.client.produce("t", b"v", acks=1)
    await trio.sleep(10)
    assert await leader.isr() == isr


@pytest.mark.parametrize(("messages", "isr"), [("0", [ME, OTHER]), ("5", [ME])])
async def test_replica_lag_max_messages_lets_a_burst_shrink_the_isr(nursery, autojump_clock, messages, isr):
    leader = await leading(nursery, properties={"replica_lag_max_messages": messages})
    for number in range(8):
        await leader.fetch(number * 10)
        await leader.client.produce("t", batch_of(*[b"v"] * 10), acks=1)
    await trio.sleep(6)
    assert await leader.isr() == isr


async def test_a_session_keeps_a_follower_in_sync_in_quiet_partitions(nursery, autojump_clock):
    leader = await leading(nursery, 2)
    session = Session(await leader.machine.connect())
    await session.rows([("t", 0, 0), ("t", 1, 0)], replica_id=OTHER)
    for _ in range(10):
        await trio.sleep(4)
        await session.rows(replica_id=OTHER)
    await leader.client.produce("t", b"v", partition=1, acks=1)
    await trio.sleep(5)
    assert await leader.isr(1) == [ME, OTHER]


async def test_a_fetch_that_is_not_in_order_keeps_no_one_in_sync(nursery, autojump_clock):
    leader = await leading(nursery)
    session = Session(await leader.machine.connect())
    await session.rows([("t", 0, 0)], replica_id=OTHER)
    await leader.client.produce("t", b"v", acks=1)
    for _ in range(16):
        await trio.sleep(1)
        rows = await session.rows([("t", 0, 9)], replica_id=OTHER)
        assert rows[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await leader.isr() == [ME]


async def test_a_fetch_that_moves_the_high_watermark_looks_at_a_partition_once(nursery, autojump_clock):
    leader = await leading(nursery)
    session = Session(await leader.machine.connect())
    await session.rows([("t", 0, 0)], replica_id=OTHER)
    await leader.client.produce("t", b"v", acks=1)
    await session.rows(replica_id=OTHER)
    assert (await session.rows([("t", 0, 1)], replica_id=OTHER))[0].high_watermark == 1
    (kept,) = leader.machine.broker.fetch_sessions._sessions.values()
    assert (kept.waiter.dirty, kept.due) == ({}, {})


async def test_a_partition_that_a_follower_forgets_ages_though_its_session_goes_on(nursery, autojump_clock):
    leader = await leading(nursery, 2)
    session = Session(await leader.machine.connect())
    await session.rows([("t", 0, 0), ("t", 1, 0)], replica_id=OTHER)
    await session.rows(forget=[("t", 0)], replica_id=OTHER)
    await leader.client.produce("t", b"v", acks=1)
    for _ in range(16):
        await trio.sleep(1)
        await session.rows(replica_id=OTHER)
    assert await leader.isr() == [ME]


async def test_what_did_not_fit_into_an_answer_comes_next_though_not_committed(nursery, autojump_clock):
    leader = await leading(nursery, 2)
    session = Session(await leader.machine.connect())
    await session.rows([("t", 0, 0), ("t", 1, 0)], replica_id=OTHER)
    for partition in (0, 1):
        await leader.client.produce("t", b"v" * 1000, partition=partition, acks=1)
    rows = await session.rows(max_bytes=500, replica_id=OTHER)
    assert [index for index, row in rows.items() if values_in(row)] == [0]
    rows = await session.rows([("t", 0, 1)], max_bytes=500, replica_id=OTHER)
    assert [index for index, row in rows.items() if values_in(row)] == [1]


@pytest.mark.parametrize(("in_sync", "code"), [("now", ErrorCode.NONE), ("never", ErrorCode.NOT_ENOUGH_REPLICAS)])
async def test_min_insync_replicas_is_asked_before_the_append(nursery, autojump_clock, in_sync, code):
    leader = await leading(nursery, **{"min.insync.replicas": "2"})
    await leader.client.produce("t", b"v", acks=1)
    if in_sync == "never":
        await trio.sleep(16)
    await leader.client.send(produce_request("t", batch_of(b"w"), timeout_ms=9_000))
    await trio.sleep(1)
    await leader.fetch(2 if in_sync == "now" else 1)
    assert (await leader.client.receive()).responses[0].partition_responses[0].error_code == code


# -- after an election


async def test_a_new_leader_does_not_say_how_far_it_is_before_it_knows(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    await leader.client.give_role(leader.machine, "t", isr=[ME, OTHER], replicas=[ME, OTHER])
    for version, code in ((5, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)):
        assert (await leader.client.list_offset("t", -1, version=version)).error_code == code
    assert (await leader.client.list_offset("t", -1, replica_id=OTHER)).offset == 1
    await leader.fetch(1)
    assert (await leader.client.list_offset("t", -1)).offset == 1


async def test_a_follower_says_who_leads_and_where(nursery, autojump_clock):
    leader = await leading(nursery)
    await leader.client.give_role(leader.machine, "t", leader=OTHER, isr=[OTHER], replicas=[ME, OTHER])
    answer = await leader.client.ask(produce_request("t", batch_of(b"v")), 10)
    (row,) = answer.responses[0].partition_responses
    assert (row.error_code, row.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, OTHER)
    assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(OTHER, 9999)]


# -- consumers and followers (KIP-392)


async def following(nursery) -> Leader:
    """The same, after broker 2 was elected: broker 1 has three records, of which it knows one to be committed."""
    leader = await leading(nursery)
    await leader.client.produce("t", b"v", acks=1)
    await leader.fetch(1)
    for _ in range(2):
        await leader.client.produce("t", b"v", acks=1)
    await leader.client.give_role(leader.machine, "t", leader=OTHER, isr=[OTHER], replicas=[ME, OTHER])
    return leader


@pytest.mark.parametrize(
    ("version", "offset", "code", "values"),
    [
        (10, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
        (11, 0, ErrorCode.NONE, [b"v"]),
        (12, 1, ErrorCode.NONE, []),
        (12, 2, ErrorCode.NONE, []),  # above the high watermark: the record may still be truncated
        (12, 4, ErrorCode.OFFSET_OUT_OF_RANGE, []),
    ],
)
async def test_a_follower_serves_consumers_up_to_its_own_high_watermark(
    nursery, autojump_clock, version, offset, code, values
):
    row = await (await following(nursery)).consume(offset, version=version)
    assert (row.error_code, values_in(row)) == (code, values)
    assert row.high_watermark == (-1 if code else 1)


@pytest.mark.parametrize(("replica", "offset"), [(-2, 3), (-1, -1), (OTHER, -1)])
async def test_a_follower_tells_its_log_end_to_the_debugging_replica_alone(nursery, autojump_clock, replica, offset):
    leader = await following(nursery)
    answer = await leader.client.ask(list_offsets_request([("t", 0, -1)], replica_id=replica), 7)
    (row,) = answer.topics[0].partitions
    assert (row.error_code, row.offset) == (0 if offset > 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER, offset)


async def racked(nursery, selector: str | None) -> Leader:
    """The leader stands in rack r1, the follower in no rack but the one that the test gives it in the metadata."""
    properties = {"broker_rack": "r1"} | ({"replica_selector_class": selector} if selector else {})
    leader = await leading(nursery, properties=properties)
    await leader.client.produce("t", b"v", acks=1)
    return leader


@pytest.mark.parametrize(
    ("selector", "rack", "version", "progress", "preferred"),
    [
        (RACKS, "r2", 11, 1, OTHER),
        (RACKS, "r2", 10, 1, -1),  # an old consumer would not understand
        (RACKS, "r1", 11, 1, -1),  # the leader is in the rack
        (RACKS, "r3", 11, 1, -1),  # no replica is in the rack
        (RACKS, "", 11, 1, -1),
        (None, "r2", 11, 1, -1),
        ("org.apache.kafka.common.replica.LeaderSelector", "r2", 11, 1, -1),
        (RACKS, "r2", 11, None, -1),  # it does not have that offset
    ],
)
async def test_replica_selector_class_sends_a_consumer_to_its_rack(
    nursery, autojump_clock, selector, rack, version, progress, preferred
):
    leader = await racked(nursery, selector)
    if progress is not None:
        await leader.fetch(progress)
    client = await leader.machine.connect()
    await set_rack(leader, "r2")
    fields = {"rack_id": rack} if version >= 11 else {}
    began = trio.current_time()
    row = only_row(await client.ask(fetch_request([("t", 0, 1)], max_wait_ms=1000, **fields), version))
    assert (row.error_code, row.preferred_read_replica) == (0, preferred)
    assert (trio.current_time() - began < 0.5) is (preferred == OTHER)


async def test_a_session_names_the_preferred_replica_although_nothing_else_is_new(nursery, autojump_clock):
    leader = await racked(nursery, RACKS)
    session = Session(await leader.machine.connect(), 11)
    await leader.fetch(1)
    assert values_in((await session.rows([("t", 0, 0)], rack_id="r2"))[0]) == [b"v"]
    await set_rack(leader, "r2")
    for wanted in ([("t", 0, 1)], []):  # and again, until the consumer goes there
        rows = await session.rows(wanted, rack_id="r2", max_wait_ms=1000)
        assert [row.preferred_read_replica for row in rows.values()] == [OTHER]


async def test_a_session_looks_for_a_nearer_replica_when_the_consumer_is_in_another_rack(nursery, autojump_clock):
    leader = await racked(nursery, RACKS)
    session = Session(await leader.machine.connect(), 11)
    await leader.fetch(1)
    await session.rows([("t", 0, 1)])
    assert await session.rows([], rack_id="nowhere", max_wait_ms=100) == {}
    await set_rack(leader, "r2")
    rows = await session.rows([], rack_id="r2", max_wait_ms=1000)
    assert [row.preferred_read_replica for row in rows.values()] == [OTHER]


async def set_rack(leader: Leader, rack: str) -> None:
    """UpdateMetadata in the controller's name."""

    def broker(broker_id, rack):
        endpoint = m.UpdateMetadataRequest.UpdateMetadataEndpoint(
            port=9092, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0
        )
        return m.UpdateMetadataRequest.UpdateMetadataBroker(id=broker_id, endpoints=[endpoint], rack=rack)

    request = m.UpdateMetadataRequest(
        controller_id=ME,
        controller_epoch=await leader.machine.controller_epoch(),
        broker_epoch=-1,
        topic_states=[],
        live_brokers=[broker(ME, "r1"), broker(OTHER, rack)],
    )
    assert (await leader.client.ask(request)).error_code == 0


async def test_a_full_fetch_of_a_follower_answers_every_partition(nursery, autojump_clock):
    leader = await leading(nursery, 3)
    wanted = [(leader.topic_id, each, 0) for each in range(3)]
    state = m.FetchRequest.ReplicaState(replica_id=OTHER, replica_epoch=1)
    answer = await leader.client.ask(fetch_request(wanted, max_wait_ms=0, session=(0, 0), replica_state=state), 17)
    assert [row.partition_index for _, row in fetched(answer)] == [0, 1, 2]
