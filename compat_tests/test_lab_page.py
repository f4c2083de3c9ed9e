"""The buttons of the laboratory, on the page of a broker in Debian's Chromium: each does what it says.

What has become of the brokers is asked in Python, and what the page says of it is read from the page.
"""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from barnabas.testing import Laboratory, LocalCluster
from compat_tests.raw import eventually
from compat_tests.readable import PHONE, poor_contrasts

playwright = pytest.importorskip("playwright.sync_api", reason="the extra `dev` installs it")

MINUTE_MS = 60_000
BUTTONS = "a:visible, button:visible, select:visible, input:visible"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, topics={"orders": (2, 3)}, http=True) as started, Laboratory(started):
        yield started


@pytest.fixture
def page(browser, cluster):
    opened = browser.new_page(viewport={"width": 1180, "height": 900})
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(f"{cluster.brokers[1].page_url}#/lab")
    opened.get_by_label("brokers of the laboratory").wait_for()
    yield opened
    opened.close()
    cluster.faults.clear()
    cluster.recover()
    assert problems == []


def press(page, label: str) -> None:
    """Press a button, by its whole label, and wait until the page says that it is done."""
    page.get_by_role("button", name=label, exact=True).click()
    playwright.expect(page.locator(".said")).to_have_text(label)


def row_of(page, broker_id: int):
    return page.get_by_label("brokers of the laboratory").locator("tbody tr").nth(broker_id - 1)


def test_a_broker_is_killed_and_started_on_its_own_page(page, cluster):
    press(page, "kill broker 1")
    assert not cluster.brokers[1].is_running
    playwright.expect(row_of(page, 1)).to_contain_text("down")
    press(page, "start broker 1")
    assert cluster.brokers[1].is_running
    playwright.expect(row_of(page, 1)).to_contain_text("runs")


def test_brokers_are_stopped_frozen_and_recovered(page, cluster):
    press(page, "stop broker 2")
    press(page, "freeze broker 3")
    assert (cluster.brokers[2].is_running, cluster.brokers[3].is_frozen) == (False, True)
    playwright.expect(row_of(page, 3)).to_contain_text("frozen")
    press(page, "thaw broker 3")
    assert not cluster.brokers[3].is_frozen
    page.get_by_role("button", name="recover all").click()
    playwright.expect(page.locator(".said")).to_have_text("recover all", timeout=30_000)
    assert cluster.isr("orders", 0) == {1, 2, 3}


def test_a_broker_that_is_killed_without_notice_still_leads(page, cluster):
    cluster.move_leader("orders", 0, to=2)
    press(page, "kill broker 2, unnoticed until its session ends")
    assert cluster.brokers[1].parts.metadata.partition("orders", 0).leader_id == 2


def test_a_link_is_cut_and_healed(page, cluster):
    page.get_by_label("between").select_option("2")
    page.get_by_label("and", exact=True).select_option("store")
    page.get_by_label("both ways").uncheck()
    press(page, "cut 2 and store")
    assert cluster.cuts == [(2, "store")]
    playwright.expect(page.locator("#cuts")).to_have_text("2 ⇥ store")
    press(page, "heal all links")
    assert cluster.cuts == []
    playwright.expect(page.locator("#cuts")).to_have_text("Every message arrives.")


def test_a_link_that_does_not_exist_is_said(page, cluster):
    page.get_by_label("between").select_option("clients")
    page.get_by_label("and", exact=True).select_option("store")
    page.get_by_role("button", name="cut clients and store").click()
    playwright.expect(page.get_by_role("alert")).to_contain_text("there is no link between 'clients' and 'store'")
    assert cluster.cuts == []


def test_a_leader_is_moved_beside_the_live_view(page, cluster):
    cluster.move_leader("orders", 1, to=1)
    page.goto(f"{cluster.brokers[1].page_url}#/topics/orders")
    page.get_by_label("partition", exact=True).select_option("1")
    page.get_by_label("to", exact=True).select_option("3")
    press(page, "move the leader of orders-1 to 3")
    assert cluster.leader("orders", 1) == 3
    place = page.locator('section[aria-label="partition 1"]')
    playwright.expect(place.locator(".leader")).to_have_text("3")


def test_a_disk_is_filled_slowed_and_healed(page, cluster):
    press(page, "disk of broker 3: full")
    press(page, "disk of broker 3: slow")
    assert cluster.brokers[3].disk.harms() == ["fill", "slow"]
    playwright.expect(row_of(page, 3)).to_contain_text("full, slow")
    press(page, "disk of broker 3: heal")
    assert cluster.brokers[3].disk.harms() == []


def test_a_disk_that_fails_ends_its_broker(page, cluster):
    press(page, "disk of broker 3: fail")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("orders", b"v", partition=0)
    assert producer.flush(30) == 0
    eventually(lambda: cluster.brokers[3].is_running, lambda runs: not runs)
    playwright.expect(row_of(page, 3)).to_contain_text("down")
    press(page, "disk of broker 3: heal")
    press(page, "start broker 3")
    assert cluster.brokers[3].is_running


def test_the_clock_jumps_and_stands_still(page, cluster):
    before_ms = cluster.clock.now_ms()
    press(page, "clock +10 min")
    assert cluster.clock.now_ms() - before_ms >= 10 * MINUTE_MS
    press(page, "stop the clock")
    assert cluster.clock.is_stopped
    press(page, "let the clock go on")
    assert not cluster.clock.is_stopped


def test_a_fault_is_set_shows_what_it_has_hit_and_is_removed(page, cluster):
    page.locator('select[name="kind"]').select_option("drop")
    given = page.get_by_label("the fault, as JSON")
    assert '"drop":"Produce"' in given.input_value()
    given.press("Enter")
    playwright.expect(page.locator(".said")).to_have_text("set a fault")
    row = page.get_by_label("faults", exact=True).locator("tbody tr").last
    playwright.expect(row).to_contain_text("drop(Produce, after, topic='orders', times=1)")
    playwright.expect(row).to_contain_text("nothing yet")

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "clerk"})
    producer.produce("orders", b"v")
    assert producer.flush(30) == 0
    playwright.expect(row).to_contain_text(re.compile(r"clerk#\d+ .*Produce v\d+ topic 'orders' -> dropped"))
    page.get_by_role("button", name=re.compile("remove f")).click()
    playwright.expect(row).to_contain_text("removed")
    assert all(fault.removed.is_set for fault in cluster.faults)

    page.get_by_role("button", name="look").click()
    playwright.expect(page.locator(".requests")).to_contain_text("clerk")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"drop": "Prodce"}', "no API is called 'Prodce'; is 'Produce' meant?"),
        ('{"drop": ', "Unexpected end of JSON input"),
        ('{"drop": "Fetch", "topic": "<img src=x onerror=alert(1)>"}', ""),
    ],
)
def test_what_is_no_fault_is_said_and_no_text_is_run(page, cluster, text, said):
    page.get_by_label("the fault, as JSON").fill(text)
    page.get_by_role("button", name="set", exact=True).click()
    playwright.expect(page.locator(".said")).to_contain_text(f"set a fault: {said}" if said else "set a fault")
    if said:
        playwright.expect(page.locator(".said")).to_contain_text(said)
        assert list(cluster.faults) == []
    assert page.locator("main img").count() == 0


def test_the_keyboard_reaches_every_button_and_presses_it(page, cluster):
    wanted = page.locator(BUTTONS).count()
    assert wanted > 30
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert len(reached) >= wanted
    button = page.get_by_role("button", name="freeze broker 2", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    playwright.expect(row_of(page, 2)).to_contain_text("frozen")
    assert cluster.brokers[2].is_frozen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_and_a_phone_shows_all(browser, cluster, scheme):
    cluster.faults.throttle("Produce", 5, may_miss=True)
    cluster.cut(2, "clients")
    cluster.kill(3)
    page = browser.new_page(viewport=PHONE, color_scheme=scheme)
    for view in ("lab", "topics/orders"):
        page.goto(f"{cluster.brokers[1].page_url}#/{view}")
        page.get_by_role("button", name="start broker 3").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], view
        assert poor_contrasts(page) == [], view
    page.close()
    cluster.faults.clear()
    cluster.recover()
