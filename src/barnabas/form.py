"""The form of this package (edge): pure Python, or with some modules compiled.

In the sources `COMPILED` is empty. The build of a compiled wheel (`setup.py`) fills it in its own copy of this file and
compiles that copy, with the modules that it names, into one shared library. So the table that is imported describes the
machine code that runs, whatever happened to the files beside it.
"""

from typing import Final

VERSION: Final = ""  # of the sources that were compiled
COMPILED: Final[dict[str, bytes]] = {}  # file of a compiled module, from this folder -> hash of its source

FORM: Final = "compiled" if COMPILED else "pure"
REMEDY: Final = "install it again with: pip install --force-reinstall --no-deps PATH (of its sources or its wheel)"


def refuse_misfit(
    folder: str, version: str, form_file: str, built_version: str = VERSION, built: dict[str, bytes] = COMPILED
) -> None:
    """ImportError if the compiled modules in `folder` do not fit this interpreter, or the sources beside them.

    `version` is that of the sources, and `form_file` is the file from which this module was imported.
    """
    if not built:
        return
    # Python imports a compiled module only if its suffix is the interpreter's own, and else the source, without a word:
    # a table that was filled and not compiled means that all modules would run as sources.
    if form_file.endswith((".py", ".pyc")):
        from importlib.machinery import EXTENSION_SUFFIXES

        raise ImportError(
            f"barnabas in {folder} is compiled for another interpreter or platform: this one needs modules that end in "
            f"{EXTENSION_SUFFIXES[0]}; {REMEDY}"
        )
    if built_version != version:
        raise ImportError(
            f"barnabas in {folder} has the sources of version {version} and compiled modules of {built_version}; "
            f"{REMEDY}"
        )
    changed = [name for name, built_from in built.items() if _is_changed(f"{folder}/{name}", built_from)]
    if changed:
        raise ImportError(
            f"barnabas in {folder}: {', '.join(changed)} changed after it was compiled, so the change would have no "
            f"effect; {REMEDY}, or run a changed Barnabas from a checkout of its sources, which is never compiled"
        )


def _is_changed(path: str, built_from: bytes) -> bool:
    # Python compares a .pyc file with its source by the same hash (PEP 552). The pure form never imports it.
    from importlib.util import source_hash

    try:
        with open(path, "rb") as file:
            return source_hash(file.read()) != built_from
    except FileNotFoundError:
        return False  # an installation without sources has nothing that could differ
