"""With the same ACLs requests for several resources are answered as by Apache Kafka 3.9.1, field by field; and ACLs
that we write into ZooKeeper bind Kafka. Requests that need one right each are in the matrix (`security/`).

Kafka's brokers log in to each other as a super user; the client is User:ANONYMOUS at both brokers.
"""

import random
import re
import time
from contextlib import AsyncExitStack

import pytest
import trio

from barnabas.controller.store.zkstore import ZooKeeperConfig
from barnabas.security.acls.authorization import Authorization
from barnabas.security.acls.authorizer import Authorizer
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess, free_port
from compat_tests.raw import RawClient
from compat_tests.zookeeper_sessions import opened
from tests.broker.handlers.authorized import (
    ANY_RULE,
    BATCH,
    COMMIT,
    COMMITS,
    CONFIGS,
    EVERYTHING,
    LIST_OFFSETS,
    OFFSETS_DELETED,
    PARTITION_0,
    RULE,
    codes_in,
    grant,
    make,
)

pytestmark = pytest.mark.thorough

CHANGED_SECONDS_MAX = 30.0
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="x" user_admin="x";'
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
NEW = {"name": "u", "num_partitions": 1, "replication_factor": 1}
EMPTY_LOGGER = {"resource_type": 8, "resource_name": "", "configs": []}
AS_GROUP = {"group_id": "g", "generation_id_or_member_epoch": -1}
UNWRITABLE = [{**RULE, "resource_type": 4}, {**RULE, "resource_name": ""}, {**RULE, "operation": 99}]
SECRET_PRODUCE = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]

# What is not about one right: several resources in a request, bit fields, lists that leave something out.
MIXED = [
    (["Alter Cluster"], make("DescribeCluster", include_cluster_authorized_operations=True), None),
    ([], make("DescribeCluster", include_cluster_authorized_operations=True), None),
    (["Write Topic t"], make("Metadata", topics=None, include_topic_authorized_operations=True), None),
    (["Describe Topic none"], make("Metadata", topics=[{"name": "none"}], allow_auto_topic_creation=True), None),
    (["Describe Topic bad~"], make("Metadata", topics=[{"name": "bad~"}], allow_auto_topic_creation=True), None),
    (["Delete Group g"], make("DescribeGroups", groups=["g"], include_authorized_operations=True), None),
    (["Delete Group g"], make("ListGroups"), None),
    ([], make("ListGroups"), None),
    (["Describe Group g"], make("OffsetFetch", groups=[{"group_id": "g", "topics": None}]), None),
    (
        ["Describe Group g"],
        make("OffsetFetch", groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]),
        None,
    ),
    (["Create Topic u"], make("CreateTopics", validate_only=True, topics=[NEW, {**NEW, "name": "v"}]), None),
    (
        ["Create Topic u", "DescribeConfigs Topic v"],
        make("CreateTopics", validate_only=True, topics=[NEW, {**NEW, "name": "v"}]),
        None,
    ),
    (
        ["Read Group g"],
        make("OffsetCommit", **AS_GROUP, topics=[*COMMITS, {"name": "none", "partitions": [COMMIT]}]),
        None,
    ),
    (
        ["Read Group g", "Read Topic none"],
        make("OffsetCommit", **AS_GROUP, topics=[*COMMITS, {"name": "none", "partitions": [COMMIT]}]),
        None,
    ),
    (["Write TransactionalId x"], make("AddOffsetsToTxn", transactional_id="x", group_id="g"), None),
    (
        ["Write TransactionalId x"],
        make("AddPartitionsToTxn", v3_and_below_transactional_id="x", v3_and_below_topics=PARTITION_0),
        3,
    ),
    (["Delete Group g"], make("OffsetDelete", group_id="g", topics=OFFSETS_DELETED), None),
    (
        ["Describe Topic t", "Describe Topic none"],
        make("ListOffsets", topics=[{**LIST_OFFSETS[0], "name": name} for name in ("t", "none", "denied")]),
        None,
    ),
    (["Delete Topic none"], make("DeleteTopics", topics=[{"name": "none"}, {"name": "denied"}]), None),
    ([], make("ListTransactions"), None),
    ([], make("Produce", acks=1, timeout_ms=1000, transactional_id="x", topic_data=SECRET_PRODUCE), None),
    (
        ["AlterConfigs Topic t"],
        make("IncrementalAlterConfigs", resources=[*CONFIGS, {**CONFIGS[0], "resource_name": "denied"}, EMPTY_LOGGER]),
        None,
    ),
    (["Alter Cluster"], make("CreateAcls", creations=UNWRITABLE), None),
    (["Alter Cluster"], make("CreateAcls", creations=[{**RULE, "resource_name": "a/b"}]), None),
    (["Alter Cluster"], make("CreateAcls", creations=[{**RULE, "principal": "alice"}]), None),
    (["Alter Cluster"], make("CreateAcls", creations=[RULE, {**RULE, "operation": 1}]), None),
    (["Alter Cluster"], make("DescribeAcls", **{**ANY_RULE, "resource_type_filter": 4}), None),
    (["Alter Cluster"], make("DescribeAcls", **{**ANY_RULE, "operation": 99}), None),
    (["Alter Cluster"], make("DeleteAcls", filters=[{**ANY_RULE, "operation": 99}]), None),
]


class Judged:
    """One of the two brokers, with the ACLs that it obeys."""

    def __init__(self, port, authorization):
        self.port = port
        self._authorization = authorization
        self._changes = 0

    async def set_acls(self, grants):
        """Replace all ACLs, and wait until the broker obeys: the last one is about a topic that does not exist."""
        self._changes += 1
        marker = f"marker-{self._changes}"
        await self._authorization.delete([EVERYTHING])
        outcome = await self._authorization.create([grant(each) for each in [*grants, f"Describe Topic {marker}"]])
        assert set(outcome.values()) == {0}, outcome
        asked = make("Metadata", topics=[{"name": marker}], allow_auto_topic_creation=False)
        with trio.fail_after(CHANGED_SECONDS_MAX):
            while codes_in(self.ask(asked)) != {3}:
                await trio.sleep(0.02)  # the pace of looking

    async def succeed(self, request, version=None):
        """Ask until there is no error."""
        with trio.fail_after(CHANGED_SECONDS_MAX):
            while codes_in(self.ask(request, version)):
                await trio.sleep(0.1)  # the pace of looking

    def ask(self, request, version=None):
        api = APIS[request.API_KEY]
        with RawClient(self.port) as client:
            return client.ask(
                request, api.max_version if version is None else version, getattr(m, f"{api.name}Response")
            )


def comparable(answer):
    """An answer without what differs between any two brokers, and between two runs of one."""
    text = repr(answer)
    text = re.sub(r"'Request Request\(.*?\) is not authorized\.'", "'Cluster authorization failed.'", text)
    text = re.sub(r"brokers=\[.*?\]", "brokers", text)
    text = re.sub(r"(cluster_id|port|controller_id|leader_id|replica_nodes|isr_nodes)=[^,)]*", r"\1", text)
    # Python quotes bytes with a single quote in them by double quotes.
    return re.sub(r"""topic_id=b(?!'(\\x00)*')(['"])(\\.|(?!\2).)*\2""", "topic_id", text)


async def with_both(zookeeper, ports, judge):
    """Run `judge` with both brokers."""
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        judged = []
        for chroot, port in ports:
            config = ZooKeeperConfig(f"{zookeeper.bootstrap}{chroot}")
            store = await stack.enter_async_context(opened(config))
            authorization = Authorization(
                store, Authorizer(), now_ms=lambda: int(time.time() * 1000), rng=random.Random(1)
            )
            await nursery.start(authorization.run)
            judged.append(Judged(port, authorization))
        for each in judged:
            await each.set_acls(["Create Topic t", "Read Topic t", "Read Group g"])
            await each.succeed(make("CreateTopics", timeout_ms=20_000, topics=[{**NEW, "name": "t"}]), 4)
            await each.succeed(make("FindCoordinator", coordinator_keys=["g"]))
            await each.succeed(make("OffsetCommit", **AS_GROUP, topics=COMMITS))
        await judge(*judged)
        nursery.cancel_scope.cancel()


@pytest.fixture
def ports(tmp_path):
    client, between = free_port(), free_port()
    kafka = KafkaProcess(tmp_path / "kafka")
    kafka.port = client
    kafka.settings = AUTHORIZER | {
        "listeners": f"PLAINTEXT://127.0.0.1:{client},SASL_PLAINTEXT://127.0.0.1:{between}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN,
        "super.users": "User:admin",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with kafka:
        single = {"offsets_topic_replication_factor": 1, "transaction_state_log_replication_factor": 1}
        ours = BrokerProcess(
            tmp_path,
            authorizer_class_name=AUTHORIZER["authorizer.class.name"],
            zookeeper_connect=f"{kafka.zookeeper.bootstrap}/ours",
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
            transaction_state_log_min_isr=1,
            **single,
        )
        with ours:
            yield kafka.zookeeper, [("", client), ("/ours", ours.port)]


async def test_requests_are_refused_and_allowed_as_by_kafka(ports):
    differing = []

    async def judge(kafka, ours):
        for grants, request, version in MIXED:
            for each in (kafka, ours):
                await each.set_acls(grants)
            answers = [comparable(each.ask(request, version)) for each in (kafka, ours)]
            if answers[0] != answers[1]:
                differing.append((type(request).__name__, grants, *answers))

    await with_both(*ports, judge)
    assert differing == []
