"""What the page says of a cluster: the same as Kafka's handlers, to the same caller."""

import json
import math
import time
from urllib.parse import quote

import pytest
import trio

from barnabas.console.group_views import assigned_partitions
from barnabas.console.long_json import long_json_answer
from barnabas.controller.store.store import SessionExpired, SessionTally, StoreUnavailable
from barnabas.wire import messages as m
from tests.broker.clusters import cluster, create_topic, until
from tests.broker.handlers.authorized import EVERYTHING, grant
from tests.broker.harness import Machine, with_topic
from tests.broker.writers import Writer
from tests.console.page import Page
from tests.coordinators.groups.asking import commit, join, sync

HOSTILE = '<script>alert("x")</script>&\u202e\x00'
AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
RIGHTS = [grant(each) for each in ("Create Topic t", "Write Topic t", "Read Group g", "Read Topic t")]
ALL_PATHS = [
    "/v1/cluster",
    "/v1/topics",
    "/v1/topics/t",
    "/v1/topics/t/configs",
    "/v1/topics/t/records?newest=10",
    "/v1/topics/t/download",
    "/v1/topics/t/records/0/0/value",
    "/v1/groups",
    "/v1/groups/g",
    "/v1/transactions",
    "/v1/brokers/{me}/configs",
    "/v1/acls",
    "/v1/quotas",
    "/v1/store",
    "/v1/story",
]


async def one_page(nursery, partitions=1, **properties):
    machine, client = await with_topic(nursery, partitions, properties=properties)
    return await Page(machine).open(nursery), machine, client


async def test_the_cluster_has_its_brokers_and_counts(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1, 2, 3], [2, 3, 1])
        await until(lambda: all("t" in machine.broker.metadata.topics for machine in machines))
        page = await Page(machines[1]).open(nursery)
        shown = await page.get("/v1/cluster")
        assert [(each["broker"], each["leaders"], each["replicas"]) for each in shown["brokers"]] == [
            (1, 1, 2),
            (2, 1, 2),
            (3, 0, 2),
        ]
        assert (shown["broker"], shown["controller"], shown["topics"], shown["partitions"]) == (2, 1, 1, 2)
        assert (shown["under_replicated"], shown["offline"]) == (0, 0)
        assert [each["broker"] for each in shown["log_dirs"]] == [1, 2, 3]
        assert shown["principal"] == "User:ANONYMOUS"


async def test_a_topic_shows_each_replica_and_the_ends(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1, 2, 3])
        await client.produce("t", b"one")
        await until(lambda: all("t" in machine.broker.metadata.topics for machine in machines))
        led = await (await Page(machines[0]).open(nursery)).get("/v1/topics/t")
        followed = await (await Page(machines[2], 9645).open(nursery)).get("/v1/topics/t")
    (row,) = led["partitions"]
    assert (row["role"], row["leader"], row["isr"], row["high_watermark"]) == ("leader", 1, [1, 2, 3], 1)
    assert {each["broker"]: each["log_end_offset"] for each in row["followers"]} == {2: 1, 3: 1}
    (row,) = followed["partitions"]
    assert (row["role"], row["leader"], row["log_end_offset"], row["followers"]) == ("follower", 1, 1, [])


async def test_ends_of_a_partition_without_a_replica_here_are_asked_for(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1])
        await client.produce("t", b"one")
        await until(lambda: "t" in machines[1].broker.metadata.topics)
        page = await Page(machines[1]).open(nursery)
        (row,) = (await page.get("/v1/topics/t"))["partitions"]
        assert (row["role"], row["log_start_offset"], row["high_watermark"]) == ("elsewhere", 0, 1)
        (topic,) = (await page.get("/v1/topics"))["topics"]
        assert (topic["topic"], topic["records"], topic["replication_factor"]) == ("t", 1, 1)
        (found,) = (await page.get("/v1/topics/t/records?newest=1"))["records"]
        assert found["value"]["text"] == "one"


async def test_configuration_has_its_sources_and_hides_secrets(nursery, autojump_clock):
    page, machine, client = await one_page(nursery)
    await client.create_topic("c", cleanup_policy="compact")
    shown = {each["name"]: each for each in (await page.get("/v1/topics/c/configs"))["configs"]}
    assert (shown["cleanup.policy"]["value"], shown["cleanup.policy"]["source"]) == ("compact", "topic")
    assert shown["retention.ms"]["source"] == "default"
    path = f"/v1/brokers/{machine.serving.broker_id}/configs"
    shown = {each["name"]: each for each in (await page.get(path))["configs"]}
    assert (shown["log.dirs"]["value"], shown["log.dirs"]["source"]) == ("/data", "file or command line")
    assert (shown["ssl.key.password"]["value"], shown["ssl.key.password"]["is_sensitive"]) == (None, True)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/v1/topics/u", 404, "no topic 'u'"),
        ("/v1/topics/u/configs", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/v1/brokers/moon/configs", 404, "no broker 'moon'"),
        ("/v1/groups/g", 404, "no group 'g'"),
        ("/v1/store?path=/moon", 404, "no node '/moon'"),
        ("/v1/store?path=/a/../b", 404, "no node"),
        ("/v1/store?path=moon", 404, "no node"),
        ("/v1/story?after=x", 400, "after='x': expected a number"),
        ("/v1/topics/t/records?count=501", 400, "from 1 to 500"),
        ("/v1/topics/t/records?count=-1", 400, "from 1 to 500"),
        ("/v1/topics/t/records?partition=7&offset=0", 404, "no partition 7"),
        ("/v1/topics/t/records?offset=0", 400, "an offset needs a partition"),
        ("/v1/topics/t/records?from=0:x", 400, "partition:offset"),
        ("/v1/topics/t/records?from=9:0", 404, "no partition 9"),
        ("/v1/topics/t/records/0/0/moon", 404, "no 'moon'"),
        ("/v1/topics/t/records/0/7/value", 416, "OFFSET_OUT_OF_RANGE"),
        ("/v1/topics/t/records/x/0/value", 400, "partition='x'"),
    ],
)
async def test_a_wrong_path_is_refused_with_its_reason(nursery, autojump_clock, path, status, said):
    page, _, _ = await one_page(nursery, 2)
    found = await page.refused(path)
    assert (found[0], said in found[1]) == (status, True), found


async def test_a_group_has_its_members_and_its_lag(nursery, autojump_clock):
    page, _, client = await one_page(nursery, 2)
    for value in (b"a", b"b", b"c"):
        await client.produce("t", value)
        await trio.sleep(10)
    await client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    given = await client.ask(join())
    joined = await client.ask(join(given.member_id))
    assigned = b"\x00\x01" + m.encode(
        m.ConsumerProtocolAssignment(
            assigned_partitions=[m.ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 1])]
        ),
        1,
    )
    await client.ask(sync(joined, [(joined.member_id, assigned)]))
    await client.ask(commit(1, generation=joined.generation_id, member_id=joined.member_id))

    assert [(each["group"], each["state"]) for each in (await page.get("/v1/groups"))["groups"]] == [("g", "Stable")]
    shown = await page.get("/v1/groups/g")
    (member,) = shown["members"]
    assert (shown["protocol"], member["client"], member["assigned"]) == ("range", "test", {"t": [0, 1]})
    first, second = shown["offsets"]
    assert (first["committed"], first["high_watermark"], first["lag"]) == (1, 3, 2)
    assert first["member"] == second["member"] == joined.member_id
    # The record at offset 1 was produced 20 s ago.
    assert first["lag_seconds"] == pytest.approx(20, abs=1)
    assert (second["committed"], second["lag"]) == (None, None)


async def test_a_member_that_claims_many_partitions_does_not_hold_the_broker(nursery, autojump_clock):
    page, _, client = await one_page(nursery, 2)
    await client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    given = await client.ask(join())
    joined = await client.ask(join(given.member_id))
    assignment = m.ConsumerProtocolAssignment
    claimed = assignment.TopicPartition(topic="t", partitions=list(range(100_000)))
    assigned = b"\x00\x01" + m.encode(assignment(assigned_partitions=[claimed]), 1)
    await client.ask(sync(joined, [(joined.member_id, assigned)]))
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    status, _, body = await page.ask("/v1/groups/g")
    trio.lowlevel.remove_instrument(steps)
    assert status == 200
    assert [each["partition"] for each in json.loads(body)["offsets"]] == [0, 1]
    # It was more than a second.
    assert steps.longest_seconds < 0.3


class Steps(trio.abc.Instrument):
    """The processor time of the longest step."""

    def __init__(self):
        self.longest_seconds = 0.0
        self._began = math.inf

    def before_task_step(self, task):
        self._began = time.thread_time()

    def after_task_step(self, task):
        self.longest_seconds = max(self.longest_seconds, time.thread_time() - self._began)


async def test_a_group_of_another_coordinator_is_asked_for(nursery, autojump_clock):
    async with cluster(nursery, 2, offsets_topic_replication_factor="1", offsets_topic_num_partitions="2") as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1])
        coordinators = {}
        for name in ("g", "h"):
            found = await client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=[name]))
            coordinators[name] = found.coordinators[0].node_id
        for name, node in coordinators.items():
            at = await machines[node - 1].connect()
            await until_committed(at, name)
        page = await Page(machines[0]).open(nursery)
        shown = {each["group"]: each["coordinator"] for each in (await page.get("/v1/groups"))["groups"]}
        assert shown == coordinators
        assert set(coordinators.values()) == {1, 2}
        for name in coordinators:
            (row,) = (await page.get(f"/v1/groups/{name}"))["offsets"]
            assert (row["committed"], row["lag"]) == (0, 0)


async def until_committed(client, name):
    with trio.fail_after(60):
        while (await client.ask(commit(0, group_id=name))).topics[0].partitions[0].error_code:
            await trio.sleep(0.1)


async def test_a_transaction_is_shown_with_its_partitions_and_age(nursery, autojump_clock):
    machine, _ = await with_topic(nursery, properties={"transaction_state_log_num_partitions": "1"})
    page = await Page(machine).open(nursery)
    writer = Writer((machine,), "clerk")
    await writer.init()
    await writer.add(("t", 0))
    await writer.write("t", b"open")
    await trio.sleep(5)
    (shown,) = (await page.get("/v1/transactions"))["transactions"]
    assert (shown["transactional_id"], shown["state"], shown["partitions"]) == ("clerk", "Ongoing", [["t", 0]])
    assert 5000 <= shown["age_ms"] < 6000
    await writer.end(commit=True)
    await writer.completed()
    (shown,) = (await page.get("/v1/transactions"))["transactions"]
    assert (shown["state"], shown["age_ms"]) == ("CompleteCommit", None)


async def test_names_that_clients_choose_arrive_as_they_are(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    await client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=[HOSTILE]))
    await until_committed(client, HOSTILE)
    assert [each["group"] for each in (await page.get("/v1/groups"))["groups"]] == [HOSTILE]
    shown = await page.get("/v1/groups/%3Cscript%3Ealert(%22x%22)%3C%2Fscript%3E&%E2%80%AE%00")
    assert shown["group"] == HOSTILE
    _, headers, _ = await page.ask("/v1/groups")
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_stranger_sees_nothing_of_a_broker_with_an_authorizer(nursery, autojump_clock):
    machine = await Machine(nursery, **AUTHORIZER).start()
    await machine.broker.authorization.create(RIGHTS)
    client = await machine.connect()
    await client.create_topic("t")
    await client.produce("t", b"secret")
    await client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    await until_committed(client, "g")
    await machine.broker.authorization.delete([EVERYTHING])
    page = await Page(machine).open(nursery)
    for path in ALL_PATHS:
        status, _, body = await page.ask(path.format(me=machine.serving.broker_id))
        assert status in (200, 403, 404), (path, status)
        assert b"secret" not in body, path
        if status == 200:
            assert b'"t"' not in body, (path, body)
            assert b'"g"' not in body, (path, body)


async def test_who_may_describe_sees_names_and_no_records(nursery, autojump_clock):
    machine = await Machine(nursery, **AUTHORIZER).start()
    await machine.broker.authorization.create([grant(each) for each in ("Create Topic *", "Write Topic *")])
    client = await machine.connect()
    await client.create_topic("t")
    await client.create_topic("u")
    await client.produce("t", b"secret")
    await machine.broker.authorization.delete([EVERYTHING])
    await machine.broker.authorization.create([grant("Describe Topic t")])
    page = await Page(machine).open(nursery)
    assert [each["topic"] for each in (await page.get("/v1/topics"))["topics"]] == ["t"]
    assert (await page.get("/v1/cluster"))["topics"] == 1
    assert (await page.refused("/v1/topics/t/records?newest=1"))[0] == 403
    assert (await page.refused("/v1/topics/t/download"))[0] == 403
    assert (await page.refused("/v1/topics/t/records/0/0/value"))[0] == 403
    assert (await page.refused("/v1/topics/u"))[0] == 404
    assert (await page.refused("/v1/store"))[0] == 403
    assert (await page.refused("/v1/story"))[0] == 403


async def test_acls_and_quotas_are_listed(nursery, autojump_clock):
    machine = await Machine(nursery, **AUTHORIZER).start()
    await machine.broker.authorization.create(
        [
            grant(each)
            for each in ("Describe Cluster", "DescribeConfigs Cluster", "AlterConfigs Cluster", "Read Topic t")
        ]
    )
    client = await machine.connect()
    request = m.AlterClientQuotasRequest
    await client.ask(
        request(
            entries=[
                request.EntryData(
                    entity=[request.EntityData(entity_type="user", entity_name="klamm")],
                    ops=[request.OpData(key="producer_byte_rate", value=1000.0, remove=False)],
                )
            ],
            validate_only=False,
        )
    )
    page = await Page(machine).open(nursery)
    shown = await page.get("/v1/acls")
    assert shown["is_enabled"]
    assert ("Topic", "t", "Read", "Allow") in [
        (each["resource_type"], each["resource"], each["operation"], each["permission"]) for each in shown["acls"]
    ]
    assert (await page.get("/v1/quotas"))["quotas"] == [
        {"entity": [{"type": "user", "name": "klamm"}], "values": {"producer_byte_rate": 1000.0}}
    ]


async def test_a_broker_without_an_authorizer_says_so(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    assert await page.get("/v1/acls") == {"is_enabled": False, "acls": []}


async def test_the_store_is_read_node_by_node(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    root = await page.get("/v1/store")
    assert {"brokers", "config", "controller"} <= set(root["children"])
    node = await page.get("/v1/store?path=/brokers/topics/t")
    assert (node["children"], '"partitions":{"0":' in node["data"]) == (["partitions"], True)
    assert (await page.get("/v1/store?path=/controller"))["is_ephemeral"]


async def test_the_store_shows_no_secret(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    request = m.AlterUserScramCredentialsRequest
    row = request.ScramCredentialUpsertion(
        name="klamm", mechanism=1, iterations=4096, salt=b"saltsalt", salted_password=b"p" * 32
    )
    (result,) = (await client.ask(request(upsertions=[row], deletions=[]))).results
    assert result.error_code == 0
    node = await page.get("/v1/store?path=/config/users/klamm")
    assert node["data"] == "(hidden)"


async def test_before_the_broker_is_built_there_is_nothing(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    page.life.broker = None
    assert (await page.refused("/v1/cluster"))[0] == 503
    assert (await page.ask("/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (b"", {}),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x02\xff\xff\xff\xff", {"t": [2]}),
        (b"\x00\x63\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x02\xff\xff\xff\xff", {"t": [2]}),
        (b"\x00\x00\x7f\xff\xff\xff", None),
        (b"<script>", None),
    ],
)
def test_an_assignment_is_read_or_left_alone(assignment, expected):
    assert assigned_partitions(assignment) == expected


async def test_a_broker_that_no_number_can_be_is_said(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    for name in ("9" * 5000, "one", "\u0661", ""):
        status, said = await page.refused(f"/v1/brokers/{quote(name)}/configs")
        assert (status, "there is no broker" in said) == (404, True)


async def test_strictly_a_broker_that_has_lost_zookeeper_is_not_ready(nursery, autojump_clock, monkeypatch):
    page, machine, _ = await one_page(nursery)
    sessions = SessionTally()
    monkeypatch.setattr(type(machine.broker.store), "session_tally", sessions)
    sessions.connects = 1
    assert (await page.ask("/readyz?strict=1"))[0] == 200
    sessions.disconnects = 1
    status, _, body = await page.ask("/readyz?strict=1")
    assert (status, b"ZooKeeper does not answer" in body) == (503, True)
    # Clients are served without it.
    assert (await page.ask("/readyz"))[0] == 200
    sessions.connects = 2
    assert (await page.ask("/readyz?strict=1"))[0] == 200


async def test_a_list_of_a_thousand_topics_is_made_in_many_steps(nursery, autojump_clock):
    rows = [{"topic": f"t{number}", "records": None} for number in range(5000)]
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as counting:
        counting.start_soon(count_turns)
        answered = await long_json_answer({"head": "a\nb", "topics": rows, "none": []})
        counting.cancel_scope.cancel()
    assert json.loads(answered.body) == {"head": "a\nb", "topics": rows, "none": []}
    assert turns >= 12


@pytest.mark.parametrize(
    ("error", "seconds", "said"),
    [
        (StoreUnavailable("zoo:2181", "no answer"), 0, "zoo:2181"),
        (SessionExpired(7), 0, "session 0x7"),
        (None, math.inf, "not within 5 s"),
    ],
)
async def test_a_store_that_does_not_answer_is_said(nursery, autojump_clock, monkeypatch, error, seconds, said):
    page, machine, _ = await one_page(nursery)

    async def children(store, path, watch=None):
        await trio.sleep(seconds)
        raise error

    monkeypatch.setattr(type(machine.broker.store), "children", children)
    status, text = await page.refused("/v1/store?path=/brokers")
    assert (status, text.startswith("the metadata store does not answer"), said in text) == (503, True, True)
