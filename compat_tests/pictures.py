"""Takes the pictures of docs/console.md: `python -m compat_tests.pictures`, with Debian's Chromium.

With the argument `lab` it takes that of docs/lab.md alone.

Three brokers in one process are under load from producers, two groups and a transactional producer. For the picture of
a topic broker 3 is killed.
"""

import json
import logging
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer
from playwright.sync_api import Page, sync_playwright

from barnabas.testing import Laboratory, LocalCluster

FOLDER = Path(__file__).parent.parent / "docs" / "console"
TOPICS = {"orders": (4, 3), "letters": (3, 2), "payments": (2, 3)}
SIZE = {"width": 1100, "height": 720}
VIEWS = {
    "cluster": "",
    "topics": "topics",
    "messages": "topics/orders/messages",
    "configuration": "topics/orders/configuration",
    "group": "groups/search-index",
    "transactions": "transactions",
    "story": "story",
    "store": "store/%2Fbrokers%2Ftopics%2Forders",
    "access": "access",
}
LOAD_SECONDS = 10
LIVE_SECONDS = 9  # until the chart of a topic has a shape
SETTLE_SECONDS = 2.5


class Load:
    """Clients on threads, until `end`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._servers = cluster.bootstrap_servers
        self._has_ended = threading.Event()
        runs = [self._produce, self._pay, *(lambda: self._consume("billing", 500) for _ in range(2))]
        self._threads = [threading.Thread(target=run) for run in [*runs, lambda: self._consume("search-index", 30)]]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._has_ended.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 20, "compression.type": "lz4"})
        number = 0
        while not self._has_ended.wait(0.04):
            for _ in range(40):
                number += 1
                order = {
                    "order": number,
                    "customer": random.choice(["klamm", "frieda", "olga"]),
                    "total": round(random.random() * 90, 2),
                    "items": [{"sku": f"K-{number % 17}", "count": number % 3 + 1}],
                }
                trace = {"trace": f"{number:016x}"}
                producer.produce("orders", json.dumps(order), key=f"order-{number % 97}", headers=trace)
                if number % 3 == 0:
                    producer.produce("letters", b"\0\0\0\0\x11\x02" + bytes([number % 256]), key="K.")
            producer.poll(0)
        producer.flush(10)

    def _consume(self, group: str, count: int) -> None:
        config = {"group.id": group, "auto.offset.reset": "earliest", "client.id": f"{group}-worker"}
        consumer = Consumer({"bootstrap.servers": self._servers, "auto.commit.interval.ms": 1000, **config})
        consumer.subscribe(["orders"])
        while not self._has_ended.wait(0.1 if count < 100 else 0):
            consumer.consume(count, 0.5)
        consumer.close()

    def _pay(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": "billing-7"})
        producer.init_transactions()
        number = 0
        while not self._has_ended.is_set():
            number += 1
            producer.begin_transaction()
            producer.produce("payments", f"payment {number}")
            producer.flush(10)
            self._has_ended.wait(3 if number % 3 == 0 else 0.5)
            (producer.abort_transaction if number % 4 == 0 else producer.commit_transaction)()


def take(open_page: Callable[[str], Page], address: str, name: str, view: str, seconds: float, scheme: str) -> None:
    """One picture."""
    page = open_page(scheme)
    page.goto(f"{address}#/{view}")
    time.sleep(seconds)
    if view.endswith("messages"):
        page.locator(".records .fold").nth(2).click()
    page.screenshot(path=FOLDER / f"{name}.png")
    page.close()


def main() -> None:
    # The story has the lines of a broker that runs as a program.
    logging.getLogger("barnabas").setLevel(logging.INFO)
    with LocalCluster(3, topics=TOPICS, http=True) as cluster, sync_playwright() as started:
        load = Load(cluster)
        load.start()
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            time.sleep(LOAD_SECONDS)

            def open_page(scheme: str) -> Page:
                return browser.new_page(viewport=SIZE, color_scheme=scheme)

            address = cluster.brokers[1].page_url
            for name, view in VIEWS.items():
                take(open_page, address, name, view, SETTLE_SECONDS, "light")
            take(open_page, address, "dark", "topics/orders", LIVE_SECONDS, "dark")
            cluster.kill(3)
            take(open_page, address, "live", "topics/orders", LIVE_SECONDS, "light")
        finally:
            load.end()
            browser.close()


def main_of_lab() -> None:
    """The view of the laboratory: broker 3 was killed, and an acknowledgement was lost."""
    with LocalCluster(3, topics=TOPICS, http=True) as cluster, Laboratory(cluster), sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        cluster.faults.drop("Produce", "after", topic="orders", times=1)
        cluster.faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS", group="billing", nth=3, times=1)
        load = Load(cluster)
        load.start()
        try:
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{cluster.brokers[1].page_url}#/lab")
            page.get_by_role("button", name="kill broker 3", exact=True).click()
            page.get_by_text("-> dropped").wait_for()
            time.sleep(SETTLE_SECONDS)
            page.screenshot(path=FOLDER / "lab.png", full_page=True)
        finally:
            load.end()
            browser.close()


if __name__ == "__main__":
    # The first argument may be the name of the one picture that is not of `barnabas serve`.
    main_of_lab() if sys.argv[1:] == ["lab"] else main()
