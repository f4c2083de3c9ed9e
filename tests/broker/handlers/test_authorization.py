"""What each API needs, and how it refuses; on a broker with an authorizer whose ACLs a test adds.

Every client here is User:ANONYMOUS. Requests are those that reach the check; what they do once they are allowed is in
the other files of this folder.
"""

import logging

import pytest
import trio

from barnabas.broker.server.dispatch import HANDLERS
from barnabas.security.acls.acls import AccessControlEntry, ResourcePattern, encode_entries
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.authorized import (
    ANY_RULE,
    CLUSTER,
    COMMITS,
    EVERYTHING,
    GROUP,
    GROWN,
    NEEDS,
    RULE,
    TOPIC,
    TRANSACTIONAL_ID,
    codes_in,
    grant,
    make,
)
from tests.broker.harness import Machine
from tests.broker.steps import StepMeter

AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}


async def started(nursery, *grants, **properties):
    machine = await Machine(nursery, **AUTHORIZER, **properties).start()
    await allow(machine, "Create Topic t", "Read Topic t", "Read Group g")
    client = await machine.connect()
    await client.create_topic("t")
    await client.ask(make("FindCoordinator", coordinator_keys=["g"]))
    await client.ask(make("OffsetCommit", group_id="g", generation_id_or_member_epoch=-1, topics=COMMITS))
    await forget(machine)
    await allow(machine, *grants)
    return machine, client


async def forget(machine):
    await machine.broker.authorization.delete([EVERYTHING])


async def allow(machine, *grants):
    await machine.broker.authorization.create([grant(each) for each in grants])


REFUSALS = {TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID}
# These leave out what the caller may not see, or need nothing; delegation tokens have checks of their own.
WITHOUT_REFUSAL = {16, 17, 18, 36, 38, 39, 40, 41, 60, 66}


def test_every_api_that_refuses_is_here():
    assert {request.API_KEY for request, *_ in NEEDS} == HANDLERS.keys() - WITHOUT_REFUSAL


@pytest.mark.parametrize(
    ("request_", "version", "needs", "code"),
    NEEDS,
    ids=[f"{type(request).__name__}{version or ''}-{needs[-1]}" for request, version, needs, _ in NEEDS],
)
async def test_a_request_needs_its_right_and_no_more(nursery, autojump_clock, request_, version, needs, code):
    machine, client = await started(nursery)
    assert codes_in(await client.ask(request_, version)) == {code}
    for missing in needs if len(needs) > 1 else ():
        await forget(machine)
        await allow(machine, *(each for each in needs if each != missing))
        assert codes_in(await client.ask(request_, version)) & REFUSALS
    await forget(machine)
    await allow(machine, *needs)
    assert not codes_in(await client.ask(request_, version)) & REFUSALS


async def test_a_deny_takes_a_right_away(nursery, autojump_clock):
    machine, client = await started(nursery, "Write Topic t")
    assert (await client.produce("t", b"x")).error_code == 0
    denied = grant("Write Topic *")
    await machine.broker.authorization.create([denied._replace(entry=denied.entry._replace(permission_type="Deny"))])
    assert (await client.produce("t", b"x")).error_code == TOPIC


async def test_another_host_has_no_right(nursery, autojump_clock):
    machine, _ = await started(nursery, "Write Topic t")
    client = await machine.connect(address="10.0.0.9")
    assert (await client.produce("t", b"x")).error_code == TOPIC


async def test_super_users_and_open_resources(nursery, autojump_clock):
    machine = await Machine(nursery, **AUTHORIZER, super_users="User:ANONYMOUS").start()
    await (await machine.connect()).create_topic("t")
    await machine.stop()
    await machine.start(super_users="", allow_everyone_if_no_acl_found="true")
    client = await machine.connect()
    assert (await client.produce("t", b"x")).error_code == 0
    await allow(machine, "Read Topic t")
    assert (await client.produce("t", b"x")).error_code == TOPIC


# -- the answers


async def test_an_unknown_topic_looks_like_one_that_must_not_be_described(nursery, autojump_clock):
    _, client = await started(nursery)
    answer = await client.ask(make("Metadata", topics=[{"name": "t"}, {"name": "none"}]))
    assert [(row.error_code, row.name, row.topic_id, row.partitions) for row in answer.topics] == [
        (TOPIC, name, bytes(16), []) for name in ("t", "none")
    ]


async def test_metadata_by_id_keeps_the_name_to_itself(nursery, autojump_clock):
    machine, client = await started(nursery)
    topic_id = machine.broker.metadata.topics["t"].topic_id
    (row,) = (await client.ask(make("Metadata", topics=[{"topic_id": topic_id, "name": None}]))).topics
    assert (row.error_code, row.name, row.topic_id) == (TOPIC, None, topic_id)


async def test_metadata_creates_a_topic_only_for_who_may(nursery, autojump_clock):
    machine, client = await started(nursery, "Describe Topic new")
    asked = make("Metadata", topics=[{"name": "new"}], allow_auto_topic_creation=True)
    assert codes_in(await client.ask(asked)) == {TOPIC}
    await allow(machine, "Create Topic new")
    assert codes_in(await client.ask(asked)) == {ErrorCode.LEADER_NOT_AVAILABLE}


async def test_all_topics_are_those_that_may_be_described_now(nursery, autojump_clock):
    machine, client = await started(nursery)
    asked = make("Metadata", topics=None, include_topic_authorized_operations=True)
    assert (await client.ask(asked)).topics == []
    await allow(machine, "Write Topic t")
    (row,) = (await client.ask(asked)).topics
    assert (row.name, row.topic_authorized_operations) == ("t", 1 << 4 | 1 << 8)
    await forget(machine)
    assert (await client.ask(asked)).topics == []


@pytest.mark.parametrize(
    "asked",
    [
        (make("Metadata", topics=[], include_cluster_authorized_operations=True), 10),
        (make("DescribeCluster", include_cluster_authorized_operations=True), 0),
    ],
)
async def test_operations_of_the_cluster_are_for_those_who_may_describe_it(nursery, autojump_clock, asked):
    machine, client = await started(nursery)
    assert (await client.ask(*asked)).cluster_authorized_operations == 0
    await allow(machine, "Alter Cluster")
    assert (await client.ask(*asked)).cluster_authorized_operations == 1 << 7 | 1 << 8


async def test_groups_are_listed_and_described_as_far_as_allowed(nursery, autojump_clock):
    machine, client = await started(nursery, "Read Group g", "Read Group h", "Read Topic t")
    for group in "gh":
        await client.ask(make("OffsetCommit", group_id=group, generation_id_or_member_epoch=-1, topics=COMMITS))
    await forget(machine)
    assert (await client.ask(make("ListGroups"))).groups == []
    await allow(machine, "Delete Group h")
    assert [row.group_id for row in (await client.ask(make("ListGroups"))).groups] == ["h"]
    described = (await client.ask(make("DescribeGroups", groups=["g", "h"], include_authorized_operations=True))).groups
    assert [(row.error_code, row.authorized_operations) for row in described] == [
        (GROUP, -(1 << 31)),
        (0, 1 << 6 | 1 << 8),
    ]
    await allow(machine, "Describe Cluster")
    assert len((await client.ask(make("ListGroups"))).groups) == 2


async def test_offsets_of_topics_that_must_not_be_described_are_left_out_or_refused(nursery, autojump_clock):
    machine, client = await started(nursery, "Read Group g", "Read Topic t")
    await client.ask(make("OffsetCommit", group_id="g", generation_id_or_member_epoch=-1, topics=COMMITS))
    await forget(machine)
    await allow(machine, "Describe Group g")
    every = await client.ask(make("OffsetFetch", groups=[{"group_id": "g", "topics": None}]))
    assert every.groups[0].topics == []
    named = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]
    assert codes_in(await client.ask(make("OffsetFetch", groups=named))) == {TOPIC}


async def test_one_answer_has_the_denied_the_unknown_and_the_good(nursery, autojump_clock):
    _, client = await started(nursery, "Describe Topic t", "Describe Topic none")
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in ("t", "none", "denied")
    ]
    answer = await client.ask(make("ListOffsets", topics=topics))
    assert [row.partitions[0].error_code for row in answer.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC]


async def test_a_created_topic_tells_its_configuration_only_to_who_may_see_it(nursery, autojump_clock):
    _, client = await started(nursery, "Create Topic u")
    topic = {"name": "u", "num_partitions": 1, "replication_factor": 1}
    rows = (await client.ask(make("CreateTopics", timeout_ms=10_000, topics=[topic, {**topic, "name": "v"}]))).topics
    assert [(row.error_code, row.error_message, row.topic_config_error_code, row.num_partitions) for row in rows] == [
        (0, None, TOPIC, -1),
        (TOPIC, "Authorization failed.", TOPIC, -1),
    ]
    assert all(not row.configs and row.topic_id == bytes(16) for row in rows)


async def test_a_topic_deleted_by_id_is_named_only_to_who_may_describe_it(nursery, autojump_clock):
    machine, client = await started(nursery)
    topic_id = machine.broker.metadata.topics["t"].topic_id
    by_id = make("DeleteTopics", timeout_ms=10_000, topics=[{"topic_id": topic_id, "name": None}])
    (row,) = (await client.ask(by_id)).responses
    assert (row.error_code, row.name) == (TOPIC, None)
    await allow(machine, "Describe Topic t")
    (row,) = (await client.ask(by_id)).responses
    assert (row.error_code, row.name) == (TOPIC, "t")
    await allow(machine, "Delete Topic t")
    (row,) = (await client.ask(by_id)).responses
    assert (row.error_code, row.name) == (0, "t")


async def test_messages_of_refusals_are_kafkas(nursery, autojump_clock):
    _, client = await started(nursery)
    assert (await client.ask(make("FindCoordinator", key="g"), 3)).error_message == "Group authorization failed."
    (found,) = (await client.ask(make("FindCoordinator", coordinator_keys=["g"]))).coordinators
    assert found.error_message == ""
    (grown,) = (await client.ask(make("CreatePartitions", topics=GROWN))).results
    assert grown.error_message == "The topic authorization is failed."
    (created,) = (await client.ask(make("CreateAcls", creations=[RULE]))).results
    assert created.error_message == "Cluster authorization failed."


async def test_a_refused_description_of_users_has_a_row_for_each(nursery, autojump_clock):
    _, client = await started(nursery)
    named = make("DescribeUserScramCredentials", users=[{"name": "a"}, {"name": "b"}])
    answer = await client.ask(named)
    assert (answer.error_code, answer.error_message) == (CLUSTER, None)
    rows = [(row.user, row.error_code, row.error_message, row.credential_infos) for row in answer.results]
    assert rows == [("", CLUSTER, None, [])] * 2
    assert (await client.ask(make("DescribeUserScramCredentials", users=None))).results == []


# -- ACLs


async def test_acls_are_created_described_and_deleted(nursery, autojump_clock):
    _, client = await started(nursery, "Alter Cluster")
    rules = [RULE, {**RULE, "operation": 4}, {**RULE, "resource_pattern_type": 4}, RULE]
    created = await client.ask(make("CreateAcls", creations=rules))
    assert [(row.error_code, row.error_message) for row in created.results] == [(0, "")] * 4
    described = await client.ask(make("DescribeAcls", **{**ANY_RULE, "resource_type_filter": 2}, pattern_type_filter=1))
    assert (described.error_code, described.error_message) == (0, "")
    found = {
        (row.resource_type, row.resource_name, row.pattern_type): sorted(each.operation for each in row.acls)
        for row in described.resources
    }
    assert found == {(2, "t", 3): [3, 4], (2, "t", 4): [3]}
    filters = [{**ANY_RULE, "operation": 4}, {**ANY_RULE, "resource_type_filter": 2, "pattern_type_filter": 1}]
    deleted = await client.ask(make("DeleteAcls", filters=filters))
    assert [[(each.operation, each.pattern_type) for each in row.matching_acls] for row in deleted.filter_results] == [
        [(4, 3)],
        [(3, 3), (3, 4)],
    ]
    assert [row.error_message for row in deleted.filter_results] == [None, None]


@pytest.mark.parametrize("version", range(4))
async def test_every_version_of_acl_requests(nursery, autojump_clock, version):
    _, client = await started(nursery, "Alter Cluster")
    assert codes_in(await client.ask(make("CreateAcls", creations=[RULE]), version)) == set()
    asked = {**ANY_RULE, "resource_type_filter": 2, "principal_filter": "User:a"}
    (row,) = (await client.ask(make("DescribeAcls", **asked), version)).resources
    assert (row.resource_name, row.pattern_type, len(row.acls)) == ("t", 3, 1)
    (row,) = (await client.ask(make("DeleteAcls", filters=[asked]), version)).filter_results
    assert [(each.principal, each.host, each.permission_type) for each in row.matching_acls] == [("User:a", "*", 3)]


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({"resource_type": 4}, (42, "The only valid name for the CLUSTER resource is kafka-cluster")),
        ({"resource_name": ""}, (42, "Invalid empty resource name")),
        ({"resource_type": 99}, (42, "Failed to create ACL")),
        ({"resource_pattern_type": 99}, (42, "Failed to create ACL")),
        ({"operation": 99}, (42, "Failed to create ACL")),
        ({"permission_type": 99}, (42, "Failed to create ACL")),
        ({"resource_name": "a/b"}, (42, "Failed to create ACL")),
        ({"principal": "alice"}, (-1, None)),
        ({"resource_name": "x" * 300}, (0, "")),
        ({"principal": "User:"}, (0, "")),
        ({"principal": "Team:a"}, (0, "")),
        ({"host": ""}, (0, "")),
        ({"operation": 9}, (0, "")),
        ({"resource_name": "*", "resource_pattern_type": 4}, (0, "")),
    ],
)
async def test_an_acl_that_cannot_be_created_fails_alone(nursery, autojump_clock, changed, outcome):
    _, client = await started(nursery, "Alter Cluster")
    rules = [{**RULE, "resource_name": "other"}, {**RULE, **changed}]
    created = await client.ask(make("CreateAcls", creations=rules))
    assert [(row.error_code, row.error_message) for row in created.results] == [(0, ""), outcome]


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type": 1},
        {"operation": 1},
        {"permission_type": 1},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
    ],
)
async def test_any_and_match_fail_all_acls_of_the_request(nursery, autojump_clock, changed):
    _, client = await started(nursery, "Alter Cluster")
    created = await client.ask(make("CreateAcls", creations=[RULE, {**RULE, **changed}]))
    assert [(row.error_code, row.error_message) for row in created.results] == [(-1, None)] * 2


async def test_numbers_without_a_meaning_find_nothing(nursery, autojump_clock):
    _, client = await started(nursery, "Alter Cluster")
    odd = {**ANY_RULE, "operation": 99}
    described = await client.ask(make("DescribeAcls", **odd))
    assert (described.error_code, described.resources) == (0, [])
    (row,) = (await client.ask(make("DeleteAcls", filters=[odd]))).filter_results
    assert (row.error_code, row.matching_acls) == (0, [])


# -- the broker itself, and the audit log


async def test_a_broker_serves_itself_without_any_right(nursery, autojump_clock):
    _, client = await started(nursery, "Create Topic own", "Write Topic own")
    # Creation takes requests of the controller to its own broker.
    await client.create_topic("own")
    assert (await client.produce("own", b"x")).error_code == 0


async def test_refusals_are_in_the_audit_log_and_names_cannot_forge_lines(nursery, autojump_clock, caplog):
    _, client = await started(nursery)
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        caplog.clear()
        await client.ask(make("Heartbeat", group_id="a\nPrincipal = User:x"))
        await client.ask(make("ListGroups"))
    lines = [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"]
    assert lines == [
        "Principal = User:ANONYMOUS is Denied Operation = Read from host = 127.0.0.1 on resource = "
        r"Group:LITERAL:a\nPrincipal = User:x for request = Heartbeat"
    ]


async def test_acls_survive_a_restart(nursery, autojump_clock):
    machine, _ = await started(nursery, "Write Topic t")
    await machine.stop()
    await machine.start()
    assert (await (await machine.connect()).produce("t", b"x")).error_code == 0


async def test_what_another_broker_writes_is_followed(nursery, autojump_clock):
    machine, client = await started(nursery)
    bound, store = grant("Write Topic t"), machine.session()
    await store.create(bound.pattern.node, encode_entries([bound.entry]))
    await store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
    await trio.sleep(1)
    assert (await client.produce("t", b"x")).error_code == 0
    await store.close()


async def test_filters_that_find_nothing_are_compared_in_short_steps(nursery, autojump_clock):
    machine, client = await started(nursery, "Alter Cluster")
    entries = frozenset([AccessControlEntry("User:other", "*", "Read", "Allow")])
    for number in range(1000):
        machine.broker.authorization.authorizer.replace(ResourcePattern("Topic", f"topic-{number}"), entries)
    asked = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1, "permission_type": 1}
    anyone = {"principal_filter": None, "host_filter": None}
    filters = [{**asked, **anyone, "resource_name_filter": f"none-{number}"} for number in range(20)]
    request = make("DeleteAcls", filters=filters)
    with StepMeter() as meter:
        await client.ask(request)
    meter.check()


async def test_many_entries_on_a_pattern_make_no_long_step(nursery, autojump_clock):
    machine, client = await started(nursery)
    entries = frozenset(AccessControlEntry(f"User:{number}", "*", "Read", "Allow") for number in range(1000))
    machine.broker.authorization.authorizer.replace(ResourcePattern("Topic", "*"), entries)
    topics = [{"name": f"n{number}", "partitions": [{"partition_index": 0, "timestamp": -1}]} for number in range(1000)]
    request = make("ListOffsets", topics=topics)
    with StepMeter() as meter:
        await client.ask(request)
    meter.check()


async def test_what_is_refused_is_one_line_of_the_audit_log_however_often_it_is_named(nursery, autojump_clock, caplog):
    caplog.set_level("INFO", "kafka.authorizer.logger")
    _, client = await started(nursery)
    caplog.clear()
    partitions = [{"partition": number, "partition_max_bytes": 100} for number in range(1000)]
    await client.ask(make("Fetch", max_wait_ms=0, replica_id=7, topics=[{"topic": "t", "partitions": partitions}]), 12)
    assert [each.name for each in caplog.records].count("kafka.authorizer.logger") == 1


@pytest.mark.parametrize("asked", ["DescribeAcls", "InitProducerId"])
async def test_many_patterns_make_no_long_step(nursery, autojump_clock, asked):
    """A description goes through all of them; whether a principal may write to any topic depends on its own."""
    machine, client = await started(nursery, "Describe Cluster")
    entries = frozenset([AccessControlEntry("User:other", "*", "Write", "Allow")])
    for number in range(10_000):
        machine.broker.authorization.authorizer.replace(ResourcePattern("Topic", f"topic-{number}"), entries)
    nothing = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1, "permission_type": 1}
    nothing |= {"resource_name_filter": "none", "principal_filter": None, "host_filter": None}
    request = make(asked, **(nothing if asked == "DescribeAcls" else {"transactional_id": None}))
    with StepMeter() as meter:
        answer = await client.ask(request)
    assert answer.error_code == (ErrorCode.NONE if asked == "DescribeAcls" else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    meter.check()
