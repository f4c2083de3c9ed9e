"""The page in Debian's Chromium, beside what kafka-python's admin says of the same cluster."""

import json
import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.admin import KafkaAdminClient

from compat_tests.readable import PHONE, poor_contrasts
from tests.console.live_cluster import PagedCluster, paged_cluster

playwright = pytest.importorskip("playwright.sync_api", reason="the extra `dev` installs it")

TOPICS = {f"topic-{number}": (number % 3 + 1, number % 2 + 2) for number in range(19)} | {"orders": (4, 3)}
GROUPS = [f"group-{number}" for number in range(10)]
RECORDS = 400
TAILED = 100_000
HOSTILE = '<script>document.title = "taken"</script><img src=x onerror="document.title=1">'
LEADER_SECONDS_MAX = 0.5  # 200 ms after the broker knows, and what the test takes to look


@pytest.fixture(scope="module")
def cluster() -> Iterator[PagedCluster]:
    with paged_cluster(3, topics=TOPICS) as started:
        produce(started, "orders", RECORDS)
        for name in GROUPS:
            commit(started, name)
        yield started


def produce(cluster: PagedCluster, topic: str, count: int, **config) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **config})
    for number in range(count):
        producer.produce(topic, json.dumps({"number": number}), key=str(number))
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def commit(cluster: PagedCluster, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition("orders", index, index + 1) for index in range(4)], asynchronous=False)
    consumer.close()


@pytest.fixture
def page(browser, cluster):
    opened = browser.new_page(viewport={"width": 1180, "height": 900})
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield opened
    opened.close()
    assert [each for each in problems if "ERR_" not in each] == []


def numbers(text: str) -> list[int]:
    return [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", text)]


def cells(page, label: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    page.locator(f'[aria-label="{label}"] tbody tr').first.wait_for()
    rows = page.locator(f'[aria-label="{label}"] tbody tr').evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.innerText.trim()))"
    )
    return {row[0]: row for row in rows}


def test_each_number_is_the_one_that_the_admin_client_says(page, cluster):
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    described = {each["name"]: each for each in admin.describe_topics()}
    page.goto(cluster.pages[1])
    page.locator("#partitions").wait_for()
    assert numbers(page.locator("#brokers").inner_text()) == [3]
    assert numbers(page.locator("#topics").inner_text()) == [len(described)]
    assert numbers(page.locator("#partitions").inner_text()) == [
        sum(len(each["partitions"]) for each in described.values())
    ]

    page.goto(cluster.pages[1] + "#/topics")
    shown = cells(page, "topics")
    assert shown.keys() == described.keys()
    for name, topic in described.items():
        assert numbers(shown[name][1]) == [len(topic["partitions"])], name
    assert numbers(shown["orders"][3]) == [RECORDS]

    page.goto(cluster.pages[1] + "#/topics/orders")
    for partition in described["orders"]["partitions"]:
        place = page.locator(f'section[aria-label="partition {partition["partition_index"]}"]')
        assert numbers(place.locator(".leader").inner_text()) == [partition["leader_id"]]
        assert numbers(place.locator(".isr").inner_text()) == list(partition["isr_nodes"])

    page.goto(cluster.pages[1] + "#/groups")
    assert sorted(cells(page, "groups")) >= GROUPS
    page.goto(cluster.pages[1] + "#/groups/group-3")
    shown = cells(page, "lag by partition")
    assert [numbers(shown[str(index)][1]) for index in range(4)] == [[1], [2], [3], [4]]
    assert numbers(page.locator("#lag").inner_text()) == [RECORDS - 10]
    admin.close()


def test_what_records_contain_is_text(page, cluster):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("topic-0", HOSTILE, key=HOSTILE, headers={HOSTILE: HOSTILE})
    producer.flush()
    page.goto(cluster.pages[1] + "#/topics/topic-0/messages")
    page.locator(".records .fold").first.click()
    assert HOSTILE in page.locator(".details pre").first.inner_text()
    assert page.locator("main script, main img").count() == 0
    assert "taken" not in page.title()


def test_a_leader_that_is_killed_is_seen_with_its_epoch_and_isr(page, cluster):
    victim = next(index for index in range(4) if cluster.leader("orders", index) != 1)
    killed = cluster.leader("orders", victim)
    page.goto(cluster.pages[1] + "#/topics/orders")
    place = page.locator(f'section[aria-label="partition {victim}"]')
    epoch = numbers(place.locator(".epoch").inner_text())[0]
    try:
        cluster.kill(killed)
        began = time.monotonic()
        while cluster.leader("orders", victim) == killed:
            assert time.monotonic() - began < 30
        knew = time.monotonic()
        leader = cluster.leader("orders", victim)
        playwright.expect(place.locator(".leader")).to_have_text(str(leader))
        assert time.monotonic() - knew <= LEADER_SECONDS_MAX
        assert numbers(place.locator(".epoch").inner_text())[0] > epoch
        playwright.expect(place.locator(".bad").first).to_have_text(f"{killed} out of sync")
    finally:
        cluster.restart(killed)
        cluster.recover()
    playwright.expect(place.locator(".isr")).to_contain_text(str(killed))


@pytest.mark.long
def test_the_tail_shows_a_hundred_thousand_records_once(page, cluster):
    page.goto(cluster.pages[1] + "#/topics/topic-1/messages")
    page.locator('select[name="mode"]').select_option("tail")
    page.locator("#tailed").wait_for()
    produce(cluster, "topic-1", TAILED, **{"linger.ms": 20})
    playwright.expect(page.locator("#tailed")).to_have_text(f"{TAILED:,}", timeout=120_000)


VIEWS = ["", "topics", "topics/orders", "topics/orders/messages", "groups", "groups/group-1", "transactions", "access"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_and_a_phone_shows_all(browser, cluster, scheme):
    page = browser.new_page(viewport=PHONE, color_scheme=scheme)
    for view in [*VIEWS, "story", "store", "brokers/1"]:
        page.goto(f"{cluster.pages[1]}#/{view}")
        page.locator("main h1").wait_for()
        page.locator(".quiet, table, section").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], view
        assert poor_contrasts(page) == [], view
    page.close()


def test_the_keyboard_reaches_every_link_and_button(page, cluster):
    page.goto(cluster.pages[1] + "#/topics/orders")
    page.locator("section.partition").first.wait_for()
    wanted = page.locator("a:visible, button:visible").count()
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('a, button')].indexOf(document.activeElement)"))
    assert len(reached - {-1}) >= wanted
    fold = page.locator("section.partition .fold").first
    fold.focus()
    page.keyboard.press("Enter")
    playwright.expect(fold).to_have_attribute("aria-expanded", "false")
