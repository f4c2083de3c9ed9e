"""The two forms of the package: which one runs is known, and a compiled form that does not fit is refused."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import packages_distributions
from importlib.util import source_hash
from pathlib import Path

import pytest

import barnabas
from barnabas.form import COMPILED, FORM, refuse_misfit
from tests.rooms import PACKAGES, ROOT, sources_in, tree_of

PACKAGE = Path(barnabas.__path__[0])
SUFFIX = EXTENSION_SUFFIXES[0]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = PROJECT["tool"]["barnabas"]["compiled"]["modules"]
SOURCE = b"SIGNS = 4\n"

only_compiled = pytest.mark.skipif(FORM == "pure", reason="this is the pure form: make test-compiled")


@pytest.fixture
def folder(tmp_path):
    """A package with one source."""
    (tmp_path / "castle.py").write_bytes(SOURCE)
    return tmp_path


def refuse(folder, *, version="1.0", form_file=f"form{SUFFIX}", built_version="1.0", built_from=SOURCE):
    refuse_misfit(str(folder), version, form_file, built_version, {"castle.py": source_hash(built_from)})


def test_compiled_modules_that_fit_are_taken(folder):
    refuse(folder)


def test_compiled_modules_of_another_version_are_refused(folder):
    with pytest.raises(ImportError, match=r"sources of version 1\.1 and compiled modules of 1\.0; install it"):
        refuse(folder, version="1.1")


def test_compiled_modules_of_another_interpreter_are_refused(folder):
    with pytest.raises(ImportError, match=r"needs modules that end in \.cpython-.*; install it again with"):
        refuse(folder, form_file="form.py")


def test_a_changed_source_is_refused(folder):
    with pytest.raises(ImportError, match=r"castle\.py changed after it was compiled.*; install it again with"):
        refuse(folder, built_from=b"SIGNS = 3\n")


def test_an_installation_without_sources_is_taken(folder):
    (folder / "castle.py").unlink()
    refuse(folder)


def test_sources_are_never_compared_in_the_pure_form(folder):
    refuse_misfit(str(folder / "missing"), "1.0", "form.py", "", {})


def test_every_module_that_is_to_be_compiled_exists():
    assert [name for name in MODULES if not (PACKAGE / name).is_file()] == []


def test_the_compiler_has_the_types_of_all_that_it_reads():
    """pip builds in an environment of its own, with the requirements of `setup.py` alone."""
    setup = ast.parse((ROOT / "setup.py").read_text())
    [value] = [
        node.value
        for node in setup.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REQUIREMENTS"
    ]
    requirements = eval(compile(ast.Expression(value), "setup.py", "eval"), {"PROJECT": PROJECT})
    required = {re.split(r"[^\w-]", each)[0] for each in requirements}
    untyped = {
        name.removesuffix(".*") for each in PROJECT["tool"]["mypy"]["overrides"] for name in _listed(each["module"])
    }

    read = {
        module.split(".")[0]
        for package in ("broker", *PACKAGES["broker"])
        for name in sources_in(package)
        for node in ast.walk(tree_of(name))
        for module in _imported_by(node)
    }
    others = read - {"barnabas", "mypy_extensions", *sys.stdlib_module_names, *untyped}
    distributions = packages_distributions()
    assert "cryptography" in others
    assert {module for module in others if required.isdisjoint(distributions[module])} == set()


def _imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_compiled_modules_are_exactly_those_of_the_list():
    compiled = {str(path.relative_to(PACKAGE)).replace(SUFFIX, ".py") for path in PACKAGE.rglob(f"*{SUFFIX}")}
    assert compiled == ({*MODULES, "form.py"} if COMPILED else set())
    assert {*COMPILED} == compiled - {"form.py"}


def test_a_compiled_module_calls_nothing_within_the_bounds_of_a_slice():
    """mypyc 2.4.1 evaluates an integer bound twice, unless what is sliced is a list, a tuple, a str or bytes:
    compiled, `rest = rest[send_some(rest) :]` sends some bytes twice."""
    harmless = {"len", "max", "min"}

    def acts(node):
        if isinstance(node, ast.Call):
            return ast.unparse(node.func) not in harmless
        return isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr)

    def acting_slices(name):
        for found in ast.walk(tree_of(name)):
            if isinstance(found, ast.Slice) and any(map(acts, ast.walk(found))):
                yield f"{name}:{found.lineno} {ast.unparse(found)}"

    assert [found for name in MODULES for found in acting_slices(name)] == []


def test_no_coroutine_is_compiled():
    """Each call of a compiled coroutine makes a generator and an awaitable, and an `await` between the forms takes the
    general way. So a coroutine is quicker as it is: it belongs into a module that is not listed."""
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)

    assert [
        f"{name}:{found.lineno}" for name in MODULES for found in ast.walk(tree_of(name)) if isinstance(found, waiting)
    ] == []


@pytest.mark.parametrize("command", [["build_ext", "--inplace"], ["develop"], ["editable_wheel"]])
def test_the_compiled_form_is_never_built_among_the_sources(command):
    environment = os.environ | {"BARNABAS_COMPILE": "1"}
    ran = subprocess.run(
        [sys.executable, "setup.py", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr.strip()) == (
        1,
        "the compiled form is never built in place: make wheel COMPILED=1",
    )


@only_compiled
def test_every_listed_module_runs_compiled():
    modules = [importlib.import_module(f"barnabas.{name.removesuffix('.py').replace('/', '.')}") for name in MODULES]
    assert [module.__file__ for module in modules] == [str(PACKAGE / name.replace(".py", SUFFIX)) for name in MODULES]


@only_compiled
def test_every_module_can_be_imported():
    """Python classes cannot inherit from compiled ones, which is noticed when they are imported."""
    for path in sorted(PACKAGE.glob("*/**/*.py")):
        name = str(path.relative_to(PACKAGE)).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if not name.startswith("pipeline") and not name.endswith("__main__"):  # the pipeline needs PySpark
            importlib.import_module(f"barnabas.{name}")


@pytest.fixture(scope="session")
def copied(tmp_path_factory):
    """A copy of the installed compiled package, to be spoiled."""
    folder = tmp_path_factory.mktemp("copied")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / "barnabas", ignore=ignored)
    for library in PACKAGE.parent.glob("barnabas__mypyc*"):
        shutil.copy(library, folder)
    return folder


def version_of(folder, *options):
    """What `barnabas version` prints from this folder, and the last line of what it complains about."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, *options, "-m", "barnabas", "version"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    return ran.stdout, ran.stderr.splitlines()[-1] if ran.stderr else ""


@only_compiled
def test_a_source_edited_in_an_installation_is_refused(copied):
    assert version_of(copied) == (f"barnabas {barnabas.__version__} (compiled)\n", "")
    edited = copied / "barnabas" / MODULES[0]
    before = edited.read_bytes()
    try:
        edited.write_bytes(before + b"\n# edited\n")
        printed, complaint = version_of(copied)
    finally:
        edited.write_bytes(before)
    assert printed == ""
    assert f"{MODULES[0]} changed after it was compiled" in complaint


@only_compiled
def test_sources_of_another_version_over_compiled_modules_are_refused(copied):
    init = copied / "barnabas" / "__init__.py"
    before = init.read_text()
    try:
        init.write_text(before.replace(f'__version__ = "{barnabas.__version__}"', '__version__ = "77.0"'))
        printed, complaint = version_of(copied)
    finally:
        init.write_text(before)
    assert printed == ""
    assert f"sources of version 77.0 and compiled modules of {barnabas.__version__}" in complaint


@only_compiled
def test_an_interpreter_that_the_modules_do_not_fit_is_refused(copied):
    """As another interpreter sees the folder: no compiled module in it has a suffix of its own."""
    libraries = [*copied.rglob(f"*{SUFFIX}")]
    foreign = [path.with_name(path.name.replace(SUFFIX, ".cpython-37m-x86_64-linux-gnu.so")) for path in libraries]
    for path, renamed in zip(libraries, foreign, strict=True):
        path.rename(renamed)
    try:
        printed, complaint = version_of(copied)
    finally:
        for path, renamed in zip(libraries, foreign, strict=True):
            renamed.rename(path)
    assert printed == ""
    assert f"compiled for another interpreter or platform: this one needs modules that end in {SUFFIX}" in complaint
