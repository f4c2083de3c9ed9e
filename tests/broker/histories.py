"""What earlier requests have made of a broker: its largest states, for tests of what later requests cost."""

from dataclasses import dataclass, field

import trio

from barnabas.coordinators.groups.records import GroupMetadata, GroupMetadataRecord, RecordedMember, encode_record
from barnabas.coordinators.transactions.records import encode_record as encode_transaction
from barnabas.coordinators.transactions.state import Recorded, Status, TransactionRecord
from barnabas.storage.producers import Origin
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from barnabas.wire.sentinels import ACKS_ALL
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition
from tests.broker.clock import now_ms
from tests.broker.harness import Client, Machine
from tests.broker.requests import produce_request
from tests.broker.worst_requests import TOPIC

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "message.max.bytes": "10000000",
    "transaction.state.log.num.partitions": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": f'{LOGIN} required user_alice="secret";',
    "delegation.token.secret.key": "the secret",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
}
HANDSHAKE, AUTHENTICATE = 17, 36
CREATE_TOKEN, DESCRIBE_TOKENS = 38, 41


@dataclass
class Scene:
    """A broker, a client of it, and what fields of requests hold so that they concern what the broker has."""

    machine: Machine
    api_key: int
    client: Client | None = None
    meant: dict[str, object] = field(default_factory=dict)

    async def connect(self) -> None:
        """A client that may send requests of the API."""
        # A token is created for a user who has logged in.
        needs_login = CREATE_TOKEN <= self.api_key <= DESCRIBE_TOKENS
        is_login = self.api_key in (HANDSHAKE, AUTHENTICATE)
        self.client = await self.machine.connect("LOGIN" if needs_login or is_login else "PLAINTEXT")
        if needs_login or self.api_key == AUTHENTICATE:
            assert (await self.client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
        if needs_login:
            assert (await self.client.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))).error_code == 0

    def append(self, topic: str, records: list[tuple[bytes, bytes | None]]) -> None:
        """Records of a coordinator, as it writes them."""
        partition = self.machine.broker.replicas.get(topic, 0)
        for start in range(0, len(records), 500):
            batch = build_batch(records[start : start + 500], timestamp_ms=now_ms())
            assert not isinstance(partition.append_as_leader(batch, Origin.COORDINATOR, ACKS_ALL), ErrorCode)

    async def again(self) -> None:
        """The broker is started again, and loads what it has."""
        await self.machine.crash()
        await self.machine.start()
        await self.connect()
        await trio.sleep(5)


async def scene_of(nursery: trio.Nursery, api_key: int, *, with_history: bool = True) -> Scene:
    """A broker with the topic TOPIC, and with what makes requests of this API dear."""
    scene = Scene(await Machine(nursery, **PROPERTIES).start(), api_key)
    await (await scene.machine.connect()).create_topic(TOPIC)
    scene.meant["controller_id"] = scene.machine.serving.broker_id
    scene.meant["controller_epoch"] = await scene.machine.controller_epoch()
    await scene.connect()
    for history in HISTORIES.get(api_key, (many_topics,)) if with_history else ():
        await history(scene)
    return scene


async def many_topics(scene: Scene) -> None:
    """A topic of 1,000 partitions; and 5,000 topics that other brokers have."""
    await scene.client.create_topic("wide", 1000)
    update, metadata = m.UpdateMetadataRequest, scene.machine.broker.metadata
    state = update.UpdateMetadataPartitionState(leader=9, isr=[9], replicas=[9])
    topics = [
        update.UpdateMetadataTopicState(
            topic_name=f"topic-{number}", topic_id=number.to_bytes(16, "big"), partition_states=[state]
        )
        for number in range(1, 5001)
    ]
    endpoint = update.UpdateMetadataEndpoint(port=9092, host="127.0.0.1", listener="PLAINTEXT")
    live = [update.UpdateMetadataBroker(id=each, endpoints=[endpoint]) for each in (9, *metadata.brokers)]
    metadata.apply(update(controller_id=metadata.controller_id, live_brokers=live, topic_states=topics))


async def many_members(scene: Scene) -> None:
    """A group of 10,000 members, and one of 2,000 static ones."""
    await scene.client.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
    subscription = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
    for group_id, count in {"members": 10_000, "static": 2000}.items():
        is_static = group_id == "static"
        members = [
            RecordedMember(
                member_id=f"m{number}",
                group_instance_id=f"i{number}" if is_static else None,
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=1_800_000,
                subscription=subscription,
                assignment=b"a",
            )
            for number in range(count)
        ]
        metadata = GroupMetadata(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader="m0",
            current_state_timestamp=now_ms(),
            members=members,
        )
        scene.append(GROUP_TOPIC, [encode_record(GroupMetadataRecord(group_id, metadata))])
    await scene.again()
    described = (await scene.client.ask(m.DescribeGroupsRequest(groups=["members", "static"]))).groups
    assert [len(group.members) for group in described] == [10_000, 2000]
    scene.meant |= {"group_id": "members", "member_id": "m0", "generation_id": 1, "generation_id_or_member_epoch": 1}
    scene.meant |= {"protocol_type": "consumer", "protocol_name": "range", "group_instance_id": None}


async def many_offsets(scene: Scene) -> None:
    """A group with 5,000 committed offsets, each with as much metadata as is allowed."""
    await scene.client.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
    await scene.client.create_topic("wide", 5000)
    commit = m.OffsetCommitRequest
    for start in range(0, 5000, 250):
        rows = [
            commit.OffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata="€" * 4096)
            for each in range(start, start + 250)
        ]
        answer = await scene.client.ask(
            commit(group_id="offsets", topics=[commit.OffsetCommitRequestTopic(name="wide", partitions=rows)])
        )
        assert {row.error_code for row in answer.topics[0].partitions} == {0}


async def many_segments(scene: Scene) -> None:
    """A log of 3,000 segments."""
    await scene.client.create_topic("segments", segment_bytes="100")
    for _ in range(3000):
        await scene.client.ask(produce_request("segments", b"v"))


async def many_producers(scene: Scene) -> None:
    """10,000 idempotent producers have written to a log."""
    producers = scene.machine.broker.replicas.get(TOPIC, 0).log.producers
    for number in range(10_000):
        batch = build_batch(
            [(None, b"v")], timestamp_ms=now_ms(), producer_id=number, producer_epoch=0, base_sequence=0
        )
        producers.update(batch.header)


async def many_transactions(scene: Scene) -> None:
    """5,000 transactional ids, and one with a transaction of 2,000 partitions."""
    await scene.client.create_topic("wide", 2000)
    await scene.client.ask(m.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
    wide = dict.fromkeys(TopicPartition("wide", index) for index in range(2000))
    records = [
        TransactionRecord(f"x{number}", Recorded(number, 0, 60_000, Status.EMPTY, {}, now_ms(), now_ms()))
        for number in range(5000)
    ]
    records.append(TransactionRecord("large", Recorded(9999, 0, 60_000, Status.ONGOING, wide, now_ms(), now_ms())))
    scene.append(TRANSACTION_TOPIC, [encode_transaction(each) for each in records])
    await scene.again()
    assert len((await scene.client.ask(m.ListTransactionsRequest())).transaction_states) > len(wide)
    scene.meant |= {"transactional_id": "large", "producer_id": 9999, "producer_epoch": 0}


async def many_tokens(scene: Scene) -> None:
    """20 tokens with 1,000 renewers."""
    create = m.CreateDelegationTokenRequest
    renewers = [
        create.CreatableRenewers(principal_type="User", principal_name=f"renewer {each}") for each in range(1000)
    ]
    for _ in range(20):
        answer = await scene.client.ask(create(renewers=renewers, max_lifetime_ms=-1))
        assert not answer.error_code, answer.error_code


async def many_acls(scene: Scene) -> None:
    """5,000 patterns, and one with 500 entries."""
    create = m.CreateAclsRequest
    usual = {"resource_type": 2, "resource_pattern_type": 3, "host": "*", "operation": 3, "permission_type": 3}
    rows = [create.AclCreation(resource_name=f"t{each}", principal="User:u", **usual) for each in range(5000)]
    rows += [create.AclCreation(resource_name="t", principal=f"User:{each}", **usual) for each in range(500)]
    answer = await scene.client.ask(create(creations=rows))
    assert {row.error_code for row in answer.results} == {0}


async def many_quotas(scene: Scene) -> None:
    """2,000 users with a quota."""
    alter = m.AlterClientQuotasRequest
    entries = [
        alter.EntryData(
            entity=[alter.EntityData(entity_type="user", entity_name=f"u{each}")],
            ops=[alter.OpData(key="consumer_byte_rate", value=1e6, remove=False)],
        )
        for each in range(2000)
    ]
    answer = await scene.client.ask(alter(entries=entries, validate_only=False))
    assert {row.error_code for row in answer.entries} == {0}


# Which histories concern an API. All others are asked of a broker with many topics.
HISTORIES = {
    0: (many_segments, many_producers),
    1: (many_segments, many_topics),  # in this order: the controller does not know what `many_topics` tells the broker
    2: (many_segments,),
    8: (many_members, many_offsets),
    9: (many_offsets,),
    **dict.fromkeys((10, 11, 12, 13, 14, 15, 16, 42), (many_members,)),
    47: (many_members, many_offsets),
    **dict.fromkeys((22, 24, 25, 26, 28, 65, 66), (many_transactions,)),
    **dict.fromkeys((29, 30, 31), (many_acls,)),
    **dict.fromkeys((38, 39, 40, 41), (many_tokens,)),
    **dict.fromkeys((48, 49), (many_quotas,)),
    21: (many_segments,),
    23: (many_segments,),
    61: (many_producers,),
    **dict.fromkeys((17, 18, 36, 50, 51, 57), ()),
}
