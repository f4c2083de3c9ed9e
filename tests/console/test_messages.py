"""Records on the page: where they are read, how bytes are shown, and that a download loses none of them."""

import base64
import json
import os
from urllib.parse import quote

import pytest
import trio

from barnabas.console.decoding import (
    HEADER_BYTES_MAX,
    SHOWN_BYTES_MAX,
    Found,
    lines_of,
    shown_bytes,
    shown_record,
)
from barnabas.wire.compression import Codec
from barnabas.wire.record_reader import Record
from barnabas.wire.record_writer import build_batch
from tests.broker.clusters import cluster, create_topic, until
from tests.broker.harness import with_topic
from tests.broker.requests import batch_of
from tests.broker.writers import Writer
from tests.console.page import END_OF_CHUNKS, Page, read_to_the_end, request_bytes

NO_TEXT = b"\xff\xfe\x00klamm"


async def one_page(nursery, partitions=1, **properties):
    machine, client = await with_topic(nursery, partitions, properties=properties)
    return await Page(machine).open(nursery), machine, client


def values_of(page):
    return [each["value"]["text"] for each in page["records"]]


@pytest.mark.parametrize("codec", list(Codec))
async def test_records_of_every_codec_are_shown(nursery, autojump_clock, codec):
    page, _, client = await one_page(nursery)
    await client.produce("t", batch_of(b"one", b"two", key=b"k", codec=codec))
    shown = await page.get("/v1/topics/t/records?offset=0&partition=0")
    assert values_of(shown) == ["one", "two"]
    assert [each["codec"] for each in shown["records"]] == [codec.name.lower()] * 2
    assert shown["records"][0]["key"] == {"size": 1, "text": "k"}
    assert (shown["next"], shown["problems"]) == ("0:2", {})


async def test_reading_begins_by_offset_time_or_at_the_newest(nursery, autojump_clock):
    page, machine, client = await one_page(nursery)
    times = []
    for number in range(10):
        times.append(machine.broker.world.now_ms())
        await client.produce("t", batch_of(b"%d" % number))
        await trio.sleep(60)
    path = "/v1/topics/t/records?"
    assert values_of(await page.get(f"{path}partition=0&offset=7")) == ["7", "8", "9"]
    assert values_of(await page.get(f"{path}partition=0&offset=99")) == []
    assert values_of(await page.get(f"{path}newest=2")) == ["8", "9"]
    assert values_of(await page.get(f"{path}time={times[4]}")) == ["4", "5", "6", "7", "8", "9"]
    assert values_of(await page.get(f"{path}time={times[9] + 3_600_000}")) == []
    shown = await page.get(f"{path}partition=0&offset=2&count=3")
    assert (values_of(shown), shown["next"]) == (["2", "3", "4"], "0:5")
    shown = await page.get(f"{path}from={shown['next']}&count=3")
    assert values_of(shown) == ["5", "6", "7"]


async def test_pages_of_several_partitions_show_each_record_once(nursery, autojump_clock):
    page, _, client = await one_page(nursery, 3)
    for number in range(60):
        await client.produce("t", b"%d" % number, number % 3)
        await trio.sleep(1)
    seen = []
    place = "time=0"
    for _ in range(20):
        shown = await page.get(f"/v1/topics/t/records?{place}&count=7")
        assert len(shown["records"]) <= 7
        seen += values_of(shown)
        place = f"from={shown['next']}"
        if not shown["records"]:
            break
    assert seen == [str(number) for number in range(60)]


async def test_timestamps_that_go_back_do_not_stop_the_pages(nursery, autojump_clock):
    page, machine, client = await one_page(nursery, 2)
    now = machine.broker.world.now_ms()
    records = [Record(0, now - number * 1000, None, b"%d" % number, []) for number in range(30)]
    await client.produce("t", batch_of_records(records, now))
    await client.produce("t", batch_of(b"other"), 1)
    seen = []
    place = "time=0"
    for _ in range(20):
        shown = await page.get(f"/v1/topics/t/records?{place}&count=7")
        seen += values_of(shown)
        place = f"from={shown['next']}"
    assert sorted(seen) == sorted([*(str(number) for number in range(30)), "other"])


def batch_of_records(records, now):
    return bytearray(build_batch(records, timestamp_ms=now).data)


async def test_the_tail_waits_for_records_and_loses_none(nursery, autojump_clock):
    page, _, client = await one_page(nursery, 2)

    async def produce():
        for number in range(200):
            await client.produce("t", b"%d" % number, number % 2)
            await trio.sleep(0.05)

    nursery.start_soon(produce)
    seen = []
    place = "newest=1"
    while len(seen) < 200:
        shown = await page.get(f"/v1/topics/t/records?{place}&wait_ms=1000&count=500")
        seen += values_of(shown)
        place = f"from={shown['next']}"
    assert sorted(seen, key=int) == [str(number) for number in range(200)]


async def test_the_newest_do_not_wait_so_that_a_tail_misses_none(nursery, autojump_clock):
    page, _, client = await one_page(nursery)

    async def produce():
        await trio.sleep(0.5)
        await client.produce("t", batch_of(*(b"%d" % number for number in range(50))))

    nursery.start_soon(produce)
    shown = await page.get("/v1/topics/t/records?newest=20&wait_ms=1000")
    assert (shown["records"], shown["next"]) == ([], "0:0")
    shown = await page.get(f"/v1/topics/t/records?from={shown['next']}&wait_ms=1000")
    assert len(shown["records"]) == 50


async def test_the_newest_of_long_records_are_the_last_ones(nursery, autojump_clock):
    page, _, client = await one_page(nursery, 2)
    for number in range(60):
        records = [(b"%d" % number, bytes(400_000))]
        await client.produce("t", batch_of_records(records, number), number % 2)
    shown = await page.get("/v1/topics/t/records?newest=50")
    keys = [int(each["key"]["text"]) for each in shown["records"]]
    assert keys == list(range(60 - len(keys), 60))
    assert len(keys) >= 5
    assert shown["next"] == "0:30,1:30"


async def test_a_tail_goes_on_in_a_topic_that_was_created_again(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    for number in range(3):
        await client.produce("t", b"old %d" % number)
    place = (await page.get("/v1/topics/t/records?newest=50"))["next"]
    await client.delete_topic("t")
    await client.create_topic("t")
    await client.produce("t", b"new")
    shown = await page.get(f"/v1/topics/t/records?from={place}&wait_ms=100")
    assert (shown["records"], shown["problems"]) == ([], {"0": "OFFSET_OUT_OF_RANGE"})
    shown = await page.get(f"/v1/topics/t/records?from={shown['next']}&wait_ms=100")
    assert (values_of(shown), shown["problems"]) == (["new"], {})


async def test_a_transaction_shows_what_became_of_it(nursery, autojump_clock):
    page, machine, _ = await one_page(nursery, transaction_state_log_num_partitions="1")
    writer = Writer((machine,), "clerk")
    await writer.init()
    await writer.transaction({("t", 0): b"kept"}, commit=True)
    await writer.completed()
    await writer.transaction({("t", 0): b"dropped"}, commit=False)
    await writer.completed()
    await writer.add(("t", 0))
    await writer.write("t", b"waiting")
    shown = await page.get("/v1/topics/t/records?offset=0&partition=0")
    found = [(each.get("is_marker", False) or each["value"]["text"], each["transaction"]) for each in shown["records"]]
    assert found == [
        ("kept", "committed"),
        (True, "committed"),
        ("dropped", "aborted"),
        (True, "aborted"),
        ("waiting", "open"),
    ]


async def test_a_long_value_is_cut_on_the_page_and_whole_by_its_address(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    value = "ä".encode() * 20_000 + NO_TEXT
    await client.produce("t", batch_of(b"first", value, key=b"k"))
    shown = (await page.get("/v1/topics/t/records?offset=1&partition=0"))["records"][0]["value"]
    assert (shown["size"], shown["is_cut"], len(shown["text"].encode())) == (len(value), True, SHOWN_BYTES_MAX)
    status, headers, body = await page.ask("/v1/topics/t/records/0/1/value")
    assert (status, body) == (200, value)
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == 'attachment; filename="t-0-1.value"'
    assert (await page.ask("/v1/topics/t/records/0/1/key"))[2] == b"k"


async def test_a_null_value_is_null(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    await client.produce("t", batch_of(None, key=b"k"))
    assert (await page.get("/v1/topics/t/records?newest=1"))["records"][0]["value"] is None
    assert (await page.refused("/v1/topics/t/records/0/0/value"))[0] == 404


async def test_a_download_has_every_byte_of_every_record(nursery, autojump_clock):
    page, _, client = await one_page(nursery, 2)
    values = [b"%d" % number + NO_TEXT * (number % 5) for number in range(2000)]
    for start in range(0, 2000, 250):
        await client.produce("t", batch_of(*values[start : start + 250], codec=Codec.GZIP), (start // 250) % 2)
    status, headers, body = await page.ask("/v1/topics/t/download?time=0")
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    assert headers["content-disposition"] == 'attachment; filename="t.jsonl"'
    found = [json.loads(line) for line in body.splitlines()]
    assert sorted(bytes_in(line["value"]) for line in found) == sorted(values)
    assert len({(line["partition"], line["offset"]) for line in found}) == 2000
    _, _, body = await page.ask("/v1/topics/t/download?partition=1&offset=0&count=3")
    assert [json.loads(line)["offset"] for line in body.splitlines()] == [0, 1, 2]


def bytes_in(value):
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()


@pytest.mark.parametrize(
    "query",
    [
        "partition=0&offset=" + "0" * 25 + "9" * 30,
        "from=0:" + "9" * 5000,
        "from=" + "9" * 5000 + ":0",
        "from=0:\u0663",
        "newest=" + "9" * 5000,
        "time=" + "9" * 19,
    ],
)
async def test_a_number_that_no_offset_can_be_is_said(nursery, autojump_clock, query):
    page, _, _ = await one_page(nursery)
    status, said = await page.refused(f"/v1/topics/t/records?{quote(query, safe='=&:')}")
    assert (status, "expected" in said) == (400, True)


async def test_leading_zeros_change_no_number(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    await client.produce("t", batch_of(b"one", b"two"))
    assert values_of(await page.get(f"/v1/topics/t/records?partition=0&offset={'0' * 5000}1")) == ["two"]


async def test_a_partition_without_a_leader_is_not_left_out_of_a_download(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1], [2])
        await until(lambda: all("t" in machine.broker.metadata.topics for machine in machines))
        page = await Page(machines[0]).open(nursery)
        await machines[1].crash()
        await until(lambda: machines[0].broker.metadata.leader_of("t", 1) is None)
        status, said = await page.refused("/v1/topics/t/download?time=0")
        assert (status, said) == (503, "partition 1 of topic 't' has no leader that answers")
        assert (await page.ask("/v1/topics/t/download?partition=0&offset=0"))[0] == 200


async def test_a_partition_without_a_leader_is_said_to_be_missing(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1], [2])
        await until(lambda: all("t" in machine.broker.metadata.topics for machine in machines))
        page = await Page(machines[0]).open(nursery)
        await machines[1].crash()
        await until(lambda: machines[0].broker.metadata.leader_of("t", 1) is None)
        shown = await page.get("/v1/topics/t/records?newest=50")
        assert (shown["next"], shown["problems"]) == ("0:0", {"1": "its leader does not answer"})


async def test_a_download_that_cannot_go_on_is_cut_off(nursery, autojump_clock, caplog):
    page, _, client = await one_page(nursery)
    value = os.urandom(1 << 18)
    for _ in range(8):
        await client.produce("t", batch_of(value))
    stream = await page.machine.net.connect("127.0.0.1", page.console.port)
    await stream.send_all(request_bytes("/v1/topics/t/download?time=0"))
    heard = await stream.receive_some(1)
    await client.delete_topic("t")
    heard += await read_to_the_end(stream)
    assert heard.startswith(b"HTTP/1.1 200")
    assert not heard.endswith(END_OF_CHUNKS)
    assert "the download of t-0 ends early" in caplog.text


def test_headers_that_are_long_or_many_are_cut():
    headers = [("n" * 10_000, b"v" * 10_000)] * 1000
    row = shown_record(0, Found(None, Record(7, 1000, None, None, headers), None))
    assert len(json.dumps(row)) <= 100 * 3 * HEADER_BYTES_MAX
    assert row["header_count"] == 1000
    assert row["headers"][0][1] == {"size": 10_000, "is_cut": True, "text": "v" * HEADER_BYTES_MAX}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, None),
        (b"", {"size": 0, "text": ""}),
        ("käfig\n".encode(), {"size": 7, "text": "käfig\n"}),
        (b"\xff", {"size": 1, "hex": "ff"}),
        (b"a\x1bb", {"size": 3, "hex": "611b62"}),
        (b"\x00\x00\x00\x00\x11{}", {"size": 7, "schema_id": 17, "hex": "00000000117b7d"}),
        (b"<script>", {"size": 8, "text": "<script>"}),
    ],
)
def test_bytes_are_text_or_digits(data, expected):
    assert shown_bytes(data) == expected


def test_headers_and_null_survive_in_lines():
    record = Record(7, 1000, None, b"\xff", [("a", None), ("b", b"\x00"), ("c", b"\xfe")])
    (line,) = lines_of("t", 3, [Found(None, record, None)])
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 1000,
        "key": None,
        "value": {"base64": "/w=="},
        "headers": [["a", None], ["b", "\x00"], ["c", {"base64": "/g=="}]],
    }
