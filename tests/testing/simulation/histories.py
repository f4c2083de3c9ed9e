"""What simulated clusters go through in tests, as functions to hand to `simulate`."""

import trio

from barnabas.testing.simulation.cluster import open_cluster


async def busy_cluster(simulation):
    """Three brokers, each of which dies in another way and comes back."""
    async with open_cluster(simulation) as cluster:
        await cluster.start()
        cluster.nodes[1].crash_process()
        cluster.net.cut("broker-2", "store")
        await trio.sleep(10)
        cluster.nodes[3].pause()
        cluster.net.mend("broker-2", "store")
        await cluster.nodes[1].start(cluster.nursery)
        cluster.nodes[2].crash_machine(cluster.rng)
        await trio.sleep(3)
        cluster.nodes[3].resume()
        await cluster.start()
        await trio.sleep(10)
        assert cluster.bugs == []
        await cluster.stop()
