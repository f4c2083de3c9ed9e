"""Topics that are deleted while a broker is disconnected: it removes them from its metadata when it is back."""

import trio

from barnabas.controller.store import paths
from barnabas.wire.topics import GROUP_TOPIC
from tests.broker.clusters import cluster, create_topic, until


class Away:
    """A broker whose session with the store ends; a new one begins only when `let` is set."""

    def __init__(self, machine):
        self.store = machine.broker.store
        self.let = trio.Event()
        self.renew, self.store.renew = self.store.renew, self.renew_later

    async def renew_later(self):
        await self.let.wait()
        await self.renew()


async def deleted(machine, topic):
    """Wait until nothing is left of the topic in the store."""
    with trio.fail_after(10):
        while await machine.broker.store.exists(paths.delete_topic(topic)):
            await trio.sleep(0.1)


async def test_a_topic_that_was_deleted_while_a_broker_was_away_does_not_haunt_it(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        one, _, three = machines
        client = await one.connect()
        await create_topic(client, "gone", [1, 2])
        await create_topic(client, "kept", [1, 2])
        await until(lambda: three.broker.metadata.topics.keys() == {"gone", "kept"})
        away = Away(three)
        await three.broker.store.expire()
        await until(lambda: 3 not in one.broker.metadata.brokers)
        await client.delete_topic("gone")
        await deleted(one, "gone")
        away.let.set()
        await until(lambda: three.broker.metadata.topics.keys() == {"kept"})


async def test_a_deletion_that_the_last_controller_did_not_announce_arrives_later(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        one, _, three = machines
        await create_topic(await one.connect(), "gone", [2])
        await create_topic(await one.connect(), GROUP_TOPIC, [2, 3])
        await until(lambda: "gone" in three.broker.metadata.topics)
        channels = one.broker.candidate._controller._context.channels
        channels._senders[3].stop()
        await (await one.connect()).delete_topic("gone")
        await deleted(one, "gone")
        assert "gone" in three.broker.metadata.topics
        await one.crash()
        await until(lambda: three.broker.metadata.topics.keys() == {GROUP_TOPIC})
