"""What a broker does wrong to its clients on purpose, and what it does nevertheless."""

import pytest
import trio

from barnabas.testing.errors import FaultError, FaultMissed
from barnabas.testing.faults import faults
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.requests import fetch_request, produce_many, produce_request, values_in
from tests.testing.faulty import answer_of, stage

__all__ = ["stage"]

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
COORDINATOR = m.FindCoordinatorRequest(coordinator_keys=["g"])


async def test_a_fault_remembers_the_first_requests_and_counts_all(stage, monkeypatch):
    monkeypatch.setattr(faults, "SEEN_MAX", 3)
    fault = stage.faults.delay("Produce", 0)
    for number in range(5):
        await stage.client.produce("t", b"%d" % number)
    assert (fault.fired, len(fault.seen)) == (5, 3)

    monkeypatch.setattr(faults, "SEEN_BYTES_MAX", 1)
    another = stage.faults.delay("Metadata", 0)
    for _ in range(3):
        await stage.client.ask(m.MetadataRequest(topics=None))
    assert (another.fired, len(another.seen)) == (3, 1)


# -- fail


async def test_a_request_that_fails_is_not_done(stage):
    fault = stage.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    for expected in (NOT_LEADER, NOT_LEADER, ErrorCode.NONE):
        assert (await stage.client.produce("t", b"v")).error_code == expected
    assert fault.fired == 2
    assert await stage.values() == [b"v"]


async def test_one_that_fails_afterwards_is_done(stage):
    stage.faults.fail("Produce", "REQUEST_TIMED_OUT", after=True, times=1)
    assert (await stage.client.produce("t", b"v")).error_code == TIMED_OUT
    assert await stage.values() == [b"v"]


async def test_only_the_partition_that_is_named_fails_and_the_others_are_done(stage):
    stage.faults.fail("Produce", NOT_LEADER, topic="t", partition=1, times=1)
    asked = produce_many({("t", 0): b"a", ("t", 1): b"b", ("u", 0): b"c"})
    response = await stage.client.ask(asked)
    rows = {(topic.name, row.index): row for topic in response.responses for row in topic.partition_responses}
    assert {key: row.error_code for key, row in rows.items()} == {("t", 0): 0, ("t", 1): NOT_LEADER, ("u", 0): 0}
    assert (await stage.values("t", 0), await stage.values("t", 1), await stage.values("u")) == ([b"a"], [], [b"c"])


async def test_a_fault_for_one_topic_leaves_requests_about_others_alone(stage):
    fault = stage.faults.fail("Produce", NOT_LEADER, topic="t")
    assert (await stage.client.produce("u", b"v")).error_code == 0
    assert fault.fired == 0


async def test_an_error_after_acks_0_closes_the_connection_as_any_error_does(stage):
    stage.faults.fail("Produce", NOT_LEADER)
    await stage.client.send(produce_request("t", b"v", acks=0))
    assert await stage.client.is_closed()
    assert await stage.values() == []


async def test_the_metadata_of_one_topic_fail_and_the_brokers_are_still_named(stage):
    stage.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="t")
    for topics in (["t"], ["t", "u"], None):
        named = topics and [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        response = await stage.client.ask(m.MetadataRequest(topics=named))
        errors = {topic.name: topic.error_code for topic in response.topics}
        assert errors == {"t": ErrorCode.LEADER_NOT_AVAILABLE} | ({} if topics == ["t"] else {"u": 0})
        assert len(response.brokers) == 1


async def test_metadata_without_topics_have_no_place_for_an_error(stage):
    fault = stage.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", may_miss=True)
    assert (await stage.client.ask(m.MetadataRequest(topics=[]))).brokers
    assert fault.fired == 0
    assert {each.error_code for each in (await stage.client.ask(m.MetadataRequest(topics=None))).topics} == {5}


# -- drop, delay, hang, throttle


@pytest.mark.parametrize(("when", "written"), [("before", []), ("after", [b"v"]), ("midway", [b"v"])])
async def test_an_acknowledgement_is_lost(stage, when, written):
    fault = stage.faults.drop("Produce", when, topic="t", times=1)
    await stage.client.send(produce_request("t", b"v"))
    with pytest.raises(Exception, match=r"closed|lost|end"):
        await stage.client.receive()
    assert fault.fired == 1
    assert await stage.values() == written


async def test_a_request_is_delayed_and_those_of_others_are_not(stage, autojump_clock):
    stage.faults.delay("FindCoordinator", 3, client_id="test")
    started = trio.current_time()
    other = await stage.machine.connect()
    await stage.client.send(COORDINATOR)
    await other.metadata("t")
    assert trio.current_time() - started < 1
    await stage.client.receive()
    assert 3 <= trio.current_time() - started < 3.5


async def test_a_request_hangs_until_its_fault_is_removed(stage, autojump_clock):
    fault = stage.faults.hang("FindCoordinator")
    await stage.client.send(COORDINATOR)
    assert await stage.client.is_quiet(5)
    assert fault.fired == 1
    fault.remove()
    assert (await stage.client.receive()).coordinators[0].key == "g"


async def test_a_request_is_done_and_its_response_hangs(stage, autojump_clock):
    fault = stage.faults.hang("Produce", after=True)
    await stage.client.send(produce_request("t", b"v"))
    assert await stage.client.is_quiet(5)
    assert await stage.values() == [b"v"]
    fault.remove()
    assert (await stage.client.receive()).responses[0].partition_responses[0].base_offset == 0


async def test_a_client_is_throttled(stage, autojump_clock):
    stage.faults.throttle("FindCoordinator", 700, times=1)
    started = trio.current_time()
    assert (await stage.client.ask(COORDINATOR)).throttle_time_ms == 700
    assert trio.current_time() - started < 0.5
    assert (await stage.client.ask(COORDINATOR)).throttle_time_ms == 0
    assert trio.current_time() - started >= 0.7


# -- answer


async def test_any_response_can_be_given(stage):
    stage.faults.answer("FindCoordinator", answer_of(), times=1)
    assert (await stage.client.ask(COORDINATOR)).coordinators[0].host == "castle.example"
    assert (await stage.client.ask(COORDINATOR)).coordinators[0].host == "127.0.0.1"


async def test_a_function_makes_the_response_from_that_of_the_broker(stage):
    def other_port(call, request, response):
        response.coordinators[0].port += 1
        return response

    (before,) = (await stage.client.ask(COORDINATOR)).coordinators
    stage.faults.answer("FindCoordinator", other_port)
    (after,) = (await stage.client.ask(COORDINATOR)).coordinators
    assert after.port == before.port + 1


async def test_a_function_that_raises_ends_one_request_and_the_log_names_the_fault(stage, mistakes, caplog):
    stage.faults.answer("FindCoordinator", lambda call, request, response: 1 / 0, times=1)
    (row,) = (await stage.client.ask(COORDINATOR)).coordinators
    assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (traceback,) = mistakes.take()
    assert "answer(FindCoordinator, times=1) failed" in traceback
    assert (await stage.client.ask(COORDINATOR)).coordinators[0].error_code == 0


# -- which request is hit


async def test_the_first_fault_that_matches_wins_and_a_spent_one_no_more(stage):
    first = stage.faults.fail("Produce", NOT_LEADER, times=1)
    second = stage.faults.fail("Produce", TIMED_OUT, topic="t")
    assert (await stage.client.produce("t", b"v")).error_code == NOT_LEADER
    assert (await stage.client.produce("t", b"v")).error_code == TIMED_OUT
    assert (first.fired, second.fired) == (1, 1)


async def test_a_client_that_leaves_before_the_effect_does_not_use_up_the_fault(stage):
    lost = stage.faults.drop("Fetch", "after", topic="t", times=1)
    other = await stage.machine.connect()
    await other.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 4)
    await trio.sleep(1)
    other.close()
    await trio.sleep(1)
    await stage.client.send(fetch_request([("t", 0, 0)], max_wait_ms=0), 4)
    assert await stage.client.is_closed()
    assert lost.fired == 1


@pytest.mark.parametrize(
    ("matchers", "hits"),
    [
        ({"nth": 3}, "..x.."),
        ({"nth": 2, "times": 2}, ".xx.."),
        ({"nth": None, "topic": None}, "xxxxx"),
        ({"times": 1}, "x...."),
        ({}, "xxxxx"),
        ({"client_id": "te*"}, "xxxxx"),
        ({"client_id": "billing-*"}, "....."),
        ({"group": "g"}, "xxxxx"),
        ({"group": "h"}, "....."),
        ({"transactional_id": "g"}, "....."),
        ({"chance": 0.0}, "....."),
        ({"chance": 1}, "xxxxx"),
    ],
)
async def test_matchers_narrow_a_fault(stage, matchers, hits):
    stage.faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", **matchers)
    codes = [(await stage.client.ask(COORDINATOR)).coordinators[0].error_code for _ in range(5)]
    assert "".join("x" if code else "." for code in codes) == hits


async def test_a_seed_decides_which_requests_are_hit_by_chance(stage):
    async def hits(seed):
        with stage.faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", chance=0.3, seed=seed):
            rows = [(await stage.client.ask(COORDINATOR)).coordinators[0] for _ in range(40)]
        return [index for index, row in enumerate(rows) if row.error_code]

    first = await hits(7)
    assert 4 < len(first) < 20
    assert await hits(7) == first
    assert await hits(8) != first


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
async def test_a_coordinator_is_not_found_in_any_version(stage, version):
    stage.faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", group="g")
    keys = {"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]}
    response = await stage.client.ask(m.FindCoordinatorRequest(**keys), version)
    if version < 4:
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        assert {row.key: row.error_code for row in response.coordinators} == {"g": 15, "h": 0}


async def test_followers_are_hit_only_on_demand(stage):
    following = fetch_request([("t", 0, 0)], max_wait_ms=0, replica_id=5)
    stage.faults.fail("Fetch", ErrorCode.KAFKA_STORAGE_ERROR, topic="t", may_miss=True)
    assert (await stage.client.ask(following, 12)).responses[0].partitions[
        0
    ].error_code != ErrorCode.KAFKA_STORAGE_ERROR
    stage.faults.fail("Fetch", TIMED_OUT, topic="t", brokers=True)
    assert (await stage.client.ask(following, 12)).responses[0].partitions[0].error_code == TIMED_OUT


# -- fetches


async def test_one_partition_is_not_fetched_and_the_others_do_not_wait(stage, autojump_clock):
    await stage.client.produce("u", b"v")
    stage.faults.fail("Fetch", NOT_LEADER, topic="t", partition=0)
    started = trio.current_time()
    asked = fetch_request([("t", 0, 0), ("t", 1, 0), ("u", 0, 0)], max_wait_ms=20_000, min_bytes=1 << 20)
    response = await stage.client.ask(asked, 12)
    rows = {(topic.topic, row.partition_index): row for topic in response.responses for row in topic.partitions}
    assert {key: row.error_code for key, row in rows.items()} == {("t", 0): NOT_LEADER, ("t", 1): 0, ("u", 0): 0}
    assert values_in(rows["u", 0]) == [b"v"]
    assert response.error_code == 0
    assert trio.current_time() - started < 1


async def test_a_topic_is_found_by_its_id(stage):
    topic_id = (await stage.client.metadata("t"))["t"].topic_id
    stage.faults.fail("Fetch", NOT_LEADER, topic="t")
    response = await stage.client.ask(fetch_request([(topic_id, 0, 0)]), 17)
    assert response.responses[0].partitions[0].error_code == NOT_LEADER


async def test_a_fetch_session_ends_when_a_fault_names_a_topic(stage):
    opened = await stage.client.ask(fetch_request([("t", 0, 0), ("u", 0, 0)], session=(0, 0), max_wait_ms=0), 12)
    assert opened.session_id
    stage.log.is_on = True
    stage.faults.fail("Fetch", NOT_LEADER, topic="t")
    again = await stage.client.ask(fetch_request([], session=(opened.session_id, 1)), 12)
    assert (again.error_code, again.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert stage.log("Fetch")[-1].errors == ["FETCH_SESSION_ID_NOT_FOUND"]
    full = await stage.client.ask(fetch_request([("t", 0, 0), ("u", 0, 0)], session=(0, 0), max_wait_ms=0), 12)
    assert full.session_id == 0
    assert {topic.topic: topic.partitions[0].error_code for topic in full.responses} == {"t": NOT_LEADER, "u": 0}


async def test_a_fetch_session_of_a_follower_ends_when_a_fault_is_for_its_topic(stage):
    opened = await stage.client.ask(fetch_request([("t", 0, 0)], session=(0, 0), max_wait_ms=0, replica_id=5), 12)
    assert opened.session_id
    in_session = fetch_request([], session=(opened.session_id, 1), max_wait_ms=0, replica_id=5)

    stage.faults.fail("Fetch", NOT_LEADER, topic="t", may_miss=True)
    assert (await stage.client.ask(in_session, 12)).error_code == 0, "this fault is for clients"

    stage.faults.fail("Fetch", TIMED_OUT, topic="t", brokers=True)
    in_session = fetch_request([], session=(opened.session_id, 2), max_wait_ms=0, replica_id=5)
    assert (await stage.client.ask(in_session, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    full = await stage.client.ask(fetch_request([("t", 0, 0)], session=(0, 0), max_wait_ms=0, replica_id=5), 12)
    assert full.responses[0].partitions[0].error_code == TIMED_OUT


# -- what a test learns


async def test_a_fault_keeps_the_requests_that_it_hit(stage):
    fault = stage.faults.drop("Produce", "after", times=1)
    await stage.client.send(produce_request("t", b"v", acks=1))
    assert await stage.client.is_closed()
    (entry,) = fault.seen
    assert (entry.api, entry.client_id, entry.acks, entry.outcome) == ("Produce", "test", 1, "dropped")


async def test_a_fault_that_never_fired_fails_the_test_with_what_came_instead(stage):
    stage.faults.fail("Produce", NOT_LEADER, topic="t")
    await stage.client.produce("u", b"v")
    with pytest.raises(FaultMissed) as missed:
        stage.faults.check()
    assert "fail(Produce, NOT_LEADER_OR_FOLLOWER, topic='t') never fired" in str(missed.value)
    assert "1 x Produce v11 topic 'u' of 'test'" in str(missed.value)
    stage.faults.check()


async def test_one_that_may_miss_does_not(stage):
    stage.faults.fail("Produce", NOT_LEADER, may_miss=True)
    stage.faults.check()
    stage.faults.fail("Produce", NOT_LEADER)
    with pytest.raises(FaultMissed, match="no request came while it was set"):
        stage.faults.check()


async def test_at_the_end_of_its_block_a_fault_is_removed_and_must_have_fired(stage):
    with stage.faults.fail("Produce", NOT_LEADER):
        assert (await stage.client.produce("t", b"v")).error_code == NOT_LEADER
    assert (await stage.client.produce("t", b"v")).error_code == 0
    with pytest.raises(FaultMissed, match="never fired"), stage.faults.fail("Fetch", NOT_LEADER):
        pass


async def test_nothing_is_intercepted_when_no_fault_is_left(stage):
    fault = stage.faults.fail("Produce", NOT_LEADER, times=1)
    assert stage.interceptor.is_active
    await stage.client.produce("t", b"v")
    assert not stage.interceptor.is_active
    other = stage.faults.hang("Fetch")
    stage.faults.clear()
    assert not stage.interceptor.is_active
    assert (fault.fired, other.fired) == (1, 0)


# -- bad input


@pytest.mark.parametrize(
    ("set_fault", "message"),
    [
        (lambda f: f.fail("Prodcue", NOT_LEADER), "no API is called 'Prodcue'; is 'Produce' meant?"),
        (lambda f: f.fail("fetch", NOT_LEADER), "no API is called 'fetch'; is 'Fetch' meant?"),
        (lambda f: f.fail(68, NOT_LEADER), "no API that is served has the key 68"),
        (lambda f: f.fail("Produce", "NOT_LEADER"), "is 'NOT_LEADER_OR_FOLLOWER' meant?"),
        (lambda f: f.fail("Produce", 4711), "no error has the code 4711: Kafka 3.9 has -1 to 127"),
        (lambda f: f.fail("Produce", "NONE"), "NONE is no error; `answer` gives any response"),
        (lambda f: f.fail("Produce", 0), "NONE is no error"),
        (lambda f: f.fail("Produce", NOT_LEADER, partition=0), "partition: of which topic? Give `topic` as well"),
        (lambda f: f.fail("Produce", NOT_LEADER, group="g"), "Produce has no group: it can be narrowed by"),
        (lambda f: f.fail("Heartbeat", NOT_LEADER, topic="t"), "Heartbeat has no topic: it can be narrowed by group"),
        (lambda f: f.fail("ListGroups", NOT_LEADER, group="g"), "it names nothing that a fault can be for"),
        (lambda f: f.fail("CreateTopics", NOT_LEADER, topic="t", partition=0), "CreateTopics has no partition"),
        (lambda f: f.fail("Produce", NOT_LEADER, topics="t"), "no matcher is called 'topics'; is 'topic' meant?"),
        (lambda f: f.fail("Produce", NOT_LEADER, topic=7), "topic: not 7"),
        (lambda f: f.fail("Produce", NOT_LEADER, times=0), "times: a number from 1 on, not 0"),
        (lambda f: f.fail("Produce", NOT_LEADER, nth=True), "nth: a number from 1 on, not True"),
        (lambda f: f.fail("Produce", NOT_LEADER, chance=1.5), "chance: a number from 0 to 1, not 1.5"),
        (lambda f: f.fail("Produce", NOT_LEADER, chance=True), "chance: a number from 0 to 1, not True"),
        (lambda f: f.fail("Produce", NOT_LEADER, seed=1), "seed: it is for `chance`, which is missing"),
        (lambda f: f.drop("Produce", "later"), "drop: 'before', 'after' or 'midway', not 'later'"),
        (lambda f: f.delay("Produce", -1), "delay: a number of seconds, not -1"),
        (lambda f: f.throttle("Produce", 0), "throttle: a number of milliseconds from 1 to 2147483647, not 0"),
        (lambda f: f.throttle("SaslHandshake", 5), "the response of SaslHandshake cannot say that a client is"),
        (lambda f: f.stale("Fetch"), "stale: of Metadata, not Fetch"),
        (lambda f: f.corrupt("Metadata"), "corrupt: of Fetch or Produce, not Metadata"),
        (lambda f: f.duplicate("Fetch"), "duplicate: of Produce, not Fetch"),
        (lambda f: f.answer("Produce", answer_of()), "Produce has a ProduceResponse, not FindCoordinatorResponse"),
        (lambda f: f.answer("Produce", "no"), "a ProduceResponse or a function that makes one, not 'no'"),
        (lambda f: f.as_kafka("2.7"), "as_kafka: one of 2.8, 3.0"),
        (lambda f: f.as_kafka("3.0", topic="t"), "topic: this fault is about all requests of a client"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused(stage, set_fault, message):
    with pytest.raises(FaultError) as refused:
        set_fault(stage.faults)
    assert message in str(refused.value)
    assert list(stage.faults) == []


async def test_a_closed_broker_has_no_faults(stage):
    stage.interceptor.close()
    with pytest.raises(FaultError, match="the broker was closed"):
        stage.faults.fail("Produce", NOT_LEADER)
