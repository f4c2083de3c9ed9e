"""The package as it is shipped, built once for all tests that want to see it from outside; and our own mistakes.

A mistake costs an answer, a partition's role or a controller's term and is logged with a traceback, so it could hide in
any test with a broker: `mistakes` lets each test fail that does not provoke it.
"""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.simulation.schedule import in_dead_process

ROOT = Path(__file__).parent.parent


class Mistakes(logging.Handler):
    """Keeps what was logged with a traceback, but for what a simulated process logs while it is killed."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.found = []

    def emit(self, record):
        if record.exc_info and not in_dead_process():
            self.found.append(self.format(record))

    def take(self):
        """What was found until now; it fails the test no more."""
        taken, self.found = self.found, []
        return taken


@pytest.fixture(autouse=True)
def mistakes(request):
    """Our own mistakes during a test. One that the test does not take fails it; with the marker `provokes_mistakes`, it
    fails if there was none."""
    logger, keeper = logging.getLogger("barnabas"), Mistakes()
    logger.addHandler(keeper)
    yield keeper
    logger.removeHandler(keeper)
    if request.node.get_closest_marker("provokes_mistakes"):
        assert keeper.take(), "the test is marked with provokes_mistakes, but no traceback was logged"
    assert not keeper.found, "\n".join(keeper.found)


@pytest.fixture(scope="session")
def copied_tree(tmp_path_factory):
    """The sources that are shipped, elsewhere: building leaves files behind."""
    copy = tmp_path_factory.mktemp("copy") / "barnabas"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    folders = [link.name for link in (ROOT / "src" / "barnabas").iterdir() if link.is_symlink()]
    for folder in ["src", *folders]:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    return copy


@pytest.fixture(scope="session")
def wheel(copied_tree):
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", copied_tree / "dist", copied_tree)
    (built,) = (copied_tree / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A folder that holds the installed wheel and nothing else; what it depends on comes from this environment."""
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-index", "--no-deps", "--target", target, wheel)
    return target


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    subprocess.run(command, check=True, timeout=300)
