"""The packages, their rooms, and the arrows between them, read from the imports.

`test_tidy.py` holds them to their order; `generated.py` draws them in docs/architecture.md.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Package -> the packages that it imports: these and no others. Each stands below the one that imports it.
PACKAGES = {
    "wire": set(),
    "storage": {"wire"},
    "controller": {"wire"},
    "config": {"wire"},
    "world": {"wire", "storage", "controller"},
    "security": {"wire", "storage", "controller", "config", "world"},
    "replication": {"wire", "storage", "controller", "config", "world"},
    "coordinators": {"wire", "storage", "controller", "world"},
    "quotas": {"wire", "controller", "config", "security"},
    "client": {"wire", "storage", "security", "world"},
    "broker": {
        *("wire", "storage", "controller", "config", "world"),
        *("security", "replication", "coordinators", "quotas", "client"),
    },
    "console": {
        *("wire", "storage", "controller", "config", "world"),
        *("security", "replication", "coordinators", "broker"),
    },
    "cli": {
        *("wire", "storage", "controller", "config", "world"),
        *("client", "broker", "console"),
    },
    "testing": {
        *("wire", "storage", "controller", "config", "world"),
        *("security", "replication", "coordinators", "client", "broker", "console"),
    },
    "pipeline": {"wire", "storage"},
}

# From the top down. A room imports rooms that stand on a line below its own.
ROOMS = {
    "broker": (
        ["process"],
        ["serve"],
        ["server"],
        ["now"],
        ["handlers"],
        ["fetching"],
        ["call"],
        ["cluster"],
        ["peers"],
    ),
    "coordinators": (["groups", "transactions"], ["classic"], ["offsets"], ["runtime"]),
    "replication": (["replicas"], ["logs"]),
    "security": (["secured"], ["sasl"], ["settings"], ["tls", "acls"], ["names"]),
    "controller": (["controller"], ["handlers"], ["context"], ["admin", "decide"], ["image"], ["store"]),
    "testing": (
        ["lab", "local", "crashes"],
        ["tour"],
        ["simulation"],
        ["cluster"],
        ["looking"],
        ["running"],
        ["faults"],
        ["asking"],
    ),
}
# Files that are in no subfolder, or in another room than the others of their folder. All others that are in no
# subfolder are in the last room named here.
ROOM_OF_FILE = {
    "broker": {
        "serve": "serve",
        "build": "serve",
        "logins": "serve",
        "call": "call",
        "interception": "call",
        "life": "call",
        "repeats": "call",
        "tally": "call",
    },
    "security": {"secured": "secured", "zookeeper": "secured", "listener_security": "settings"},
    "controller": {"candidate": "controller", "controller": "controller"},
    "testing": {
        "local": "local",
        "plugin": "local",
        "simulation.diagram.frames": "simulation",
        "simulation.diagram.packing": "simulation",
        "simulation.diagram.recorder": "simulation",
        "simulation.diagram.recording": "simulation",
        "simulation.diagram.taps": "simulation",
    },
    # Groups of every kind have offsets, so these files know nothing of one kind.
    "coordinators": {"groups.offsets": "offsets", "groups.ports": "offsets", "groups.records": "offsets"},
}
ROOM_OF_OTHER_FILES = {"controller": "context", "replication": "replicas", "security": "names", "testing": "asking"}

# A file's ring is in its head, the first paragraph of its docstring: "(pure)", "(shell)" or "(edge)". Where that says
# nothing the `__init__.py` of its folder does, or of the one above; else the file is of the shell.
RING = re.compile(r"\((pure|shell|edge)\b")

Arrows = dict[tuple[str, str], str]


@cache
def tree_of(name: str) -> ast.Module:
    """The syntax tree of a file, named from the root of the repository."""
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), filename=name)


def sources_in(*folders: str) -> list[str]:
    """All Python files in these folders."""
    return sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def ring_of(name: str) -> str:
    """ "pure" (no trio, clock, chance of its own or I/O), "edge" (touches the outside world) or "shell"."""
    heads = [Path(name), *(folder / "__init__.py" for folder in Path(name).parents)]
    for head in (str(each) for each in heads if (ROOT / each).is_file()):
        if said := RING.search((ast.get_docstring(tree_of(head)) or "").split("\n\n")[0]):
            return said[1]
    return "shell"


def room_of(module: str) -> str:
    """The room of a module without `barnabas.`: "replication.logs.gate" is in "logs"."""
    folder, *path = module.split(".")
    named = ROOM_OF_FILE.get(folder, {}).get(".".join(path))
    if named is not None:
        return named
    return path[-2] if len(path) > 1 else ROOM_OF_OTHER_FILES[folder]


@cache
def imports_within(folder: str) -> dict[str, set[str]]:
    """Module -> the modules of the same folder that it imports, those for types included."""
    modules = {name.removesuffix(".py").replace("/", "."): name for name in sources_in(folder)}
    found = {}
    for module, name in modules.items():
        if module.endswith("__init__"):
            continue
        imports = [node for node in ast.walk(tree_of(name)) if isinstance(node, ast.ImportFrom) and node.module]
        wanted = [(node.module, alias.name) for node in imports for alias in node.names]
        named = {f"{source}.{alias}" for source, alias in wanted} | {source for source, _ in wanted}
        found[module] = {each.removeprefix("barnabas.") for each in named} & modules.keys() - {module}
    return found


@cache
def packages_imported_by(package: str) -> dict[str, str]:
    """Each package that is imported by files of this one, with one import as an example."""
    return {
        node.module.split(".")[1]: f"{name} imports {node.module}"
        for name in sources_in(package)
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.startswith("barnabas.")
        and node.module.split(".")[1] in PACKAGES.keys() - {package}
    }


def arrows_of(folder: str) -> Arrows:
    """(room, imported room) -> one import as an example."""
    return {
        (room_of(module), room_of(imported)): f"{module} imports {imported}"
        for module, all_imported in imports_within(folder).items()
        for imported in all_imported
        if room_of(module) != room_of(imported)
    }


def picture(folder: str) -> str:
    """The rooms of a package, and their arrows."""
    return _drawn([room for rooms in reversed(ROOMS[folder]) for room in rooms], set(arrows_of(folder)))


def picture_of_packages() -> str:
    """The packages, and their arrows."""
    return _drawn(list(PACKAGES), {(above, each) for above, imported in PACKAGES.items() for each in imported})


def _drawn(rooms: list[str], arrows: set[tuple[str, str]]) -> str:
    """A Mermaid diagram without arrows that follow from others; `rooms` from the bottom up."""
    below: dict[str, set[str]] = {}
    for room in rooms:
        direct = {imported for above, imported in arrows if above == room}
        below[room] = direct.union(*(below[each] for each in direct))
    shown = [
        f'    room_{room}["{room}"] --> room_{imported}["{imported}"]'  # a bare `call` is a word of Mermaid
        for room in below
        for imported in sorted(below[room])
        if (room, imported) in arrows
        and not any(imported in below[other] for other in below[room] if (room, other) in arrows)
    ]
    return "\n".join(["```mermaid", "graph TD", *sorted(shown), "```", f"{len(arrows)} arrows in all."])
