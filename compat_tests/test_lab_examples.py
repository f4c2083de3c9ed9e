"""The examples of the laboratory in other languages: each sees its fault fire, and its order once."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.testing import Laboratory, LocalCluster
from compat_tests.clients.client import ROOT
from compat_tests.tools import require_tool

EXAMPLES = ROOT / "examples" / "lab"
SECONDS = 300

# Language -> the tools that it needs, what fetches its packages, and what runs its tests.
LANGUAGES = {
    "java": (["java", "mvn"], None, ["mvn", "-q", "-B", "test"]),
    "go": (["go"], None, ["go", "test", "-count=1", "./..."]),
    "node": (
        ["node", "npm"],
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        ["node", "--test"],
    ),
}

pytestmark = pytest.mark.thorough


def run(command: list[str], folder: Path, lab: Laboratory) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"BARNABAS_LAB": f"{lab.url}v1/"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_sees_its_fault_fire(language: str, tmp_path: Path) -> None:
    tools, fetch, test = LANGUAGES[language]
    require_tool(*tools)
    # What the tools build does not belong into the repository.
    folder = tmp_path / language
    shutil.copytree(EXAMPLES / language, folder)
    with LocalCluster(1, topics={"orders": (1, 1)}) as cluster, Laboratory(cluster) as lab:
        if fetch is not None:
            fetched = run(fetch, folder, lab)
            assert fetched.returncode == 0, fetched.stderr
        ran = run(test, folder, lab)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (order,) = cluster.records("orders")
        assert order.value is not None
        assert order.value.startswith(b"order ")
