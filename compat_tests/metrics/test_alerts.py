"""The rules of docs/alerts.yaml in Debian's Prometheus: each fires on its condition, and none in plain load."""

import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from compat_tests.metrics.conditions import CONDITIONS, CONDITIONS_OF_PROCESS, Act, Place
from compat_tests.metrics.load import Load
from compat_tests.metrics.prometheus import INTERVAL_SECONDS, Prometheus
from compat_tests.tools import require_tool

RULES = pathlib.Path(__file__).parents[2] / "docs" / "alerts.yaml"
NAMES = re.findall(r"- alert: (\w+)", RULES.read_text())
# Three scrapes, and one more interval until the rules are evaluated.
SECONDS_MAX = 4 * INTERVAL_SECONDS
END_SECONDS = 60.0
BUSY = 'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}'
# These look back at minutes, and go on firing.
LASTING = {"FailedLogins", "ClientsThrottled", "IsrShrinks", "LogDirectoryFailed", "RequestsTooSlow"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    with Place(tmp_path_factory.mktemp("alerts")) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(place, tmp_path_factory) -> Iterator[Prometheus]:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), place.metrics_ports, RULES) as started:
        yield started


def test_promtool_accepts_the_rules():
    require_tool("promtool")
    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"{len(NAMES)} rules found" in checked.stdout
    assert sorted(NAMES) == sorted([*CONDITIONS, *CONDITIONS_OF_PROCESS])
    assert len(NAMES) == 10


@pytest.mark.parametrize("seconds", [20, pytest.param(300, marks=pytest.mark.long)])
def test_no_alert_fires_in_plain_load(place, prometheus, seconds):
    with Load(place.client(), "orders") as load:
        # Rules are evaluated before the first scrape, too, and then there is no controller.
        prometheus.wait_until(lambda: load.consumed > 0 and prometheus.scrapes() > 3, 60)
        scrapes, fired = prometheus.scrapes(), {}

        def is_over() -> bool:
            for name in prometheus.firing() - fired.keys():
                fired[name] = prometheus.query(f'ALERTS{{alertname="{name}"}}'), prometheus.query(BUSY)
            return prometheus.scrapes() - scrapes >= seconds / INTERVAL_SECONDS

        prometheus.wait_until(is_over, 2 * seconds + 30)
    assert fired == {}
    assert load.consumed > 10 * seconds


@pytest.mark.parametrize("name", CONDITIONS)
def test_an_alert_fires_within_three_scrapes(place, prometheus, name):
    check(place, prometheus, name, *CONDITIONS[name])


@pytest.mark.parametrize("name", CONDITIONS_OF_PROCESS)
def test_an_alert_of_one_broker_fires_within_three_scrapes(place, tmp_path, name):
    # Its metrics are those of another cluster.
    with Prometheus(tmp_path, [place.process_metrics_port], RULES) as prometheus:
        check(place, prometheus, name, *CONDITIONS_OF_PROCESS[name])


def check(place: Place, prometheus: Prometheus, name: str, bring_about: Act, end: Act) -> None:
    assert name not in prometheus.firing()
    try:
        bring_about(place)
        prometheus.wait_until(lambda: name in prometheus.firing(), SECONDS_MAX)
    finally:
        end(place)
    if name not in LASTING:
        prometheus.wait_until(lambda: name not in prometheus.firing(), END_SECONDS)
