"""The rules of the house, as a test: what may import what, what is banned where, how large things may be.

Everything is read from the sources, by their syntax trees. The last part builds the wheel, installs it elsewhere and
runs it, and plants a type error to see that it is reported across folders.
"""

import ast
import os
import re
import selectors
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.server.dispatch import HANDLERS
from barnabas.wire.apis import APIS
from tests.prose import prose_of
from tests.rooms import (
    PACKAGES,
    ROOMS,
    ROOT,
    arrows_of,
    imports_within,
    packages_imported_by,
    ring_of,
    sources_in,
    tree_of,
)

# As many as there are. A number here is only ever made smaller.
ARROWS = {"broker": 19, "controller": 17, "coordinators": 7, "replication": 1, "security": 9, "testing": 25}
PACKAGE_ARROWS = 68
EXPLAINED_FOLDERS = ["tests", "compat_tests", "bench", "examples", "docs"]  # beside those that are shipped
FOLDERS = list(PACKAGES)

# What decides, and the protocol: pure as a whole. A file among it that is not says so in its head.
PURE_FOLDERS = ["wire", "controller/decide", "controller/image", "coordinators/groups", "config"]
# Only the edge uses these.
OUTSIDE_WORLD = {
    "asyncio", "concurrent", "datetime", "fcntl", "glob", "http", "multiprocessing", "os", "pathlib", "resource",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "time", "uuid", "kazoo", "h11",
}  # fmt: skip

# Our own bugs: in what is contained, in one request or connection, in one event or term of a controller, in one seed.
# And those of another package, when its command is loaded.
MAY_CATCH_EXCEPTION = {
    "cli/commands.py",
    "broker/server/connection.py",
    "world/containment.py",
    "broker/now/shapes.py",
    "broker/server/dispatch.py",
    "world/world.py",
    "controller/candidate.py",
    "controller/controller.py",
    "testing/crashes/reports.py",
    "testing/faults/intercepting.py",
    "testing/simulation/run.py",
}
MAY_CATCH_GROUPS = {
    "broker/serve.py",
    "testing/crashes/history.py",
}  # around their one nursery tree
# Generated functions have no types of their own, a test reads fields of requests of every API, and what is noted of
# each request is a list, because that is the quickest.
MAY_USE_ANY = {"wire/codegen.py", "wire/emitter.py", "wire/runtime.py"}
MAY_USE_ANY |= {"testing/faults/entries.py", "testing/faults/noted.py"}

FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN_MAX = 8
FUNCTION_LINES_P90_MAX = 26
FILE_LINES_MAX = 500  # of code: comments, docstrings and blank lines are free
FILE_LINES_P90_MAX = 400
FRAGMENTS_MAX = 6.0  # percent of the comments of one package
LITERAL_LINES_MIN = 8  # a module-level value as long as this is a table, and tables are as long as they must be

BANNED_WORDS = re.compile(r"\b(TODO|FIXME|XXX)\b|/work/|/tmp/ref|/root/")
# Words of an old-fashioned prose that a reader has to translate: say who does what, in the present tense. Not in names
# either.
UNPLAIN_WORDS = re.compile(
    r"(?<![a-z])(told|anew|nobody|nobodys|somebody|whoever|lest|in[ _]vain)(?![a-z])", re.IGNORECASE
)
WRITTEN_SUFFIXES = {".py", ".pyi", ".md", ".html", ".java", ".mjs", ".toml", ".yaml"}
TEST_NAME_MAX = 80
BANNED_FILE_NAMES = {"utils", "util", "manager", "base", "common", "helpers", "misc"}
READY_SECONDS_MAX = 30


SHIPPED = sources_in(*FOLDERS)
OWN_SOURCES = SHIPPED + sources_in("tests", "bench", "examples", "compat_tests")


def imported_by(name: str) -> list[tuple[int, str]]:
    """(line, module) of every import, those inside functions and TYPE_CHECKING included."""
    found = []
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [(node.lineno, module)]
            if module == "barnabas":
                found += [(node.lineno, f"barnabas.{alias.name}") for alias in node.names]
    return found


def code_lines(name: str, first: int = 1, last: int | None = None) -> int:
    """How many of these lines are neither blank nor a comment: the rules about length are about code."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    return sum(line.strip() != "" and line.strip()[0] != "#" for line in lines)


def lines_of(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The length of a function, without its docstring, comments and decorators."""
    docstring = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
    return code_lines(name, function.lineno, function.end_lineno) - (
        code_lines(name, docstring.lineno, docstring.end_lineno) if docstring is not None else 0
    )


def functions_of(name: str) -> list[tuple[str, int]]:
    return [
        (f"{name}:{node.lineno} {node.name}", lines_of(name, node))
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def file_lines(name: str) -> int:
    """The length of a file, without its literal tables and comments."""
    tree = tree_of(name)
    tables = 0
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.end_lineno - node.lineno >= LITERAL_LINES_MIN:
            tables += code_lines(name, node.lineno, node.end_lineno)
    return code_lines(name) - tables


def lines_of_code(name: str) -> int:
    """The length of a file without its comments, docstrings and blank lines."""
    free: set[int] = set()
    for node in ast.walk(tree_of(name)):
        has_text = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if has_text and ast.get_docstring(node, clean=False) is not None:
            free.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))

    lines = enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
    return sum(text.strip() != "" and text.strip()[0] != "#" and number not in free for number, text in lines)


def percentile(values: list[int], share: float) -> int:
    return sorted(values)[int(len(values) * share)]


def offences(names, find) -> list[str]:
    return [f"{name}: {offence}" for name in names for offence in find(name)]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_is_said_and_nothing_else(package):
    found = packages_imported_by(package)
    assert [text for imported, text in found.items() if imported not in PACKAGES[package]] == []
    assert PACKAGES[package] - found.keys() == set(), "imported no longer: take it out of PACKAGES in tests/rooms.py"


def test_packages_import_packages_below_them():
    level = {package: number for number, package in enumerate(PACKAGES)}
    arrows = [(package, each) for package, imported in PACKAGES.items() for each in imported]
    assert [arrow for arrow in arrows if level[arrow[0]] <= level[arrow[1]]] == []
    assert len(arrows) == PACKAGE_ARROWS


@pytest.mark.parametrize("folder", ROOMS)
def test_rooms_import_rooms_below_them(folder):
    level = {room: number for number, rooms in enumerate(ROOMS[folder]) for room in rooms}
    arrows = arrows_of(folder)
    assert [text for (above, below), text in arrows.items() if level[above] >= level[below]] == []
    assert len(arrows) == ARROWS[folder]


@pytest.mark.parametrize("folder", PACKAGES)
def test_no_file_imports_itself_by_a_detour(folder):
    left = {module: set(imported) for module, imported in imports_within(folder).items()}
    while ends := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in ends:
            del left[module]
    assert left == {}, "these files form a circle, or import one"


@pytest.mark.thorough
def test_folders_are_imported_as_barnabas():
    def bare(name):
        for line, module in imported_by(name):
            if module.startswith(".") or module.split(".")[0] in PACKAGES:
                yield f"line {line} imports {module}"

    assert offences(OWN_SOURCES, bare) == []


def test_serving_imports_nothing_that_misbehaves_on_purpose():
    """A broker that is served has no faults: its command reaches no file of `testing`, by whatever detour."""
    reached = {"cli/serve.py"}
    waiting = ["cli/serve.py"]
    while waiting:
        for module in modules_named_in(waiting.pop()):
            path = module.removeprefix("barnabas.").replace(".", "/")
            found = {name for name in (f"{path}.py", f"{path}/__init__.py") if name in SHIPPED}
            waiting += found - reached
            reached |= found
    assert {"broker/serve.py", "broker/interception.py", "broker/process/run.py"} <= reached
    assert [name for name in sorted(reached) if name.startswith("testing/")] == []


def modules_named_in(name: str) -> set[str]:
    """What a file imports of this package: `from a import b` may name a module a.b."""
    named = {module for _, module in imported_by(name)}
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.ImportFrom):
            named |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module for module in named if module.startswith("barnabas.")}


def test_handlers_import_no_other_handler():
    def sideways(name):
        for line, module in imported_by(name):
            if module.startswith("barnabas.broker.handlers"):
                yield f"line {line} imports {module}"

    assert offences([name for name in SHIPPED if name.startswith("broker/handlers/")], sideways) == []


def reaching_out(name: str) -> Iterator[str]:
    """Where the file touches the outside world, but for what only a call as a program runs."""
    by_hand = run_by_hand(name)
    for line, module in imported_by(name):
        if module.split(".")[0] in OUTSIDE_WORLD and line not in by_hand:
            yield f"line {line} imports {module}"
    for node in ast.walk(tree_of(name)):
        if getattr(node, "lineno", 0) in by_hand:
            continue
        match node:
            case ast.Call(func=ast.Name(id="open" | "input" | "print" as called)):
                yield f"line {node.lineno} calls {called}()"
            case ast.Attribute(value=ast.Name(id="random"), attr=used) if used != "Random":
                yield f"line {node.lineno} uses random.{used}: take the world's rng"


def test_only_the_edge_touches_the_outside_world():
    assert offences([name for name in SHIPPED if ring_of(name) != "edge"], reaching_out) == [], (
        "what touches the outside world says (edge) in the first paragraph of its docstring"
    )
    idle = [name for name in SHIPPED if ring_of(name) == "edge" and not any(reaching_out(name))]
    assert idle == [], "says (edge), and does not touch the outside world"


def run_by_hand(name: str) -> set[int]:
    """The lines that run only when the file is called as a program, to write a generated file: main, and its call."""
    body = tree_of(name).body
    calls = [node for node in body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
    mains = [node for node in body if calls and isinstance(node, ast.FunctionDef) and node.name == "main"]
    return {line for node in calls + mains for line in range(node.lineno, node.end_lineno + 1)}


def test_order_never_depends_on_identity_or_hashes():
    def by_identity(name):
        for node in ast.walk(tree_of(name)):
            match node:
                case ast.Call(func=ast.Name(id="id" | "hash" as called)):
                    yield f"line {node.lineno} calls {called}()"

    assert offences(SHIPPED, by_identity) == []


def test_pure_files_know_no_trio_and_wait_for_nothing():
    def impure(name):
        for line, module in imported_by(name):
            if module.split(".")[0] in {"trio", "outcome", *OUTSIDE_WORLD} and line not in run_by_hand(name):
                yield f"line {line} imports {module}"
        for node in ast.walk(tree_of(name)):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await):
                yield f"line {node.lineno} waits"

    assert offences([name for name in SHIPPED if ring_of(name) == "pure"], impure) == []


def test_what_decides_is_pure():
    assert [folder for folder in PURE_FOLDERS if ring_of(f"{folder}/__init__.py") != "pure"] == []


def test_wire_runs_without_trio_and_without_the_network():
    modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources_in("wire")]
    imports = "; ".join(f"import barnabas.{module}" for module in modules)
    code = f"import sys, crc32c; before = set(sys.modules); {imports}; print(*(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"trio", "socket", "ssl", "asyncio", "select", "logging"} & set(ran.stdout.split()) == set()


def test_errors_are_caught_by_name():
    def too_broad(name):
        for node in ast.walk(tree_of(name)):
            if isinstance(node, ast.TryStar) and name not in MAY_CATCH_GROUPS:
                yield f"line {node.lineno}: except*"
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type is not None else "everything"
            if "ExceptionGroup" in caught and name not in MAY_CATCH_GROUPS:
                yield f"line {node.lineno}: except {caught}"
            elif caught == "Exception" and name in MAY_CATCH_GROUPS:
                if not raises_again(node):
                    yield f"line {node.lineno}: swallows {caught}"
            elif caught == "Exception" and name not in MAY_CATCH_EXCEPTION:
                yield f"line {node.lineno}: except Exception"
            elif caught in ("everything", "BaseException") and not raises_again(node):
                yield f"line {node.lineno}: swallows {caught}"

    assert offences(SHIPPED, too_broad) == []


def raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether the handler only cleans up: its last statement raises."""
    return isinstance(handler.body[-1], ast.Raise)


def test_types_are_said():
    def untyped(name):
        for line, module in imported_by(name):
            if module == "typing" and name not in MAY_USE_ANY and "Any" in names_from(name, "typing"):
                yield f"line {line} imports Any"
        for number, text in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if "# type: ignore" in text and not re.search(r"# type: ignore\[[a-z-, ]+\]  # \S", text):
                yield f"line {number}: a type: ignore names its code and its reason"

    assert offences(SHIPPED, untyped) == []


def names_from(name: str, module: str) -> set[str]:
    return {
        alias.name
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }


def test_functions_stay_short():
    functions = [function for name in SHIPPED for function in functions_of(name)]
    assert [f"{where} has {lines} lines" for where, lines in functions if lines > FUNCTION_LINES_MAX] == []
    lengths = [lines for _, lines in functions]
    assert statistics.median(lengths) <= FUNCTION_LINES_MEDIAN_MAX
    assert percentile(lengths, 0.9) <= FUNCTION_LINES_P90_MAX


def test_files_stay_short():
    assert percentile([file_lines(name) for name in SHIPPED], 0.9) <= FILE_LINES_P90_MAX


def test_no_file_is_long():
    """Tests and tables included."""
    names = OWN_SOURCES + sources_in("docker") + [path.name for path in ROOT.glob("*.py")]
    lengths = {name: lines_of_code(name) for name in names}
    assert [
        f"{name} has {lines} lines of code, {FILE_LINES_MAX} are allowed: a subject of its own gets a file of its own"
        for name, lines in lengths.items()
        if lines > FILE_LINES_MAX
    ] == []


def test_the_page_has_air_and_comments():
    """What was reached; each limit is only ever made stricter (`tests/prose.py` has the goals)."""
    prose = prose_of(SHIPPED)
    assert prose.blank_in_functions >= 4.0
    assert prose.fragments <= 1.0
    assert prose.wide <= 11.4
    assert prose.double <= 1.3
    assert prose.comments >= 5.2
    fragments = {package: prose_of(sources_in(package)).fragments for package in PACKAGES}
    assert [f"{package}: {share:.1f} %" for package, share in fragments.items() if share > FRAGMENTS_MAX] == []


def test_every_file_says_what_it_is():
    missing = [name for name in OWN_SOURCES if tree_of(name).body and ast.get_docstring(tree_of(name)) is None]
    assert missing == []


def test_every_folder_explains_itself():
    assert [folder for folder in [*FOLDERS, *EXPLAINED_FOLDERS] if not (ROOT / folder / "README.md").is_file()] == []


def test_a_readme_names_each_file_of_its_folder():
    """By its path from there, or by its name alone; a folder without a README of its own belongs to the one above."""

    def readme_of(name):
        return next(folder / "README.md" for folder in Path(name).parents if (ROOT / folder / "README.md").is_file())

    def is_named(name):
        text = re.sub(r"```.*?```", "", (ROOT / readme_of(name)).read_text(encoding="utf-8"), flags=re.DOTALL)
        words = set(re.findall(r"`([^`]+)`", text))
        return bool({str(Path(name).relative_to(readme_of(name).parent)), Path(name).name} & words)

    ours = [name for name in SHIPPED if not name.endswith("__init__.py") and not name.startswith("wire/schemas/")]
    missing = [name for name in ours if not is_named(name)]
    assert missing == [], "\n".join(missing)


def test_every_handler_is_named_in_a_test():
    """By its request, or in a list of them: tests go through the connection and do not import the handler."""
    folders = ("tests/broker", "tests/coordinators", "compat_tests/differential/scenarios")
    tests = "".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    missing = [APIS[key].name for key in sorted(HANDLERS) if f"{APIS[key].name}Request" not in tests]
    assert missing == [], "add scenarios of these handlers to tests/broker/handlers/"


def test_every_handler_is_compared_with_kafkas():
    """By its request, in a scenario or in what scenarios share; that each version is asked is seen when they run."""
    suite = "".join(path.read_text() for path in (ROOT / "compat_tests" / "differential").rglob("*.py"))
    missing = [APIS[key].name for key in sorted(HANDLERS) if f"{APIS[key].name}Request" not in suite]
    assert missing == [], "add scenarios that ask every version to compat_tests/differential/scenarios/"


def test_the_black_box_tests_do_not_stand_on_the_benchmark():
    def measuring(name):
        for line, module in imported_by(name):
            if module.split(".")[0] == "bench":
                yield f"line {line} imports {module}"

    # One of them is a test of the benchmark.
    others = [name for name in sources_in("compat_tests") if name != "compat_tests/test_bench.py"]
    assert offences(others, measuring) == []


def test_files_are_named_after_what_they_hold():
    assert [name for name in SHIPPED if Path(name).stem in BANNED_FILE_NAMES] == []


def test_nothing_is_left_for_later():
    def left(name):
        for number, text in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if BANNED_WORDS.search(text):
                yield f"line {number}: {text.strip()}"

    folders = [*FOLDERS, *EXPLAINED_FOLDERS]
    found = [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))]
    documents = [str(path.relative_to(ROOT)) for path in found]
    here = str(Path(__file__).relative_to(ROOT))
    assert offences([name for name in OWN_SOURCES + documents if name != here], left) == []


def test_sources_and_documents_use_plain_words():
    def unplain(name):
        for number, text in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if UNPLAIN_WORDS.search(text):
                yield f"line {number}: {text.strip()}"

    folders = [*FOLDERS, *EXPLAINED_FOLDERS, "docker"]
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in WRITTEN_SUFFIXES]
    outside = [path for pattern in ("*.md", "*.py", "*.toml", "Makefile", ".ci/*") for path in ROOT.glob(pattern)]
    files = [path for path in inside + outside if path.is_file()]
    ours = [path for path in files if not {"reference", "target"} & set(path.relative_to(ROOT).parts)]
    here = Path(__file__).resolve()
    assert offences(sorted(str(path.relative_to(ROOT)) for path in ours if path != here), unplain) == []


def test_the_name_of_a_test_is_short():
    def unclear(name):
        for test in re.findall(r"def (test_\w+)", (ROOT / name).read_text(encoding="utf-8")):
            if len(test) > TEST_NAME_MAX:
                yield test

    assert offences(sources_in("tests", "compat_tests"), unclear) == []


def test_unit_tests_neither_sleep_nor_mock():
    def cheating(name):
        for line, module in imported_by(name):
            if module.split(".")[0] == "mock" or module.startswith("unittest.mock"):
                yield f"line {line} imports {module}"
        for node in ast.walk(tree_of(name)):
            match node:
                case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                    yield f"line {node.lineno} sleeps"

    assert offences(sources_in("tests"), cheating) == []


# From here on the package is built, installed and run.


def installed_command(installed, *arguments):
    """Run the installed console script; `-P` keeps the folder it is run from out of the import path."""
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    return [sys.executable, str(installed / "bin" / "barnabas"), *arguments], environment


@pytest.mark.thorough
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"barnabas"}
    assert names >= {f"barnabas/{name}" for name in SHIPPED} | {"barnabas/__init__.py", "barnabas/py.typed"}
    types = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.pyi")}
    assert names >= {f"barnabas/{name}" for name in types}
    parts = [
        path for folder in FOLDERS for suffix in ("css", "html", "js") for path in (ROOT / folder).rglob(f"*.{suffix}")
    ]
    assert names >= {f"barnabas/{path.relative_to(ROOT)}" for path in parts} != set(), "the parts of pages"


@pytest.mark.thorough
def test_the_installed_wheel_runs_from_another_folder(installed, tmp_path):
    command, environment = installed_command(installed, "version")
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert ran.stdout.startswith("barnabas ")
    code = "import barnabas.cli.commands as cli; print(cli.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert Path(where.stdout.strip()).is_relative_to(installed)


def test_the_installed_wheel_finds_the_commands_of_other_packages(installed, tmp_path):
    command, environment = installed_command(installed, "pipeline", "--help")
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert "Jobs on Apache Spark" in ran.stdout


def test_the_installed_wheel_serves_from_another_folder(installed, tmp_path):
    command, environment = installed_command(installed, "serve", "--listen", "127.0.0.1:0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as broker:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(broker.stdout, selectors.EVENT_READ)
                assert selector.select(READY_SECONDS_MAX), "the broker is not ready"
            assert " ready: broker " in broker.stdout.readline()
            broker.terminate()
            assert broker.wait(30) == 0
        finally:
            broker.kill()
    assert (tmp_path / "barnabas-data" / "meta.properties").is_file()


@pytest.mark.thorough
def test_a_type_error_across_two_folders_is_reported(copied_tree):
    planted = copied_tree / "storage" / "planted.py"
    planted.write_text(
        '"""A type error."""\n\nfrom barnabas.wire.topics import TopicPartition\n\n'
        'NAME: str = TopicPartition("t", 0).partition\n'
    )
    command = [sys.executable, "-m", "mypy", "--strict", "-m", "barnabas.storage.planted"]
    try:
        checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=copied_tree)
    finally:
        planted.unlink()
    assert checked.returncode == 1
    assert 'planted.py:5: error: Incompatible types in assignment (expression has type "int"' in checked.stdout
