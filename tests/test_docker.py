"""The container image without Docker: what its build gets, and the step that installs the package.

`make docker-check` builds the image itself, where there is a Docker.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path, PurePosixPath

import pytest

from tests.rooms import ROOT

PATTERNS = [
    line
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
NEVER_SHIPPED = {
    *(".git", ".venv", ".venv-kio", ".venv-spark", ".venv-quix", ".venv-airflow", ".venv-compiled", ".venv-site"),
    *("build", "dist"),
}


def is_sent(path):
    """Whether the build gets this file: the last pattern that matches it, or a folder that it is in, decides."""
    sent = True
    for pattern in PATTERNS:
        takes = pattern.startswith("!")
        name = pattern.removeprefix("!")
        # `match` compares a relative pattern with the end of a path, and an absolute one with the whole of it.
        where = name.removeprefix("**/") if name.startswith("**/") else f"/{name}"
        if any(PurePosixPath("/", each).match(where) for each in (path, *path.parents)):
            sent = takes
    return sent


@pytest.fixture(scope="module")
def context():
    """The paths of all files and links that the build gets."""
    return list(walk_context())


def walk_context():
    for name in sorted(os.listdir(ROOT)):
        if name in NEVER_SHIPPED:
            assert not is_sent(PurePosixPath(name))
        elif (ROOT / name).is_dir():
            for folder, folders, files in os.walk(ROOT / name):
                links = [each for each in folders if Path(folder, each).is_symlink()]
                inside = [PurePosixPath(Path(folder, each).relative_to(ROOT)) for each in files + links]
                yield from (each for each in inside if is_sent(each))
        elif is_sent(PurePosixPath(name)):
            yield PurePosixPath(name)


@pytest.fixture
def copied_context(context, tmp_path):
    copy = tmp_path / "src"
    for path in context:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, copy / path, follow_symlinks=False)
    return copy


def test_every_link_of_the_package_leads_to_something_that_the_build_gets(copied_context):
    links = [path for path in (copied_context / "src" / "barnabas").iterdir() if path.is_symlink()]
    assert links
    assert [str(path) for path in links if not (path / "__init__.py").is_file()] == []


def test_what_the_image_copies_is_what_the_build_gets(copied_context):
    copied = re.findall(r"^COPY (?!--)(\S+) ", DOCKERFILE, re.MULTILINE)
    assert "docker/healthcheck.py" in copied
    assert [path for path in copied if not (copied_context / path).exists()] == []


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["pure", pytest.param("compiled", marks=pytest.mark.long)])
def test_the_step_that_installs_the_package_makes_a_broker(copied_context, tmp_path, form):
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if form == "compiled" and not (shutil.which("gcc") and headers.is_file()):
        give_up = pytest.fail if "CI" in os.environ else pytest.skip
        give_up("a C compiler or Python's headers are missing")
    (step,) = re.findall(r"^RUN (if test .*?[^\\])$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    installed = tmp_path / "barnabas"
    # The same commands in other places, and with the interpreter of this test.
    script = step.replace("/opt/barnabas", str(installed)).replace("/src/", f"{copied_context}/")
    environment = {**os.environ, "FORM": form, "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    built = subprocess.run(
        ["sh", "-euc", script], cwd=copied_context, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    command = installed / "bin" / "barnabas"
    helped = subprocess.run([command, "--help"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "Jobs on Apache Spark" in helped.stdout
    assert "cannot be loaded" not in helped.stdout
