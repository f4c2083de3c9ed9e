"""A cluster of brokers in the simulated world: it starts, elects, loses its controller, and leaves nothing behind."""

import pytest
import trio

from barnabas.testing.simulation.cluster import open_cluster
from barnabas.testing.simulation.node import PORT
from barnabas.testing.simulation.schedule import simulate
from tests.broker.harness import Client
from tests.broker.requests import batch_of, deletion_request, new_topics

SESSION_SECONDS = 6.0
PATIENCE_SECONDS = 30.0


def on_a_cluster(scenario, seed=1, **properties):
    """Run a scenario on a cluster that has started; what it returns."""

    async def main(simulation):
        async with open_cluster(simulation, **properties) as cluster:
            await cluster.start()
            result = await scenario(cluster)
            assert cluster.bugs == []
            return result

    return simulate(seed, main)[0]


async def until(condition):
    """Seconds until this holds."""
    begin = trio.current_time()
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await trio.sleep(0.05)
    return trio.current_time() - begin


def test_three_brokers_start_and_agree_on_one_controller():
    async def scenario(cluster):
        active = [node.broker.candidate.is_active for node in cluster.nodes.values()]
        assert sorted(active) == [False, False, True]
        registered = cluster.store.tree.children("/brokers/ids")
        assert registered == ["1", "2", "3"]

    on_a_cluster(scenario)


@pytest.mark.parametrize("end", ["crash_process", "pause"])
def test_a_controller_that_falls_silent_is_replaced_when_its_session_has_expired(end):
    async def scenario(cluster):
        first = cluster.controller
        before = first.broker.candidate.epoch
        getattr(first, end)()
        seconds = await until(
            lambda: cluster.controller is not None and cluster.controller.broker.candidate.epoch > before
        )
        assert SESSION_SECONDS / 2 < seconds < SESSION_SECONDS + 3
        first.resume()
        if end == "pause":
            assert await until(lambda: not first.broker.candidate.is_active) < SESSION_SECONDS

    on_a_cluster(scenario)


def test_a_clean_stop_gives_the_office_up_at_once():
    async def scenario(cluster):
        first = cluster.controller
        await first.stop()
        assert await until(lambda: cluster.controller not in (None, first)) < 1

    on_a_cluster(scenario)


def test_a_stopped_cluster_holds_no_task_no_file_and_no_connection():
    async def main(simulation):
        async with open_cluster(simulation) as cluster:
            tasks = trio.lowlevel.current_statistics().tasks_living
            await cluster.start()
            assert trio.lowlevel.current_statistics().tasks_living > tasks + 30
            await cluster.stop()
            await trio.sleep(1)
            assert trio.lowlevel.current_statistics().tasks_living == tasks
            assert cluster.open_files == cluster.net.connection_count == 0

    simulate(1, main)


def test_crashed_lives_come_to_their_end_unheard():
    async def scenario(cluster):
        for _ in range(3):
            for node in cluster.nodes.values():
                node.crash_process()
            await cluster.start()
        await trio.sleep(30)
        assert [node.zombies for node in cluster.nodes.values()] == [0, 0, 0]
        assert all(node.lives > 3 for node in cluster.nodes.values())

    on_a_cluster(scenario)


def test_a_broker_that_waits_for_its_old_session_to_end_takes_no_role_of_it():
    async def scenario(cluster):
        first = cluster.controller
        client = Client(await cluster.client_net("admin").connect(first.name, PORT))
        request = new_topics("t", 3)
        request.topics[0].replication_factor = 3
        assert (await client.ask(request)).topics[0].error_code == 0
        bounced = next(node for node in cluster.nodes.values() if node is not first)
        first.crash_process()
        await trio.sleep(SESSION_SECONDS / 2)
        bounced.crash_process()
        bounced.launch(cluster.nursery)
        before = cluster.controller
        while not bounced.is_ready:
            await trio.sleep(0.05)
            broker = bounced.broker
            assert broker is None or broker.replicas.broker_epoch >= 0 or len(broker.replicas) == 0
        assert before is None  # and another one was elected while it waited
        assert cluster.controller is not None

    on_a_cluster(scenario)


def test_an_empty_follower_begins_with_the_batch_in_which_the_leaders_log_begins():
    async def scenario(cluster):
        request = new_topics("t")
        request.topics[0].replication_factor = 3
        admin = Client(await cluster.client_net("admin").connect(cluster.controller.name, PORT))
        assert (await admin.ask(request)).topics[0].error_code == 0
        await trio.sleep(1)
        leader, late, _ = sorted(
            cluster.nodes.values(), key=lambda node: not node.broker.replicas.get("t", 0).is_leader
        )
        client = Client(await cluster.client_net("admin").connect(leader.name, PORT))
        late.crash_process()
        await trio.sleep(2 * SESSION_SECONDS)
        for number in range(3):
            row = await client.produce("t", batch_of(b"%d" % number, b"1", b"2", b"3"))
            assert row.error_code == 0
        deleted = await client.ask(deletion_request(("t", 0, 6)))  # in the midst of the second batch
        assert deleted.topics[0].partitions[0].error_code == 0
        await late.start(cluster.nursery)
        await until(cluster.every_isr_is_full)
        log = late.broker.replicas.get("t", 0).log
        assert (log.log_start_offset, log.log_end_offset) == (6, 12)

    on_a_cluster(scenario)
