"""The files of examples/ that are no Python, and those that need an environment of their own.

The brokers of compose files run without Docker, in a `Container` with their variables as they are.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from compat_tests.brokers import BrokerProcess
from compat_tests.clients.client import ROOT
from compat_tests.kafka import free_port
from compat_tests.metrics.load import Load
from compat_tests.metrics.prometheus import INTERVAL_SECONDS, Prometheus
from compat_tests.tools import give_up, require_tool
from tests.images.container import UNSHARE, Container

EXAMPLES = ROOT / "examples"
COMPOSE_FILES = ["compose", "devcontainer", "prometheus"]
DASHBOARD = json.loads((EXAMPLES / "prometheus/grafana/barnabas.json").read_text())
UNIT = EXAMPLES / "systemd/barnabas.service"
READY = "Kafka Server started"
# The properties that containers.dev names for a container of a compose file, of those that the example may want.
OF_A_DEVCONTAINER = {
    *("name", "dockerComposeFile", "service", "workspaceFolder", "forwardPorts", "portsAttributes"),
    *("postCreateCommand", "customizations", "remoteUser", "shutdownAction"),
}


def read(name: str) -> dict:
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


def variables_of(service: Mapping[str, object]) -> dict[str, str]:
    found = service["environment"]
    return found if isinstance(found, dict) else dict(line.split("=", 1) for line in found)


@pytest.mark.parametrize("folder", COMPOSE_FILES)
def test_the_broker_of_a_compose_file_serves_inside_and_outside(folder: str, tmp_path: Path) -> None:
    require_tool("unshare", "nsenter", "ip")
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        give_up("this process may make no namespaces")
    services = read(f"{folder}/compose.yaml")["services"]
    variables = variables_of(services["kafka"])
    with Container(tmp_path / "root", variables, ["kafka"]) as container:
        container.wait_for(READY)
        # The command of a service beside it, if there is one that prepares the broker.
        create = services.get("topics", {}).get("command", ["topics", "create", "orders", "-b", "kafka:9092"])
        container.run("barnabas", *create)
        container.run("barnabas", "produce", "orders", "-b", "localhost:9094", text="3 lamps\n")
        consumed = container.run("barnabas", "consume", "orders", "-n", "1", "--json", "-b", "kafka:9092")
        if "KAFKA_BARNABAS_HTTP_LISTENER" in variables:
            assert "barnabas_build_info" in container.run("curl", "--silent", "http://kafka:9644/metrics")
    assert json.loads(consumed)["value"] == "3 lamps"


def test_the_development_container_names_what_is_there() -> None:
    container = json.loads((EXAMPLES / "devcontainer/devcontainer.json").read_text())
    services = read(f"devcontainer/{container['dockerComposeFile']}")["services"]
    assert set(container) <= OF_A_DEVCONTAINER
    assert container["service"] in services
    assert services[container["service"]]["volumes"] == [f"..:{container['workspaceFolder']}:cached"]

    assert set(container["portsAttributes"]) <= set(container["forwardPorts"])
    listening = re.findall(r":(\d+)", services["kafka"]["environment"]["KAFKA_LISTENERS"])
    listening += services["kafka"]["environment"]["KAFKA_BARNABAS_HTTP_LISTENER"].split(":")[1:]
    assert {each.split(":")[1] for each in container["forwardPorts"]} <= set(listening)


def test_the_unit_is_the_one_of_the_page_and_systemd_accepts_it(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert text in (ROOT / "docs/operations.md").read_text()
    require_tool("systemd-analyze")
    # systemd looks whether the program is there.
    there = tmp_path / UNIT.name
    there.write_text(text.replace("/opt/barnabas/bin/barnabas", f"{sys.prefix}/bin/barnabas"))
    checked = subprocess.run(["systemd-analyze", "verify", str(there)], capture_output=True, text=True, check=False)
    assert [line for line in checked.stderr.splitlines() if UNIT.name in line] == []


def test_the_command_line_of_the_unit_serves(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n")
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    command = shlex.split(line.replace("/opt/barnabas", sys.prefix).replace("/etc/barnabas", str(tmp_path)))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert " ready: broker " in broker.stdout.readline()
        finally:
            broker.terminate()
        assert broker.wait(30) == 0


class ExamplesPrometheus(Prometheus):
    """With the configuration of the example, for a broker at another address, and scraped each second."""

    def _configuration(self) -> dict:
        configuration = read("prometheus/prometheus.yml")
        interval = f"{INTERVAL_SECONDS:g}s"
        configuration["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout"), interval)
        (job,) = configuration["scrape_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in self._ports]}]
        configuration["rule_files"] = [str(ROOT / "docs" / name) for name in configuration["rule_files"]]
        return configuration


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("example")
    port = free_port()
    with (
        BrokerProcess(directory, barnabas_http_listener=f"127.0.0.1:{port}") as broker,
        ExamplesPrometheus(directory / "prometheus", [port]) as started,
        Load({"bootstrap.servers": broker.bootstrap}, "letters") as load,
    ):
        started.wait_until(lambda: load.consumed > 100 and started.scrapes() >= 10, 120)
        yield started


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_each_expression_of_the_dashboard_has_samples(prometheus: Prometheus, panel: dict) -> None:
    expressions = [target["expr"].replace("$__rate_interval", "10s") for target in panel["targets"]]
    assert [each for each in expressions if not prometheus.query(each)] == []


def test_grafana_finds_the_dashboard_and_prometheus() -> None:
    services = read("prometheus/compose.yaml")["services"]
    mounted = {Path(line.split(":")[1]): line.split(":")[0] for line in services["grafana"]["volumes"]}
    for source in [*mounted.values(), *(line.split(":")[0] for line in services["prometheus"]["volumes"])]:
        assert (EXAMPLES / "prometheus" / source).is_file(), source
    (provider,) = read("prometheus/grafana/provider.yaml")["providers"]
    assert Path(provider["options"]["path"], "barnabas.json") in mounted
    (source,) = read("prometheus/grafana/datasource.yaml")["datasources"]
    assert source["isDefault"]
    assert source["url"].removeprefix("http://").split(":")[0] in services

    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    taken = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(taken) == len(set(taken)), "panels overlap"
    assert max(x for x, _ in taken) < 24


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    require_tool("promtool")
    for file in (EXAMPLES / "prometheus/prometheus.yml", ROOT / "docs/alerts.yaml"):
        shutil.copy(file, tmp_path)
    checked = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("name", ["quix", "airflow"])
def test_an_example_with_an_environment_of_its_own_passes(name: str, tmp_path: Path) -> None:
    """As its page says: in the clone, and in an environment without the packages of our own tests."""
    python = f".venv-{name}/bin/python"
    if not (ROOT / python).exists():
        give_up(f"{name} is not installed: make .venv-{name}/made")
    page = (EXAMPLES / f"test_{name}.py").read_text()
    (command,) = re.findall(rf"^    ({re.escape(python)} .*)$", page, re.MULTILINE)
    environment = os.environ | {"PYTEST_ADDOPTS": "-p no:cacheprovider", "AIRFLOW_HOME": str(tmp_path)}
    ran = subprocess.run(
        shlex.split(command), cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
