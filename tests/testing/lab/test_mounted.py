"""The laboratory on the pages of its brokers: the same routes under /lab, which outlive a broker that they kill."""

import http.client
import re
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from barnabas.console.static import FOLDER as PAGE_FOLDER
from barnabas.testing import LocalCluster
from barnabas.testing.lab.control import Laboratory
from barnabas.testing.lab.mounted import FILES, FOLDER
from barnabas.testing.lab.table import ACTIONS
from tests.console.page_files import check_file
from tests.testing.lab.http import ask, done


class PageOf:
    """The page of a broker, for `ask`."""

    def __init__(self, broker):
        self.url = broker.page_url


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(2, topics={"t": (1, 2)}, http=True) as cluster:
        yield cluster


@pytest.fixture
def page(cluster):
    with Laboratory(cluster) as laboratory:
        yield PageOf(cluster.brokers[1])
        done(laboratory, "POST", "/v1/reset")


def test_a_broker_that_is_killed_on_its_own_page_is_started_there_again(cluster, page):
    answer = done(page, "POST", "/lab/v1/brokers/1/kill")
    assert answer == {"id": 1, "is_running": False, "is_frozen": False}
    assert ask(page, "GET", "/v1/cluster") == (503, {"error": "the broker does not run"})
    rows = done(page, "GET", "/lab/v1/brokers")["brokers"]
    assert [(row["id"], row["is_running"]) for row in rows] == [(1, False), (2, True)]

    assert done(page, "POST", "/lab/v1/brokers/1/start")["is_running"] is True
    assert ask(page, "GET", "/v1/cluster")[0] == 200


def test_what_a_killed_broker_was_answering_ends(cluster, page):
    where = urlsplit(page.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    connection.request("GET", "/v1/feed?topics=t")
    feed = connection.getresponse()
    assert feed.readline()
    done(page, "POST", "/lab/v1/brokers/1/kill")
    with pytest.raises(http.client.IncompleteRead):
        feed.read()
    connection.close()


def test_each_action_is_there_and_says_the_same(cluster, page):
    schema = done(page, "GET", "/lab/v1/schema")
    assert {f"{each.method} {each.path}" for each in ACTIONS if each.checks_words} <= schema["$defs"].keys()
    assert done(page, "POST", "/lab/v1/faults", {"throttle": "Produce", "ms": 5})["fired"] == 0
    status, answer = ask(page, "POST", "/lab/v1/faults", {"drop": "Prodce"})
    assert (status, answer["error"]) == (400, "no API is called 'Prodce'; is 'Produce' meant?")


def test_what_is_harmed_is_said_with_the_brokers(cluster, page):
    done(page, "POST", "/lab/v1/brokers/2/disk/slow", {"seconds": 0.01})
    done(page, "POST", "/lab/v1/cut", {"sender": 1, "receiver": "clients", "both": False})
    state = done(page, "GET", "/lab/v1/brokers")
    assert ([row["disk"] for row in state["brokers"]], state["cuts"]) == ([[], ["slow"]], [[1, "clients"]])
    done(page, "POST", "/lab/v1/brokers/2/disk/heal")
    done(page, "POST", "/lab/v1/heal")
    state = done(page, "GET", "/lab/v1/brokers")
    assert ([row["disk"] for row in state["brokers"]], state["cuts"]) == ([[], []], [])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://castle.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"host": "castle.example"}, 421),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_page_of_another_site_presses_no_button(cluster, page, headers, status):
    assert ask(page, "POST", "/lab/v1/brokers/2/kill", b"{}", **headers)[0] == status
    assert cluster.brokers[2].is_running


def index_of(broker):
    with urlopen(broker.page_url, timeout=10) as answer:
        return answer.read().decode()


def test_the_buttons_are_there_as_long_as_the_laboratory(cluster):
    broker = cluster.brokers[1]
    assert "lab.js" not in index_of(broker)
    assert ask(PageOf(broker), "GET", "/lab/v1/brokers")[0] == 404
    with Laboratory(cluster):
        assert index_of(broker).index("lab.js") < index_of(broker).index("app.js")
        for name in FILES:
            with urlopen(f"{broker.page_url}{name}", timeout=10) as answer:
                assert answer.headers["content-security-policy"].startswith("default-src 'self'")
                assert answer.read() == (FOLDER / name).read_bytes()
    assert "lab.js" not in index_of(broker)
    assert ask(PageOf(broker), "POST", "/lab/v1/brokers/1/kill")[0] == 404


def test_the_page_of_a_served_broker_names_nothing_of_it():
    for path in PAGE_FOLDER.glob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert re.search(r"\b(lab|laborator\w*|kill\w*|freeze)\b", text, re.IGNORECASE) is None, path.name


@pytest.mark.parametrize("name", FILES)
def test_its_files_are_short_and_run_no_text(name):
    check_file(FOLDER / name)


def test_the_files_are_all_of_the_folder():
    assert sorted(FILES) == sorted(path.name for path in FOLDER.iterdir())
