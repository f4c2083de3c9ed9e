"""The blocks of the documents: each says what it is, and each command in one exists.

A block of `sh` or `python` runs as it is written, by a test that `RUN_BY` names. What no test runs is `console` (typed
at a terminal) or `py`: because it needs an administrator, a download or another program's cluster, or takes minutes. Of
a command in such a block this file at least looks whether it can be parsed.
"""

import importlib.util
import re
import shlex
import subprocess
from typing import NamedTuple

import click
import pytest

from barnabas.cli.commands import commands
from tests.rooms import ROOT

RUN_BY = {
    "README.md": ("compat_tests/test_readme.py", "tests/testing/test_plugin.py"),
    "docs/cluster.md": ("compat_tests/test_readme.py",),
    "docs/lab.md": ("compat_tests/test_lab_document.py",),
    "docs/operations.md": ("compat_tests/test_operations_page.py",),
    "docs/security.md": ("compat_tests/test_security_page.py", "compat_tests/test_readme.py"),
    "docs/spark.md": ("compat_tests/pipeline/test_walkthrough.py",),
    "docs/testing.md": ("tests/testing/test_plugin.py",),
    "docs/transactions.md": ("compat_tests/test_transactions_page.py",),
}
RUN = {"sh", "python"}
COMMANDS = {"sh", "console"}
SHOWN = {"console", "py", "text", "json", "yaml", "ini", "properties", "mermaid", "hex"}


class Block(NamedTuple):
    """A fenced block of a document: where it begins, its language, its lines."""

    page: str
    line: int
    language: str
    lines: list[str]


def blocks_of(page: str, text: str) -> list[Block]:
    """All fenced blocks of a document, those of lists included."""
    found = []
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        opened = re.match(r" *(`{3,})(\S*)$", line)
        if opened and not fence:
            fence = opened[1]
            found.append(Block(page, number, opened[2], []))
        elif opened and opened[1] == fence and not opened[2]:
            fence = ""
        elif fence:
            found[-1].lines.append(line.strip())
    return found


def documents() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


BLOCKS = [block for page in documents() for block in blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))]


def typed(block: Block) -> list[str]:
    """The commands of a block: lines that are continued are joined, comments and what follows a pipe are left out."""
    text = "\n".join(block.lines).replace("\\\n", " ")
    commands_of_lines = (re.split(r"&& |\| ", re.sub(r"(^|\s)#.*", "", line)) for line in text.splitlines())
    return [each.strip() for several in commands_of_lines for each in several if each.strip()]


TYPED = [(block, command) for block in BLOCKS if block.language in COMMANDS for command in typed(block)]


def test_a_block_is_found_in_a_list_and_ends_where_it_ends():
    text = "1. one\n\n   ```sh\n   a \\\n     && b  # why\n   ```\n\n```text\nc\n```\n"
    first, second = blocks_of("a.md", text)
    assert (first.line, first.language, typed(first)) == (3, "sh", ["a", "b"])
    assert second == Block("a.md", 8, "text", ["c"])


@pytest.mark.parametrize("page", documents())
def test_every_block_says_what_it_is(page):
    unknown = [
        f"{page}:{block.line} {block.language}"
        for block in BLOCKS
        if block.page == page and block.language not in RUN | SHOWN
    ]
    assert unknown == []


def test_what_looks_as_if_it_is_run_is_run_by_a_test_that_names_the_page():
    pages = {block.page for block in BLOCKS if block.language in RUN}
    assert pages == set(RUN_BY)
    for page, tests in RUN_BY.items():
        for test in tests:
            assert page.rpartition("/")[2] in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not name {page}"


def parse(words: list[str]) -> None:
    """Raise UsageError if our command line knows no such command, option or further argument."""
    command: click.Command = commands
    context = commands.make_context("barnabas", [], resilient_parsing=True)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        below = command.get_command(context, name)
        if below is None:
            raise click.UsageError(f"no command {name}")
        command = below
        context = click.Context(command, parent=context, info_name=name)

    # Values are not converted: the files that they name are not there.
    _, left, _ = command.make_parser(context).parse_args(words)
    if left:
        raise click.UsageError(f"unexpected: {left}")


def words_of(command: str) -> list[str]:
    """The words of a command, up to a pipe or a redirection that is in no quotes."""
    return shlex.split(re.match(r"""(?:'[^']*'|"[^"]*"|[^'"|<>;&])*""", command)[0])


def exists(words: list[str]) -> bool:
    """Whether a command is there, as far as it is of this repository. UsageError if ours is misspelled."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program = words[0].rpartition("/")[2] if words else ""
    if program == "barnabas":
        parse(words[1:])
    if program == "make":
        targets = re.findall(r"^([a-z-]+|\$\([A-Z]+\)/made\S*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return all(each in [*targets, ".venv-spark/made"] or "=" in each for each in words[1:])
    if program.startswith("python") and "-m" in words:
        module = words[words.index("-m") + 1]
        return importlib.util.find_spec(module) is not None
    if program.startswith("python") and len(words) > 1:
        return (ROOT / words[1]).exists()
    return True


@pytest.mark.parametrize(("block", "command"), TYPED, ids=lambda each: each.page if isinstance(each, Block) else None)
def test_a_command_in_a_block_exists(block, command):
    words = shlex.split(command)
    assert exists(words), f"{block.page}:{block.line} {command}"


@pytest.mark.parametrize("page", documents())
def test_our_commands_in_the_text_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for command in re.findall(r"`(barnabas [^`]+)`", text):
        if "…" not in command:
            parse(words_of(command.replace(r"\|", "|"))[1:])


@pytest.mark.parametrize(
    "words",
    [
        ["barnabas", "topic", "ls"],
        ["barnabas", "topics", "ls", "--brokn"],
        ["barnabas", "groups", "ls", "one", "two", "three"],
    ],
)
def test_a_command_of_ours_that_does_not_exist_is_found(words):
    with pytest.raises(click.UsageError):
        exists(words)


@pytest.mark.parametrize(
    "words",
    [["make", "castle"], ["python", "-m", "bench_of_the_castle"], ["FOO=1", "python", "examples/castle.py"]],
)
def test_a_command_of_the_repository_that_does_not_exist_is_found(words):
    assert not exists(words)
