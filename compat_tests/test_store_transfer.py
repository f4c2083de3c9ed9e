"""`barnabas store export | import` between the embedded store and a running ZooKeeper."""

import json
from pathlib import Path

import pytest

from compat_tests.brokers import run_barnabas
from compat_tests.kafka import ZooKeeperProcess

NODES = [
    {"path": "/brokers"},
    {"path": "/brokers/seqid", "version": 2, "text": ""},
    {"path": "/cluster"},
    {"path": "/cluster/id", "json": {"version": "1", "id": "vPeOCWypqUOSepEvx0cbog"}},
    {"path": "/odd"},
    {"path": "/odd/binary", "base64": "/wA="},
    {"path": "/odd/empty", "text": ""},
]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"format": 1, "nodes": NODES}))
    return path


def test_nodes_come_back_from_zookeeper_as_they_went(
    zookeeper: ZooKeeperProcess, exported: Path, tmp_path: Path
) -> None:
    store = f"{zookeeper.bootstrap}/there/and/back"
    filled = run_barnabas("store", "import", "--zookeeper", store, str(exported))
    assert (filled.returncode, filled.stdout, filled.stderr) == (0, "7 nodes written\n", "")
    back = run_barnabas("store", "export", "--zookeeper", store)
    assert back.stderr == ""
    assert json.loads(back.stdout)["nodes"] == NODES
    (tmp_path / "back.json").write_text(back.stdout)
    directory = str(tmp_path / "data")
    assert run_barnabas("store", "import", "--data-dir", directory, str(tmp_path / "back.json")).returncode == 0
    assert run_barnabas("store", "export", "--data-dir", directory).stdout == back.stdout


def test_a_zookeeper_that_holds_nodes_is_not_filled(zookeeper: ZooKeeperProcess, exported: Path) -> None:
    assert run_barnabas("store", "import", "--zookeeper", f"{zookeeper.bootstrap}/full", str(exported)).returncode == 0
    again = run_barnabas("store", "import", "--zookeeper", f"{zookeeper.bootstrap}/full", str(exported))
    assert again.returncode == 1
    assert again.stderr == "barnabas: the metadata store is not empty: it holds /brokers, /cluster, /odd\n"


def test_a_chroot_that_is_not_there_is_not_made_by_an_export(zookeeper: ZooKeeperProcess) -> None:
    for _ in range(2):
        asked = run_barnabas("store", "export", "--zookeeper", f"{zookeeper.bootstrap}/none")
        assert asked.returncode == 1
        assert asked.stderr == f"barnabas: metadata store {zookeeper.bootstrap}/none: there is no such chroot\n"


def test_zookeeper_refuses_what_it_cannot_hold(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"format": 1, "nodes": [{"path": "/a/b"}]}))
    refused = run_barnabas("store", "import", "--zookeeper", f"{zookeeper.bootstrap}/orphan", str(path))
    assert refused.returncode == 1
    assert refused.stderr == "barnabas: /a/b: no such node, or no parent\n"
