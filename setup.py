"""The compiled form. With BARNABAS_COMPILE=1 a wheel is built in which mypyc has compiled some modules to machine code.

Without it this file adds nothing to pyproject.toml, whose `tool.barnabas.compiled` lists modules and requirements. The
modules are compiled in a copy of the sources: no compiled file is ever written beside the sources of a checkout, where
Python would import it instead of them. `src/barnabas/form.py` says how a misfit is noticed.
"""

import ast
import os
import shutil
import sys
import tomllib
from importlib.util import source_hash
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py

SOURCES = Path("src/barnabas")
COPY = Path("build/compiled")
FORM = COPY / SOURCES / "form.py"
PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
MODULES = PROJECT["tool"]["barnabas"]["compiled"]["modules"]
# The compiler reads the types of what the modules import.
REQUIREMENTS = [
    *PROJECT["tool"]["barnabas"]["compiled"]["requires"],
    *PROJECT["project"]["dependencies"],
    *PROJECT["project"]["optional-dependencies"]["security"],
]
BUILDING = {"bdist_wheel", "build", "build_ext"}
IN_PLACE = {"editable_wheel", "develop", "--inplace", "-i"}


class Build(build):
    """Without what an earlier build left: a module that is no longer listed must not get into the wheel."""

    def run(self) -> None:
        for leftover in (self.build_lib, self.build_temp):
            shutil.rmtree(leftover, ignore_errors=True)
        super().run()


class CopySources(build_py):
    """With the filled table. It is imported where the compiled one does not fit the interpreter, and says so."""

    def run(self) -> None:
        super().run()
        shutil.copy(FORM, Path(self.build_lib, "barnabas"))


def compiled() -> list[Extension]:
    """One shared library with the code of all modules, and for each module a small one that finds it."""
    from mypyc.build import mypycify

    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(SOURCES, COPY / SOURCES, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy("pyproject.toml", COPY)
    FORM.write_text(filled(FORM.read_text(encoding="utf-8")), encoding="utf-8")
    here = Path.cwd()
    os.chdir(COPY)  # mypy names modules by their place below `mypy_path`
    try:
        extensions = mypycify(
            ["--config-file=pyproject.toml", *(str(SOURCES / name) for name in [*MODULES, "form.py"])],
            group_name="barnabas",
            target_dir=".",
            opt_level="2",
            debug_level="0",
        )
    finally:
        os.chdir(here)
    for each in extensions:
        each.sources = [str(COPY / name) for name in each.sources]
        each.depends = [str(COPY / name) for name in each.depends]
        each.include_dirs = [str(COPY / name) for name in each.include_dirs]  # an absolute one stays as it is
    return extensions


def filled(source: str) -> str:
    """The source of `form.py` with the version and the hashes of what is compiled."""
    init = ast.parse((SOURCES / "__init__.py").read_text(encoding="utf-8"))
    versions = [each.value for each in init.body if isinstance(each, ast.Assign)]
    hashes = {name: source_hash((SOURCES / name).read_bytes()) for name in MODULES}
    for declared, empty, full in (
        ("VERSION: Final = ", '""', repr(ast.literal_eval(versions[0]))),
        ("COMPILED: Final[dict[str, bytes]] = ", "{}", repr(hashes)),
    ):
        before, found, after = source.partition(declared + empty)
        if not found:
            sys.exit(f"form.py has no line {declared}{empty}")
        source = f"{before}{declared}{full}{after}"
    return source


if os.environ.get("BARNABAS_COMPILE") != "1":
    setup()
elif IN_PLACE & {*sys.argv}:
    sys.exit("the compiled form is never built in place: make wheel COMPILED=1")
elif sys.implementation.name != "cpython":
    sys.exit("only CPython runs the compiled form: build without BARNABAS_COMPILE")
else:
    setup(
        setup_requires=REQUIREMENTS,
        # Before the requirements are there, something that makes it a wheel of this platform.
        ext_modules=compiled() if BUILDING & {*sys.argv} else [Extension("barnabas.form", [])],
        cmdclass={"build": Build, "build_py": CopySources},
    )
