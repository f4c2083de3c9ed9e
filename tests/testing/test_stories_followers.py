"""Stories of followers: how far behind one may be, and what the others do meanwhile.

Three brokers, one partition; broker 1 leads, 2 and 3 follow. A record is *committed* when every in-sync replica has
it; acks=all is answered then, and consumers see it then. A follower is *in sync* as long as it has caught up with the
leader within the last `replica.lag.time.max.ms`, however many records it may be behind at a moment.
"""

import trio

from tests.testing.stage import play

LAG_MS = "3000"
LAG_SECONDS = 3.0


def test_a_follower_that_pauses_for_100_ms_stays_in_sync_and_delays_commits():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3])
        stage.cluster.nodes[3].pause()
        began = stage.now
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.write, "while it pauses")
            await trio.sleep(0.1)
            assert stage.end(1) == 1, "the leader has it at once"
            assert stage.high_watermark(1) == 0, "but it is not committed: an in-sync replica lacks it"
            stage.cluster.nodes[3].resume()
        assert 0.1 <= stage.now - began < 0.3, "the writer waited for the follower, and for no longer"
        assert stage.isr_history() == [[1, 2, 3]], "no replica was removed from the ISR for that"

    play(story, replica_lag_time_max_ms=LAG_MS)


def test_a_stuck_follower_holds_writers_up_until_it_is_no_longer_counted():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3])
        stage.cluster.nodes[3].pause()
        began = stage.now
        assert await stage.write("waits for the others") == 0
        assert LAG_SECONDS <= stage.now - began <= 1.5 * LAG_SECONDS + 0.5, "the rule is looked at twice in that time"
        assert stage.in_sync == [1, 2]
        began = stage.now
        assert await stage.write("waits no more") == 1
        assert stage.now - began < 0.2
        stage.cluster.nodes[3].resume()
        await stage.until(lambda: stage.in_sync == [1, 2, 3])
        assert stage.end(3) == 2, "it was taken back when it had everything"

    play(story, replica_lag_time_max_ms=LAG_MS, zookeeper_session_timeout_ms="18000")


def test_a_slow_follower_fetches_all_the_time_and_is_thrown_out_all_the_same():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3])
        for ends in (("broker-1", "broker-3"), ("broker-3", "broker-1")):
            stage.net.link(*ends).extra_seconds = 1.0
        value = "x" * 400
        for _ in range(60):  # ten records a second, and what one fetch brings is one of them
            await stage.write(value, acks=1)
            await trio.sleep(0.1)
        assert stage.end(3) > 0, "it does get records"
        assert stage.end(3) < stage.end(1) - 20, "but ever fewer than there are"
        assert stage.in_sync == [1, 2]
        for ends in (("broker-1", "broker-3"), ("broker-3", "broker-1")):
            stage.net.link(*ends).extra_seconds = 0.0
        await stage.until(lambda: stage.in_sync == [1, 2, 3])

    play(story, replica_lag_time_max_ms=LAG_MS, replica_fetch_max_bytes="100")


def test_a_new_replica_copies_everything_before_it_counts():
    async def story(stage):
        await stage.open("t", replicas=[1, 2])
        for number in range(50):
            await stage.write(f"{number}".ljust(300))
        for ends in (("broker-1", "broker-3"), ("broker-3", "broker-1")):
            stage.net.link(*ends).extra_seconds = 0.3  # so that copying takes a while
        await stage.reassign([1, 2, 3])
        await stage.until(lambda: stage.replica(3) is not None and stage.end(3) > 0)
        began = stage.now
        await stage.write("the new one is not waited for")
        assert stage.now - began < 0.2
        assert stage.in_sync == [1, 2]
        assert stage.end(3) < 50
        await stage.until(lambda: stage.in_sync == [1, 2, 3])
        assert stage.end(3) == stage.end(1) == 51
        assert stage.values(3) == stage.values(1)

    play(story, replica_fetch_max_bytes="2000", replica_lag_time_max_ms=LAG_MS)


def _burst(lag_messages: str):
    """The same follower, and the same bursts of 200 records, under either rule; what became of the in-sync replicas."""
    histories = []

    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3])
        for ends in (("broker-1", "broker-3"), ("broker-3", "broker-1")):
            stage.net.link(*ends).extra_seconds = 0.3  # a while behind after each burst, and then it has everything
        for _ in range(12):
            await stage.write(*("burst" for _ in range(200)), acks=1)
            await trio.sleep(1.3)
        histories.append(stage.isr_history())

    play(story, replica_lag_time_max_ms=LAG_MS, replica_lag_max_messages=lag_messages, num_replica_fetchers="1")
    return histories[0]


def test_by_the_time_rule_a_burst_throws_no_one_out():
    assert _burst(lag_messages="0") == [[1, 2, 3]]


def test_by_the_old_rule_each_burst_throws_the_follower_out_for_a_moment():
    history = _burst(lag_messages="100")
    assert history[:3] == [[1, 2, 3], [1, 2], [1, 2, 3]], "out, for it is 200 records behind, and in again at once"
    assert len(history) >= 5, "and so with the next burst: the ISR flaps"
