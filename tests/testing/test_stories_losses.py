"""Stories of logs that part: what is flushed, what is committed, what is cut off, and what may be lost.

Three offsets are easily taken for each other. The *log end* is what a replica has written; the *flushed* offset is up
to where it has synced, and what a power failure leaves for certain; the *high watermark* is up to where every in-sync
replica has it. Flushed and committed have nothing to do with each other: either may be ahead.
"""

import trio

from tests.testing.stage import STORE, play

SESSION_SECONDS = 7.0  # a little more than zookeeper.session.timeout.ms


def flushed(stage, broker_id):
    return stage.replica(broker_id).log.recovery_point


def test_what_is_committed_need_not_be_flushed_and_survives_on_the_other_replicas():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3])
        assert await stage.write("committed") == 0
        assert stage.high_watermark(1) == 1
        assert flushed(stage, 1) == flushed(stage, 2) == flushed(stage, 3) == 0, "no replica has synced it"
        stage.cut_power(1)
        await stage.until(lambda: stage.state.leader not in (1, -1))
        assert await stage.read() == ["committed"], "a leader that did not lose its power has it"
        await stage.start(1)
        await stage.until(lambda: stage.in_sync == [1, 2, 3])
        assert stage.values(1) == ["committed"], "what it forgot it has fetched again"

    checks = play(story)
    assert checks.counts.get("logs that forgot") == 1


def test_with_flush_messages_1_nothing_is_committed_before_it_is_flushed():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3], flush_messages="1")
        stage.cluster.nodes[3].disk.slow_seconds = 2.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.write, "synced")
            await stage.until(lambda: stage.end(3) == 1)
            assert flushed(stage, 3) == 0
            assert stage.high_watermark(1) == 0, "the follower has it, and does not say so before it is safe"
        assert flushed(stage, 1) == flushed(stage, 2) == flushed(stage, 3) == stage.high_watermark(1) == 1
        for broker_id in (1, 2, 3):
            stage.cut_power(broker_id)
        await trio.sleep(SESSION_SECONDS)  # until the store has forgotten them, their ids are taken
        await stage.cluster.start()
        await stage.until(lambda: len(stage.in_sync) == 3 and stage.state.leader != -1)
        assert await stage.read() == ["synced"], "not even a power failure of all of them takes it"

    checks = play(story, replica_lag_time_max_ms="20000")
    assert "logs that forgot" not in checks.counts


def test_a_sync_that_was_under_way_when_the_power_failed_makes_nothing_safe():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3], flush_messages="1")
        follower = stage.cluster.nodes[3]
        follower.disk.slow_seconds = 2.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.write, "half a sync")
            await stage.until(lambda: stage.end(3) == 1)
            log = stage.replica(3).log
            stage.cut_power(3)
            await stage.until(lambda: log.recovery_point == 1)  # of a process that is no more, on a disk that is none
            await trio.sleep(SESSION_SECONDS)
            await stage.start(3)
        await stage.until(lambda: stage.in_sync == [1, 2, 3])
        assert stage.values(3) == ["half a sync"], "fetched again"

    checks = play(story, replica_lag_time_max_ms="20000")
    assert checks.counts["logs that forgot"] == 1


def test_what_is_flushed_need_not_be_committed_and_is_cut_off_then():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3], flush_messages="1")
        await stage.write("everybody has it")
        stage.cut(1, 2)
        stage.cut(1, 3)  # the leader alone: it can write and sync, and commit nothing
        assert await stage.write("only the leader has it", acks=1) == 1
        assert flushed(stage, 1) == 2
        assert stage.high_watermark(1) == 1, "flushed is ahead of committed"
        stage.kill(1)
        await stage.until(lambda: stage.state.leader in (2, 3))
        stage.mend(1, 2)
        stage.mend(1, 3)
        assert await stage.write("written in its place") == 1
        await stage.start(1)
        await stage.until(lambda: stage.in_sync == [1, 2, 3])
        assert stage.values(1) == ["everybody has it", "written in its place"]

    checks = play(story)
    assert checks.counts["truncations"] == 1


def test_a_follower_ahead_of_the_high_watermark_is_cut_and_fetches_again():
    async def story(stage):
        await stage.open("t", replicas=[1, 3, 2])  # 3 comes first when 1 is gone
        await stage.write("committed")
        stage.cut(1, 3)  # slow, but still in sync
        await stage.write("only 1 and 2 have it", acks=1)
        await stage.until(lambda: stage.end(2) == 2)
        assert stage.high_watermark(2) == 1, "the fast follower has more than is committed"
        stage.kill(1)
        await stage.until(lambda: stage.state.leader == 3)
        stage.mend(1, 3)
        assert await stage.write("the new leader's") == 1
        await stage.until(lambda: stage.end(2) == 2 and stage.values(2) == ["committed", "the new leader's"])
        await stage.start(1)
        await stage.until(lambda: stage.in_sync == [1, 2, 3])
        assert stage.values(1) == ["committed", "the new leader's"]

    checks = play(story, replica_lag_time_max_ms="20000")
    assert checks.counts["truncations"] == 2


def test_a_replica_whose_disk_fails_in_the_middle_of_a_cut_is_cut_when_it_is_back():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3])
        await stage.write("everybody has it")
        for other in (2, 3, STORE):
            stage.cut(1, other)
        assert await stage.write("only the leader has it", acks=1) == 1
        await stage.until(lambda: stage.state.leader in (2, 3))
        stage.cluster.nodes[1].disk.fail_next("sync", path_part=".log")  # after the file was cut
        for other in (2, 3, STORE):
            stage.mend(1, other)
        await stage.until(lambda: not stage.cluster.nodes[1].is_running)
        await stage.start(1)
        await stage.until(lambda: stage.in_sync == [1, 2, 3])
        assert stage.values(1) == ["everybody has it"]

    checks = play(story)
    assert checks.counts["logs that forgot"] == 1


def test_of_two_that_returned_without_a_controller_the_one_with_all_leads():
    async def story(stage):
        await stage.open("t", replicas=[2, 3], min_insync_replicas="1")
        await stage.write("both have it")
        assert stage.cluster.nodes[1].broker.candidate.is_active
        stage.cut_power(2)
        stage.kill(3)
        await trio.sleep(SESSION_SECONDS - 2)
        stage.cluster.nodes[1].pause()  # the controller: it hears neither that they went nor that they came
        await stage.start(3)
        await stage.start(2)
        await stage.until(lambda: stage.state.leader_epoch > 0)
        assert stage.state.leader == 3, "its machine has not crashed"
        await stage.until(lambda: stage.in_sync == [2, 3])
        assert stage.values(2) == stage.values(3) == ["both have it"]

    checks = play(story)
    assert "losses: machine crash" not in checks.counts


def _last_in_sync_replica_dies(stage_of_it, **configs):
    """Broker 1 falls behind and leaves the ISR, 2 continues alone and dies: no in-sync replica is left."""

    async def story(stage):
        await stage.open("t", replicas=[2, 1], min_insync_replicas="1", **configs)
        await stage.write("both have it")
        stage.kill(1)
        await stage.until(lambda: stage.in_sync == [2])
        assert await stage.write("only 2 has it") == 1
        stage.kill(2)
        await stage.until(lambda: stage.state.leader == -1)
        await stage.start(1)
        await trio.sleep(5)
        await stage_of_it(stage)

    return play(story)


def test_waiting_for_the_last_in_sync_replica_costs_availability():
    async def wait(stage):
        assert stage.state.leader == -1, "broker 1 lives, but may not lead: it lacks what was acknowledged"
        await stage.start(2)
        await stage.until(lambda: stage.state.leader == 2)
        assert await stage.read() == ["both have it", "only 2 has it"], "and nothing is lost"

    checks = _last_in_sync_replica_dies(wait)
    assert not any(name.startswith("losses") for name in checks.counts)


def test_an_unclean_election_costs_records():
    async def go_on(stage):
        assert stage.state.leader == 1, "broker 1 leads at once"
        assert await stage.write("instead") == 1
        await stage.start(2)
        await stage.until(lambda: stage.in_sync == [1, 2])
        assert stage.values(1) == stage.values(2) == ["both have it", "instead"], "what 2 had acknowledged is gone"

    checks = _last_in_sync_replica_dies(go_on, unclean_leader_election_enable="true")
    assert checks.counts["losses: unclean election"] == 1
