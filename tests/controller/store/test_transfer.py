"""Nodes from one store to another: what goes, what stays, and the text on the way."""

import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.store import paths
from barnabas.controller.store.sqlitestore import open_sqlite_database
from barnabas.controller.store.store import Create, DataTooLarge, NodeExists, NoParent, with_ancestors
from barnabas.controller.store.transfer import (
    ExportMalformed,
    Node,
    StoreNotEmpty,
    format_nodes,
    parse_nodes,
    read_nodes,
    write_nodes,
)

NOW_MS = 1_700_000_000_000


async def inline(function, *args):
    await trio.lowlevel.checkpoint()
    return function(*args)


@pytest.fixture
async def make_store():
    """Make empty stores."""
    opened = []

    async def make():
        database = await open_sqlite_database(":memory:", inline, lambda: NOW_MS)
        opened.append(database.session())
        return opened[-1]

    yield make
    for store in opened:
        await store.close()


async def with_nodes(store, **data: bytes | None):
    """Nodes by their paths, with double underscores for slashes, and their parents."""
    wanted = {"/" + path.replace("__", "/"): content for path, content in data.items()}
    await store.batch([Create(path, wanted.get(path)) for path in with_ancestors(wanted)])
    return store


async def test_every_persistent_node_arrives_with_its_data(make_store):
    store = await with_nodes(await make_store(), a__b=b'{"k":1}', a__c=None, d=b"", e=b"\xff\x00")
    nodes = await read_nodes(store)
    other = await make_store()
    await write_nodes(other, parse_nodes(format_nodes(nodes)))
    assert await read_nodes(other) == nodes
    assert {node.path: node.data for node in nodes} == {
        "/a": None,
        "/a/b": b'{"k":1}',
        "/a/c": None,
        "/d": b"",
        "/e": b"\xff\x00",
    }


async def test_what_belongs_to_a_process_stays_behind(make_store):
    store = await with_nodes(await make_store(), brokers__ids=None)
    await store.create("/brokers/ids/1", b"{}", ephemeral=True)
    await store.create("/controller", b"{}", ephemeral=True)
    assert [node.path for node in await read_nodes(store)] == ["/brokers", "/brokers/ids"]


async def test_notifications_and_zookeepers_own_nodes_stay_behind(make_store):
    store = await with_nodes(await make_store(), config__changes=None, isr_change_notification=None, zookeeper__a=None)
    await store.create(paths.CONFIG_CHANGE_PREFIX, b"{}", sequential=True)
    await store.create(paths.ISR_CHANGE_PREFIX, b"{}", sequential=True)
    assert [node.path for node in await read_nodes(store)] == ["/config", "/config/changes", "/isr_change_notification"]


async def test_a_generated_broker_id_is_not_generated_again(make_store):
    store = await with_nodes(await make_store(), brokers__seqid=None)
    for _ in range(3):
        await store.set(paths.BROKER_SEQUENCE, b"")
    other = await make_store()
    await write_nodes(other, await read_nodes(store))
    assert (await other.set(paths.BROKER_SEQUENCE, b"")).version == 4


async def test_only_an_empty_store_is_filled(make_store):
    store = await with_nodes(await make_store(), zookeeper=None, old=None)
    with pytest.raises(StoreNotEmpty, match="it holds /old"):
        await write_nodes(store, [Node("/new", None)])
    assert await store.children("/") == ["old", "zookeeper"]


async def test_zookeepers_own_nodes_do_not_count(make_store):
    store = await with_nodes(await make_store(), zookeeper=None)
    await write_nodes(store, [Node("/new", None)])
    assert await store.children("/") == ["new", "zookeeper"]


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        ([Node("/a/b", None)], NoParent),
        ([Node("/a", None), Node("/a", None)], NodeExists),
        ([Node("/a", bytes(1_000_001))], DataTooLarge),
    ],
)
async def test_what_a_store_refuses_ends_the_import_before_the_cluster_has_its_id(make_store, nodes, error):
    store = await make_store()
    with pytest.raises(error):
        await write_nodes(store, [Node("/cluster", None), Node(paths.CLUSTER_ID, b"{}"), *nodes])
    assert await store.exists("/cluster") is not None
    assert await store.exists(paths.CLUSTER_ID) is None


async def test_thousands_of_nodes_are_carried(make_store):
    nodes = [Node("/a", None), *(Node(f"/a/{number:05d}", b"%d" % number) for number in range(3000))]
    store = await make_store()
    await write_nodes(store, nodes)
    assert await read_nodes(store) == nodes


def test_an_export_is_one_node_a_line_and_shows_json_as_json():
    text = format_nodes(
        [Node("/a", None), Node("/b", b'{"version":1,"id":"\xc3\xa4"}'), Node("/c", b"7"), Node("/d", b"\xff")]
    )
    assert text.splitlines() == [
        '{"format": 1, "nodes": [',
        '{"path": "/a"},',
        '{"path": "/b", "json": {"version": 1, "id": "ä"}},',
        '{"path": "/c", "text": "7"},',
        '{"path": "/d", "base64": "/w=="}',
        "]}",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}',
        b'{"a":1,"a":2}',
        b'{"a":1.0e5}',
        b'{"a":1}\n',
        b"[1]",
        b"null",
        b'"x"',
        b"",
        b'{"a":"\\u00e4"}',
        b"{",
    ],
)
def test_data_that_json_would_not_give_back_byte_for_byte_travel_as_text(data):
    text = format_nodes([Node("/a", data)])
    assert json.loads(text)["nodes"] == [{"path": "/a", "text": data.decode()}]
    assert parse_nodes(text) == [Node("/a", data)]


@given(st.binary() | st.text().map(str.encode) | st.none())
def test_any_data_come_back_as_they_were(data):
    assert parse_nodes(format_nodes([Node("/a", data)])) == [Node("/a", data)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[]", 'must say "format": 1'),
        ('{"format": 2, "nodes": []}', 'must say "format": 1'),
        ('{"format": 1}', '"nodes" is not a list'),
        ('{"format": 1, "nodes": [{}]}', 'node 0 has no "path"'),
        ('{"format": 1, "nodes": ["/a"]}', 'node 0 has no "path"'),
        ('{"format": 1, "nodes": [{"path": "a"}]}', "node 0, a: 'a' is not the path of a node"),
        ('{"format": 1, "nodes": [{"path": "/a", "version": -1}]}', "the version -1 is not one of"),
        ('{"format": 1, "nodes": [{"path": "/a", "version": 100001}]}', "the version 100001 is not one of"),
        ('{"format": 1, "nodes": [{"path": "/a", "version": "1"}]}', "the version '1' is not one of"),
        ('{"format": 1, "nodes": [{"path": "/a", "text": "", "json": {}}]}', "as json and as text"),
        ('{"format": 1, "nodes": [{"path": "/a", "text": 7}]}', '"text" is not a string'),
        ('{"format": 1, "nodes": [{"path": "/a", "text": "\\ud800"}]}', "surrogates not allowed"),
        ('{"format": 1, "nodes": [{"path": "/a", "json": {"a": "\\ud800"}}]}', "surrogates not allowed"),
        ('{"format": 1, "nodes": [{"path": "/a", "base64": "="}]}', "node 0, /a: "),
    ],
)
def test_what_is_no_export_is_refused_with_the_place(text, reason):
    with pytest.raises(ExportMalformed) as caught:
        parse_nodes(text)
    assert reason in str(caught.value)
