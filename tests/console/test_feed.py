"""The live feed: what it sends when something changes, and that nothing is left when no browser looks."""

import gc
import json
import tracemalloc
from urllib.parse import quote

import trio

from barnabas.broker.call import ANONYMOUS, Call
from barnabas.broker.server.dispatch import answer
from barnabas.console.feed import FEEDS_MAX, SWEEP_SECONDS, TICK_SECONDS, TOPICS_MAX
from barnabas.world.net import ConnectionLost
from tests.broker.clusters import cluster, create_topic, until
from tests.broker.harness import with_topic
from tests.broker.requests import produce_request
from tests.console.page import Page, request_bytes


class Reader:
    """A browser's EventSource: the rows as the events make them."""

    def __init__(self, stream):
        self.stream = stream
        self.rows = {}
        self.events = []
        self.times = []
        self.comments = 0
        self.status = None
        self._text = ""

    async def read(self):
        while True:
            try:
                data = await self.stream.receive_some(1 << 16)
            except ConnectionLost:
                return
            if not data:
                return
            self._text += data.decode()
            self._take()

    def _take(self):
        if self.status is None and "\r\n\r\n" in self._text:
            head, _, self._text = self._text.partition("\r\n\r\n")
            self.status = int(head.split()[1])
        *blocks, self._text = self._text.split("\n\n")
        for block in blocks:
            lines = [line for line in block.replace("\r", "").split("\n") if line.startswith(("event", "data", ":"))]
            if lines and lines[-1].startswith(":"):
                self.comments += 1
            elif len(lines) == 2:
                self._happened(lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: ")))

    def _happened(self, name, value):
        self.events.append((name, value))
        self.times.append(trio.current_time())
        if name == "partitions":
            for row in value["rows"]:
                self.rows.setdefault((row["topic"], row["partition"]), {}).update(row)
            for key in value["gone"]:
                self.rows.pop(tuple(key), None)

    def named(self, name):
        return [value for each, value in self.events if each == name]


async def look(page, nursery, path):
    stream = await page.machine.net.connect("127.0.0.1", page.console.port)
    await stream.send_all(request_bytes(path))
    reader = Reader(stream)
    nursery.start_soon(reader.read)
    await until(lambda: reader.status is not None)
    return reader


async def one_page(nursery, partitions=1):
    machine, client = await with_topic(nursery, partitions)
    return await Page(machine).open(nursery), machine, client


async def test_a_feed_begins_with_all_and_sends_what_changes(nursery, autojump_clock):
    page, _, client = await one_page(nursery, 2)
    reader = await look(page, nursery, "/v1/feed?topics=t")
    await until(lambda: len(reader.rows) == 2)
    assert reader.rows["t", 0]["log_end_offset"] == 0
    assert reader.named("cluster")[0]["partitions"] == 2

    before = len(reader.events)
    await client.produce("t", b"one")
    await until(lambda: reader.rows["t", 0]["high_watermark"] == 1)
    (changed,) = reader.named("partitions")[1:]
    (row,) = changed["rows"]
    assert row.keys() == {"topic", "partition", "log_end_offset", "high_watermark", "last_stable_offset", "size_bytes"}
    assert len(reader.events) == before + 1


async def test_many_changes_make_at_most_ten_events_a_second(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    reader = await look(page, nursery, "/v1/feed?topics=t")
    await until(lambda: reader.rows)
    began = trio.current_time()
    for number in range(500):
        await client.produce("t", b"%d" % number)
        await trio.sleep(0.01)
    await until(lambda: reader.rows["t", 0]["log_end_offset"] == 500)
    seconds = trio.current_time() - began
    assert len(reader.named("partitions")) <= seconds / TICK_SECONDS + 2


async def test_a_new_leader_is_shown_as_soon_as_the_broker_knows_it(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [2, 1, 3])
        await until(lambda: all("t" in machine.broker.metadata.topics for machine in machines))
        page = await Page(machines[0]).open(nursery)
        reader = await look(page, nursery, "/v1/feed?topics=t")
        await until(lambda: reader.rows and reader.rows["t", 0]["leader"] == 2)
        epoch = reader.rows["t", 0]["leader_epoch"]

        await machines[1].crash()
        await until(lambda: machines[0].broker.metadata.partition("t", 0).leader_id == 1)
        knew = trio.current_time()
        await until(lambda: reader.rows["t", 0]["leader"] == 1)
        assert trio.current_time() - knew <= 0.2
        await until(lambda: reader.rows["t", 0]["isr"] == [1, 3])
        assert reader.rows["t", 0]["leader_epoch"] > epoch
        await until(lambda: len(reader.named("cluster")[-1]["brokers"]) == 2)
        reader.stream.close()


async def test_a_follower_that_reads_no_more_falls_behind_and_returns(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1, 2])
        await client.produce("t", b"zero")
        page = await Page(machines[0]).open(nursery)
        reader = await look(page, nursery, "/v1/feed?topics=t")
        await until(lambda: reader.rows and reader.rows["t", 0]["high_watermark"] == 1)

        # What broker 2 asks for is answered late: the one that it knows of stays where it was.
        machines[0].net.stop_reading(9092)
        own = produce_request("t", b"one", acks=1)
        # A request of a connection is writable memory.
        row = own.topic_data[0].partition_data[0]
        row.records = bytearray(row.records)
        call = Call(0, 11, "test", ANONYMOUS, "127.0.0.1", "PLAINTEXT")
        await answer(machines[0].broker, call, own)
        await until(lambda: reader.rows["t", 0]["log_end_offset"] == 2)
        await trio.sleep(3)
        (follower,) = reader.rows["t", 0]["followers"]
        assert (follower["broker"], follower["log_end_offset"]) == (2, 1)
        assert 2000 <= follower["behind_ms"] <= 4000
        assert reader.rows["t", 0]["high_watermark"] == 1

        machines[0].net.go_on_reading(9092)
        await until(lambda: reader.rows["t", 0]["followers"] == [{"broker": 2, "log_end_offset": 2, "behind_ms": 0}])
        assert reader.rows["t", 0]["high_watermark"] == 2
        reader.stream.close()


async def test_a_topic_that_is_deleted_is_gone_and_a_new_one_comes(nursery, autojump_clock):
    page, _, client = await one_page(nursery)
    reader = await look(page, nursery, "/v1/feed?topics=t,u")
    await until(lambda: ("t", 0) in reader.rows)
    await client.delete_topic("t")
    await until(lambda: ("t", 0) not in reader.rows)
    await client.create_topic("u")
    await until(lambda: ("u", 0) in reader.rows)


async def test_a_group_is_looked_at_once_a_second(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    reader = await look(page, nursery, "/v1/feed?groups=g")
    await until(lambda: reader.named("group"))
    assert reader.named("group") == [{"group": "g", "error": "there is no group 'g'"}]


async def test_a_group_whose_id_has_a_comma_is_one_group(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    quoted = quote(quote("a,b%2Fc", safe=""), safe="")
    reader = await look(page, nursery, f"/v1/feed?groups={quoted}")
    await until(lambda: reader.named("group"))
    assert [each["group"] for each in reader.named("group")] == ["a,b%2Fc"]


async def test_a_feed_of_too_many_topics_is_refused(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    names = ",".join(f"t{number}" for number in range(TOPICS_MAX + 1))
    assert await page.refused(f"/v1/feed?topics={names}") == (400, f"a feed has at most {TOPICS_MAX} topics")


async def test_when_nothing_happens_comments_show_who_has_left(nursery, autojump_clock):
    page, machine, _ = await one_page(nursery)
    reader = await look(page, nursery, "/v1/feed?topics=t")
    await trio.sleep(5 * SWEEP_SECONDS)
    assert reader.comments >= 3
    partition = machine.broker.replicas.get("t", 0)
    assert len(partition.waiters) == 1
    reader.stream.close()
    await trio.sleep(3 * SWEEP_SECONDS)
    assert partition.waiters == {}


async def test_without_a_browser_there_is_no_waiter_and_no_task(nursery, autojump_clock):
    page, machine, client = await one_page(nursery, 3)
    partitions = [machine.broker.replicas.get("t", index) for index in range(3)]
    await trio.sleep(5)
    tasks = trio.lowlevel.current_statistics().tasks_living
    readers = [await look(page, nursery, "/v1/feed?topics=t&groups=g") for _ in range(3)]
    await until(lambda: all(len(reader.rows) == 3 for reader in readers))
    assert all(len(partition.waiters) == 3 for partition in partitions)
    assert trio.lowlevel.current_statistics().tasks_living > tasks
    for reader in readers:
        reader.stream.close()
    await trio.sleep(5)
    assert all(partition.waiters == {} for partition in partitions)
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    await client.produce("t", b"one")


async def test_at_the_limit_of_feeds_the_next_one_hears_so(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    readers = [await look(page, nursery, "/v1/feed?topics=t") for _ in range(FEEDS_MAX)]
    status, said = await page.refused("/v1/feed?topics=t")
    assert (status, f"{FEEDS_MAX} feeds" in said) == (503, True)
    readers[0].stream.close()
    await trio.sleep(3 * SWEEP_SECONDS)
    again = await look(page, nursery, "/v1/feed?topics=t")
    assert again.status == 200


async def test_a_feed_ends_with_its_broker(nursery, autojump_clock):
    page, _, _ = await one_page(nursery)
    reader = await look(page, nursery, "/v1/feed?topics=t")
    page.life.broker = None
    await trio.sleep(2 * SWEEP_SECONDS)
    assert page.console._server.connection_count == 0
    assert reader.status == 200


MEMORY_BYTES_MAX = 5_000_000
LOOKED_AT = 100


async def test_a_feed_of_a_hundred_partitions_takes_little_memory(nursery, autojump_clock):
    page, _, client = await one_page(nursery, LOOKED_AT)
    tracemalloc.start()
    try:
        await trio.sleep(5)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        reader = await look(page, nursery, "/v1/feed?topics=t")
        await until(lambda: len(reader.rows) == LOOKED_AT)
        # The browser of this test, which is in the same process, is no part of the broker's memory.
        reader.events.clear()
        for number in range(5 * LOOKED_AT):
            await client.produce("t", b"one", number % LOOKED_AT)
            reader.events.clear()
        await trio.sleep(5)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before <= MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert sum(row["log_end_offset"] for row in reader.rows.values()) == 5 * LOOKED_AT
    reader.stream.close()
