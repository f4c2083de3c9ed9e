"""What is published: the archive of the sources, the wheel that is built from it, and the programs that install it."""

import importlib.util
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.rooms import ROOT

WHEEL_BYTES_MAX = 2_500_000
READY_SECONDS_MAX = 120
FIRST_RECORD_SECONDS_MAX = 15
HOME = "https://example.org/castle/barnabas"


@pytest.fixture(scope="session")
def prepare_release():
    spec = importlib.util.spec_from_file_location("prepare_release", ROOT / ".ci" / "prepare_release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def released(prepare_release, tmp_path_factory):
    """A copy of the sources as a release has them, with a version and a date."""
    copy = tmp_path_factory.mktemp("released") / "barnabas"
    copy.mkdir()
    for name in (
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "MANIFEST.in",
        "constraints.txt",
    ):
        shutil.copy(ROOT / name, copy)
    folders = [link.name for link in (ROOT / "src" / "barnabas").iterdir() if link.is_symlink()]
    for folder in ["src", *folders]:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    changes = copy / "CHANGELOG.md"
    version = prepare_release.version_of(copy)
    changes.write_text(changes.read_text().replace("## Unreleased", f"## {version} (2026-11-29)"))
    prepare_release.prepare(copy, version, HOME)
    return copy


@pytest.fixture(scope="module")
def dist(released):
    """The archive, and the wheel from the archive, built without an index: only the pinned setuptools is needed."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(released / "dist"), str(released)]
    environment = {**os.environ, "PIP_NO_INDEX": "1"}
    built = subprocess.run(command, capture_output=True, text=True, check=False, cwd=released, env=environment)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    return released / "dist"


@pytest.fixture(scope="module")
def published_wheel(dist):
    (found,) = dist.glob("*.whl")
    return found


def tool(name):
    """A program of this environment or another one. Without it the test is skipped; it fails if CI is set."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        give_up = pytest.fail if "CI" in os.environ else pytest.skip
        give_up(f"{name} is not installed")
    return found


@pytest.mark.thorough
def test_what_is_published_passes_the_check_of_the_index(dist):
    files = sorted(map(str, dist.iterdir()))
    assert len(files) == 2
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("PASSED") == 2


@pytest.mark.thorough
def test_the_wheel_from_the_archive_has_what_the_sources_have_and_is_small(published_wheel, released):
    with zipfile.ZipFile(published_wheel) as archive:
        names = set(archive.namelist())
    folders = [link for link in (released / "src" / "barnabas").iterdir() if link.is_symlink()]
    sources = {f"barnabas/{path.relative_to(link.parent)}" for link in folders for path in link.rglob("*.py")}
    assert len(sources) > 400
    assert sources - names == set()
    assert published_wheel.stat().st_size <= WHEEL_BYTES_MAX


@pytest.mark.thorough
def test_the_archive_holds_no_tests_that_cannot_run_in_it(dist):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        folders = {name.split("/")[1] for name in file.getnames() if name.count("/") > 1}
    assert folders == {"src"}


@pytest.mark.thorough
def test_the_metadata_name_each_python_and_the_addresses_of_the_project(published_wheel):
    with zipfile.ZipFile(published_wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    named = {each.rpartition(" ")[2] for each in metadata.get_all("Classifier") if re.search(r":: 3\.[0-9]+$", each)}
    assert named == {"3.11", "3.12", "3.13", "3.14"}
    assert {each.split(", ")[0] for each in metadata.get_all("Project-URL")} == {
        *("Homepage", "Documentation", "Changelog", "Issues")
    }
    text = metadata.get_payload()
    assert re.findall(r"\]\((?!https:)[^)]*\)", text) == []
    assert f"({HOME}/raw/v{metadata['Version']}/docs/console/live.png)" in text


@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    [
        ["uvx", "--python", sys.executable, "--from", "WHEEL", "barnabas"],
        ["pipx", "run", "--python", sys.executable, "--spec", "WHEEL", "barnabas"],
    ],
    ids=["uvx", "pipx"],
)
def test_a_broker_is_served_from_the_wheel_without_an_installation(command, published_wheel, tmp_path):
    program, *options = command
    wheel = [str(published_wheel) if each == "WHEEL" else each for each in options]
    environment = {**os.environ, "PIPX_HOME": str(tmp_path / "pipx"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    environment.pop("PYTHONPATH", None)
    serve = [tool(program), *wheel, "serve", "--listen", "127.0.0.1:0", "--set", "barnabas.http.listener="]
    with (
        (tmp_path / "errors").open("w+") as errors,
        subprocess.Popen(
            serve, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path, env=environment, process_group=0
        ) as broker,
    ):
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(broker.stdout, selectors.EVENT_READ)
                assert selector.select(READY_SECONDS_MAX), (tmp_path / "errors").read_text()[-2000:]
            assert " ready: broker " in broker.stdout.readline(), (tmp_path / "errors").read_text()[-2000:]
        finally:
            # The program may have started the broker as a process of its own, in the same group.
            os.killpg(broker.pid, 15)
            broker.wait(30)


@pytest.mark.thorough
def test_the_first_record_is_consumed_soon_after_the_installation(published_wheel, tmp_path):
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "BARNABAS_BOOTSTRAP")}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, env=environment)
    installed = [tmp_path / "venv/bin/pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*installed, published_wheel], check=True, env=environment, cwd=tmp_path)

    began = time.monotonic()
    barnabas = str(tmp_path / "venv/bin/barnabas")
    serve = [barnabas, "serve", "--listen", "127.0.0.1:0", "--set", "barnabas.http.listener="]
    with subprocess.Popen(
        serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path, env=environment
    ) as broker:
        try:
            (address,) = re.findall(r" at PLAINTEXT://(\S+),", broker.stdout.readline())
            answers = [
                subprocess.run(
                    [barnabas, *command, "-b", address],
                    input="to the castle\n",
                    capture_output=True,
                    text=True,
                    check=True,
                    env=environment,
                    timeout=60,
                ).stdout
                for command in (
                    ["topics", "create", "petitions"],
                    ["produce", "petitions"],
                    ["consume", "petitions", "-n", "1", "--json"],
                )
            ]
            seconds = time.monotonic() - began
        finally:
            broker.terminate()

    assert json.loads(answers[-1])["value"] == "to the castle"
    assert seconds <= FIRST_RECORD_SECONDS_MAX


def test_a_version_that_is_not_the_one_of_the_sources_is_not_released(prepare_release, tmp_path):
    for name in ("README.md", "CHANGELOG.md", "pyproject.toml", "src/barnabas/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = (tmp_path / "README.md").read_text()
    with pytest.raises(SystemExit) as refused:
        prepare_release.prepare(tmp_path, "9.9.9", "castle/barnabas")
    version = prepare_release.version_of(ROOT)
    assert str(refused.value).splitlines() == [
        f"src/barnabas/__init__.py has the version {version}, not 9.9.9",
        "CHANGELOG.md has no section `## 9.9.9 (YYYY-MM-DD)`",
        "'castle/barnabas' is no https address of a repository",
    ]
    assert (tmp_path / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](docs/a.md#b)", f"[a]({HOME}/blob/v1/docs/a.md#b)"),
        ("![a](docs/a.png)", f"![a]({HOME}/raw/v1/docs/a.png)"),
        ("[a](#here)", f"[a]({HOME}/blob/v1/README.md#here)"),
        ("[a](https://elsewhere.example/)", "[a](https://elsewhere.example/)"),
    ],
)
def test_a_link_of_the_readme_leads_somewhere_from_every_page(prepare_release, link, expected):
    assert prepare_release.absolute(link, HOME, "v1") == expected


def test_what_is_built_for_a_release_is_built_for_each_python_that_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = {each.rpartition(" ")[2] for each in project["project"]["classifiers"] if re.search(r":: 3\.[0-9]+$", each)}
    built = {each.removesuffix("-*") for each in project["tool"]["cibuildwheel"]["build"]}
    assert built == {f"cp{each.replace('.', '')}" for each in named}
