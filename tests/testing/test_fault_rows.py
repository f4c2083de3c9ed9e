"""A fault for one row of a request: the row has the error, and the others are answered as without the fault."""

import pytest
import trio

from barnabas.testing.faults.row_cuts import layout_for, split, subjects_of
from barnabas.testing.faults.rows import LAYOUTS
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from tests.broker.requests import batch_of
from tests.testing.faulty import stage
from tests.testing.filled import filled_request

__all__ = ["stage"]

CODE = ErrorCode.KAFKA_STORAGE_ERROR
FETCH, METADATA, OFFSET_FETCH, FIND_COORDINATOR, OFFSET_DELETE = 1, 3, 9, 10, 47


LAYOUTS_OF_APIS = [(api_key, layout) for api_key, layouts in LAYOUTS.items() for layout in layouts]
IDS = [f"{APIS[key].name}-{layout.first_version}-{len(layout.request)}" for key, layout in LAYOUTS_OF_APIS]


def versions_of(api_key, layout):
    return range(layout.first_version, min(layout.last_version, APIS[api_key].max_version) + 1)


def rows_of(response, layout):
    """The rows of a response by their names: (topic, partition) and so on."""

    def below(element, levels):
        name = element if levels[0].key is None else getattr(element, levels[0].key)
        if not name and levels[0].id_key:
            name = bytes(getattr(element, levels[0].id_key))
        if len(levels) == 1:
            return {(name,): element}
        inner = getattr(element, levels[1].field)
        return {(name, *names): row for each in inner for names, row in below(each, levels[1:]).items()}

    top = layout.response[0].field
    return {names: row for element in getattr(response, top) for names, row in below(element, layout.response).items()}


async def await_coordinator(stage, key, key_type=0):
    """Ask until there is one. The first request creates the internal topic, and waits for its leaders half a second."""
    asked = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while (await stage.client.ask(asked)).coordinators[0].error_code:
        await trio.sleep(0.1)


async def commit(stage, group, *topics):
    """Commit offset 5 of partition 0 of these topics."""
    await await_coordinator(stage, group)
    committed = m.OffsetCommitRequest.OffsetCommitRequestPartition
    rows = [
        m.OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name, partitions=[committed(partition_index=0, committed_offset=5)]
        )
        for name in topics
    ]
    await stage.client.ask(m.OffsetCommitRequest(group_id=group, topics=rows), 8)


def error_of(row):
    return row.partition_error_code if hasattr(row, "partition_error_code") else row.error_code


async def request_for(stage, api_key, version, layout):
    """A request with several rows, some of which the broker can carry out, and what names the first row."""
    request = filled_request(api_key, version)
    for name, value in {"acks": -1, "replica_id": -1, "key_type": 0, "session_id": 0, "session_epoch": -1}.items():
        if name in request.FIELDS:
            setattr(request, name, value)
    if api_key == FIND_COORDINATOR:
        request.key_type = 1 if layout.subjects == {"transactional_id"} else 0
        await await_coordinator(stage, "x", request.key_type)
    for resource in getattr(request, "resources", ()):
        resource.resource_type = 2
    # Topics that exist: the first request for others creates them.
    if api_key == METADATA:
        request.topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "u")]
    if api_key in (OFFSET_FETCH, OFFSET_DELETE):
        has_groups = api_key == OFFSET_FETCH and version >= 8
        for group in [each.group_id for each in request.groups] if has_groups else [request.group_id]:
            await commit(stage, group, "t")
    if api_key == FETCH and version >= 13:
        ids = [(await stage.client.create_topic(name), name) for name in (f"a{version}", f"b{version}")]
        for topic, (topic_id, _) in zip(request.topics, ids, strict=True):
            topic.topic_id = topic_id
    for topic in getattr(request, "topic_data", ()):
        for data in topic.partition_data:
            data.records = batch_of(b"v")
    return request


def first_row(stage, request, layout):
    """The matchers that name the first row of a request, and the names of that row."""
    wanted, names, element = {}, [], None
    for depth, level in enumerate(layout.request):
        element = getattr(request if depth == 0 else element, level.field)[0]
        name = element if level.key is None else getattr(element, level.key)
        names.append(name)
        if level.id_key and not name:
            names[-1] = bytes(element.topic_id)
            name = stage.machine.broker.metadata.topic_name(bytes(element.topic_id))
        wanted[level.subject] = name
    return wanted, tuple(names)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("api_key", "layout"), LAYOUTS_OF_APIS, ids=IDS)
async def test_one_row_fails_and_the_others_are_as_without_the_fault(stage, api_key, layout, after):
    for version in versions_of(api_key, layout):
        request = await request_for(stage, api_key, version, layout)
        wanted, names = first_row(stage, request, layout)
        plain = rows_of(await stage.client.ask(request, version), layout)
        with stage.faults.fail(api_key, CODE, after=after, **wanted) as fault:
            failed = rows_of(await stage.client.ask(request, version), layout)
        assert fault.fired == 1
        assert failed.keys() == plain.keys()
        assert len(failed) > 1
        assert error_of(failed[names]) == CODE
        for other in failed.keys() - {names}:
            assert error_of(failed[other]) == error_of(plain[other])


@pytest.mark.parametrize(("api_key", "layout"), LAYOUTS_OF_APIS, ids=IDS)
def test_a_request_is_split_without_loss(api_key, layout):
    version = versions_of(api_key, layout)[-1]
    request = filled_request(api_key, version)
    if api_key == FIND_COORDINATOR:
        request.key_type = 0 if "group" in layout.subjects else 1
    for resource in getattr(request, "resources", ()):
        resource.resource_type = 2
    last = request
    for level in layout.request:
        last = getattr(last, level.field)[-1]
    key = layout.request[-1].key
    name = (last if key is None else getattr(last, key)) or "its id"
    found = split(request, layout, {layout.request[-1].subject: name}, {last_id(last): "its id"}.get)
    assert count_rows(found.wanted, layout) == 1
    assert count_rows(found.wanted, layout) + count_rows(found.others, layout) == count_rows(request, layout)
    assert layout_for(request, api_key, version, layout.subjects).request == layout.request


def last_id(element):
    return bytes(getattr(element, "topic_id", b""))


def count_rows(element, layout, depth=0):
    """How many rows a request has."""
    inner = getattr(element, layout.request[depth].field)
    if depth + 1 == len(layout.request):
        return len(inner)
    return sum(count_rows(each, layout, depth + 1) for each in inner)


async def test_offsets_of_one_topic_cannot_be_read_by_one_who_asks_for_all(stage):
    await commit(stage, "g", "t", "u")
    stage.faults.fail("OffsetFetch", CODE, group="g", topic="t")
    every = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    old = await stage.client.ask(m.OffsetFetchRequest(group_id="g", topics=None), 7)
    new = await stage.client.ask(m.OffsetFetchRequest(groups=[every]), 8)
    for topics in (old.topics, new.groups[0].topics):
        found = {topic.name: topic.partitions[0] for topic in topics}
        assert {name: row.error_code for name, row in found.items()} == {"t": CODE, "u": 0}
        assert (found["t"].committed_offset, found["u"].committed_offset) == (-1, 5)


def test_what_each_api_can_be_narrowed_by():
    named = {api.name: sorted(subjects_of(api.key)) for api in APIS.values() if api.served}
    assert named["Produce"] == ["partition", "topic", "transactional_id"]
    assert named["OffsetFetch"] == ["group", "partition", "topic"]
    assert named["JoinGroup"] == ["group"]
    assert named["DescribeConfigs"] == ["topic"]
    assert named["ListGroups"] == []
