"""What a simulated client believes of the cluster, and how it uses its connections."""

import pytest
import trio

from barnabas.testing.simulation.cluster import open_cluster
from barnabas.testing.simulation.groups import Member
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.node import PORT
from barnabas.testing.simulation.party import Lost, Party, View
from barnabas.testing.simulation.plan import SecuredPlan
from barnabas.testing.simulation.schedule import simulate
from barnabas.testing.simulation.secured import ADMIN, CLIENT, SecuredRules, prepare, properties_of
from barnabas.wire import messages as m
from barnabas.wire.topics import ZERO_TOPIC_ID
from tests.broker.clusters import until
from tests.broker.requests import new_topics

TOPIC_ID = bytes(15) + b"\1"
SESSION_MS = 3000


def answer(name="t", topic_id=TOPIC_ID, **leader_epochs):
    """Metadata of one topic, its partitions in the epochs given as p0=..., p1=..."""
    rows = [
        m.MetadataResponse.MetadataResponsePartition(partition_index=int(name[1:]), leader_id=1, leader_epoch=epoch)
        for name, epoch in leader_epochs.items()
    ]
    topic = m.MetadataResponse.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=rows)
    return m.MetadataResponse(topics=[topic])


def test_of_an_older_answer_nothing_is_believed_so_that_a_known_topic_is_known_whole():
    view = View()
    view.take(answer(p0=2, p1=0))
    view.forget("t")
    view.take(answer(p0=1, p1=0))
    assert "t" not in view.topic_ids, "it will be asked again"
    view.take(answer(p0=2, p1=0))
    assert view.partitions_of("t") == [0, 1]


def test_without_topic_ids_each_topic_has_epochs_of_its_own():
    view = View()
    view.take(answer("often", ZERO_TOPIC_ID, p0=10))
    view.take(answer("seldom", ZERO_TOPIC_ID, p0=3))
    assert view.partitions_of("seldom") == [0]
    view.take(answer("seldom", ZERO_TOPIC_ID, p0=2))
    view.take(answer("often", ZERO_TOPIC_ID, p0=9))
    assert [place.leader_epoch for place in view.places.values()] == [10, 3]


class Secured:
    """One broker at which all log in for three seconds, and a topic; what was violated, and what was lost."""

    def __init__(self, cluster):
        plan = SecuredPlan("PLAIN", "SCRAM-SHA-256", SESSION_MS)
        self.cluster = cluster
        self.broken = []
        self.rules = SecuredRules(lambda rule, why: self.broken.append((rule, why)), plan)
        self.lost = []
        prepare(cluster.store.tree)
        for node in cluster.nodes.values():
            node.properties |= properties_of(plan) | {"listeners": f"SASL_PLAINTEXT://{node.name}:{PORT}"}

    async def start(self):
        await self.cluster.start()
        admin = self.party("admin", ADMIN)
        created = await (await admin.controller()).ask(new_topics("t"), m.CreateTopicsResponse)
        assert created.topics[0].error_code == 0
        admin.close()

    def party(self, name, user=CLIENT):
        cluster = self.cluster
        bootstrap = [(node.name, PORT) for node in cluster.nodes.values()]
        admission = self.rules.admission(user, name)
        party = Party(name, cluster.client_net(name), bootstrap, cluster.simulation.rng(name), admission=admission)
        party.on_served = lambda seconds, worked_at, why_not: self.lost.append(why_not) if why_not else None
        return party


def on_a_secured_broker(scenario):
    async def main(simulation):
        async with open_cluster(simulation, brokers=1, offsets_topic_replication_factor="1") as cluster:
            secured = Secured(cluster)
            await secured.start()
            await scenario(secured)
            assert secured.broken == []
            assert cluster.bugs == []

    simulate(1, main)


def test_members_stay_in_their_generation_over_the_sessions_of_their_logins():
    """Also the one that has no partition, and so uses its connection for nothing but the group."""

    async def scenario(secured):
        generations = []

        def owns(_, generation, name, __, partitions):
            generations.append((generation, name, partitions))

        history = History(secured.cluster.now_ms)
        members = [Member(secured.party(name), history, "g", "t", owns) for name in ("one", "other")]
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(member.run)
            await until(lambda: all(member.is_stable for member in members))
            before = len(generations)
            await trio.sleep(5 * SESSION_MS / 1000)
            assert generations[before:] == []
            assert sorted(member.owned for member in members) == [[], [0]]
            assert secured.lost == []
            nursery.cancel_scope.cancel()

    on_a_secured_broker(scenario)


async def ask_a_lost_connection(link):
    with pytest.raises(Lost):
        await link.ask(m.MetadataRequest(topics=[]), m.MetadataResponse)


def test_an_acks_0_request_that_fails_ends_its_connection_and_that_is_no_fault():
    async def scenario(secured):
        party = secured.party("writer")
        await party.refresh()
        row = m.ProduceRequest.PartitionProduceData(index=0, records=memoryview(b"no batch"))
        topics = [m.ProduceRequest.TopicProduceData(name="t", partition_data=[row])]
        link = await party.broker(1)
        await link.send(m.ProduceRequest(acks=0, timeout_ms=1000, topic_data=topics))
        await trio.sleep(1)
        await ask_a_lost_connection(link)
        assert secured.lost == []

        link = await party.broker(1)
        secured.cluster.nodes[1].crash_process()
        await ask_a_lost_connection(link)
        assert len(secured.lost) == 1

    on_a_secured_broker(scenario)
