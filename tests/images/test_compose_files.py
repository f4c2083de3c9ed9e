"""Compose files of well-known projects: each broker comes up with only the image changed, and serves a record.

Each runs in a `Container`, which needs no Docker, with its variables as they are.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from compat_tests.kafka import java_command
from compat_tests.tools import give_up, require_tool
from tests.images.compose_files import COMPOSE_FILES, THREE_SERVERS
from tests.images.container import UNSHARE, Container
from tests.rooms import ROOT

READY = "Kafka Server started"
QUICK = "Apache Kafka, single node"


def test_the_page_about_the_image_names_each_of_them():
    rows = re.findall(r"^\| ([^|]+) \| `([^|`]+)` \|", (ROOT / "docker" / "README.md").read_text(), re.MULTILINE)
    assert {(name, compose.image) for name, compose in COMPOSE_FILES.items()} <= set(rows)


@pytest.fixture(scope="module")
def namespaces():
    """Skip where this process may make no namespaces: in some containers, and outside of Linux."""
    require_tool("unshare", "nsenter", "ip")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        give_up(tried.stderr.strip())


def zookeeper(directory: Path, port: int) -> list[str]:
    """The command of a ZooKeeper, which needs Java; Maven has brought its jars."""
    require_tool("java", "mvn")
    file = directory / "zookeeper.properties"
    file.write_text(f"dataDir={directory / 'zookeeper'}\nclientPort={port}\nadmin.enableServer=false\n")
    return java_command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file))


@pytest.mark.parametrize(
    "name",
    [name if name == QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in COMPOSE_FILES],
)
def test_a_compose_file_comes_up_with_only_the_image_changed(namespaces, name, tmp_path):
    compose = COMPOSE_FILES[name]
    beside = zookeeper(tmp_path, int(compose.zookeeper.rpartition(":")[2])) if compose.zookeeper else []
    with Container(tmp_path / "root", compose.environment(), compose.hosts, beside) as container:
        container.wait_for(READY)
        container.run("barnabas", "topics", "create", "petitions", "-b", compose.clients)
        container.run("barnabas", "produce", "petitions", "-b", compose.clients, text="to the castle\n")
        consumed = container.run("barnabas", "consume", "petitions", "-n", "1", "--json", "-b", compose.clients)
        printed = container.end()

    assert json.loads(consumed)["value"] == "to the castle"
    assert "Traceback" not in printed
    assert "stopped\n" in printed


def test_servers_that_are_controllers_of_each_other_are_refused(namespaces, tmp_path):
    with Container(tmp_path / "root", THREE_SERVERS, ["kafka-1"]) as container:
        printed = container.wait()
    assert "a cluster in KRaft mode, which Barnabas does not have" in printed
    assert "KAFKA_CONTROLLER_QUORUM_VOTERS" in printed
