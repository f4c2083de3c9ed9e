"""The start scripts of the image, in a directory that looks like the image: nothing here needs Docker."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.images.container import await_line
from tests.images.testcontainers import MODULES
from tests.rooms import ROOT

SCRIPTS = ROOT / "docker" / "kafka"
PROGRAMS = ("kafka-storage", "zookeeper-server-start")
PLACES = ("etc/kafka/docker", "etc/confluent/docker")


class Image:
    """A directory with the files of the image in their places, and the programs that run in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for place in PLACES:
            shutil.copytree(SCRIPTS, root / place)
        (root / "bin").mkdir()
        for name in PROGRAMS:
            shutil.copy(SCRIPTS / name, root / "bin" / name)

    def start(self, shell: str, script: str, variables: dict[str, str]) -> "Running":
        file = self.root / "start.sh"
        file.write_text(script.replace("/etc/", f"{self.root}/etc/"), encoding="utf-8")
        own = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        path = f"{self.root / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        at = {"PATH": path, "BARNABAS_IMAGE_ROOT": str(self.root), "KAFKA_LOG_DIRS": str(self.root / "data")}
        return Running(
            subprocess.Popen(
                [shell, str(file)],
                cwd=self.root,
                env={**own, **at, **variables},
                text=True,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )


class Running:
    """A start of the image."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def wait_for(self, pattern: str) -> None:
        kill = partial(os.killpg, self.process.pid, signal.SIGKILL)
        await_line(self.process, pattern, self.lines, 60, kill)

    def end(self) -> str:
        """Everything that it printed."""
        # Docker ends the whole container: the scripts of some modules are not the parents that pass a signal on.
        os.killpg(self.process.pid, signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=30)
        return "".join(self.lines) + rest


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path / "root")


def on_free_ports(texts):
    names = ("client", "broker", "controller")
    bound = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = {name: str(each.getsockname()[1]) for name, each in zip(names, bound, strict=True)}
    for each in bound:
        each.close()

    def filled(text):
        for name, port in ports.items():
            text = text.replace(f"{{{name}}}", port)
        return text.replace("0.0.0.0", "127.0.0.1")

    return int(ports["client"]), [filled(text) for text in texts]


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_testcontainers_start_the_image_unchanged(image, name):
    module = MODULES[name]
    port, (script, *values) = on_free_ports([module.script, *module.variables.values()])
    running = image.start(module.shell, script, dict(zip(module.variables, values, strict=True)))
    try:
        running.wait_for(module.awaited)
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    finally:
        printed = running.end()
    assert running.process.returncode in (0, -15), printed
    assert "Traceback" not in printed


def test_variables_that_contradict_each_other_end_the_start(image):
    running = image.start("sh", "/etc/kafka/docker/run", {"KAFKA_NODE_ID": "1", "KAFKA_BROKER_ID": "2"})
    printed, _ = running.process.communicate(timeout=60)
    assert printed == "barnabas: KAFKA_NODE_ID=1 and KAFKA_BROKER_ID=2 are the same id\n"
    assert running.process.returncode == 2


def test_users_of_scram_are_there_before_the_start(image):
    text = "kafka-storage format -t x -c f --add-scram 'SCRAM-SHA-256=[name=app,password=a,b]'"
    script = f"/etc/kafka/docker/configure\n{text}\nbarnabas store scram list --config /etc/kafka/kafka.properties"
    printed, _ = image.start("sh", script, {}).process.communicate(timeout=60)
    assert "app: SCRAM-SHA-256 written\n" in printed
    assert re.search(r"^app +SCRAM-SHA-256 +4096$", printed, re.MULTILINE)


def test_a_mounted_file_is_read_and_variables_override_it(image):
    mounted = image.root / "mnt/shared/config/server.properties"
    mounted.parent.mkdir(parents=True)
    mounted.write_text("num.partitions=3\nlisteners=PLAINTEXT://:19999\n", encoding="utf-8")
    variables = {"KAFKA_NUM_PARTITIONS": "4", "KAFKA_NUM_PARTITONS": "5"}
    printed, _ = image.start("sh", "/etc/kafka/docker/configure", variables).process.communicate(timeout=60)
    assert "KAFKA_NUM_PARTITONS: num.partitons is not a known property" in printed
    written = (image.root / "etc/kafka/kafka.properties").read_text(encoding="latin-1")
    assert "num.partitions=4\n" in written
    assert "listeners=PLAINTEXT\\://\\:19999\n" in written
    assert (image.root / "etc/kafka/kafka.properties").stat().st_mode & 0o777 == 0o600
