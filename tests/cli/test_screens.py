"""What commands show: on a terminal what the document shows, and elsewhere no control characters."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from barnabas.cli.commands import COMMANDS, commands
from tests.cli.screens import PAGE, SECONDS_MAX, SECTIONS, Fixed, Terminal, page, scene, shape

SCREENS = [screen for section in SECTIONS for screen in section.screens]
# They need Apache Spark, or the folders of a container.
ONLY_MISTAKES = {
    *("pipeline archive", "pipeline audit", "pipeline restore", "pipeline segments"),
    *("image configure", "image launch", "image storage"),
}


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("screens")
    with scene(folder) as environment:
        yield folder, environment


def printed(surroundings, screen):
    """What a command prints into pipes: both, together."""
    folder, environment = surroundings
    with subprocess.Popen(
        ["sh", "-c", f"exec {screen.typed}" if screen.until else screen.typed],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
    ) as process:
        text = ""
        while screen.until and screen.until not in text:
            line = process.stdout.readline()
            assert line, text
            text += line
        if screen.until:
            process.send_signal(signal.SIGINT)
        return text + process.communicate(timeout=SECONDS_MAX)[0]


def leaves():
    """Every command, as it is typed."""
    described = subprocess.run(
        [sys.executable, "-m", "barnabas", "--help-json"], capture_output=True, text=True, check=True, timeout=60
    )
    return [json.loads(line)["command"].removeprefix("barnabas ") for line in described.stdout.splitlines()]


def test_every_command_is_on_the_page():
    typed = [screen.typed.split("barnabas ", 1)[1] for screen in SCREENS]
    missing = {leaf for leaf in leaves() if not any(f"{each} ".startswith(f"{leaf} ") for each in typed)}
    assert missing == ONLY_MISTAKES
    assert {name for name in COMMANDS if not any(each.split()[0] == name for each in typed)} == set()


@pytest.mark.thorough
def test_no_command_prints_control_characters_without_a_terminal(surroundings):
    answers = {screen.typed: printed(surroundings, screen) for screen in SCREENS}
    assert "orders   3           3         0            0\n" in answers["barnabas topics ls"]
    assert "there is no such topic" in answers["barnabas topics show ordres"]
    assert [typed for typed, text in answers.items() if not is_plain(text)] == []


def test_no_mistake_prints_control_characters_without_a_terminal():
    for leaf in leaves():
        ended = CliRunner().invoke(commands, [*leaf.split(), "--no-such-option"])
        assert (ended.exit_code, ended.stdout) == (2, ""), leaf
        assert "--no-such-option" in ended.stderr
        assert is_plain(ended.stderr), leaf


def is_plain(text):
    # A completion has the tabulators of its shell.
    return text.replace("\n", "").replace("\t", "").isprintable()


def test_a_name_with_control_characters_is_shown_escaped(surroundings):
    folder, environment = surroundings

    def run(*arguments):
        return subprocess.run(
            ["barnabas", *arguments], capture_output=True, text=True, check=True, cwd=folder, env=environment
        ).stdout

    run("topics", "create", "read", "--if-missing")
    name = "\x1b[31mred\x9b"
    run("groups", "reset", name, "--topic", "read", "--to", "0", "--yes")
    assert "\\x1b[31mred\\x9b  Empty" in run("groups", "ls")
    assert name in [json.loads(line)["group"] for line in run("groups", "ls", "--json").splitlines()]
    run("groups", "delete", name, "--yes")


@pytest.mark.thorough
def test_the_document_shows_what_the_commands_show(tmp_path):
    if shutil.which("tmux") is None and "CI" not in os.environ:
        pytest.skip("tmux is not installed")
    with scene(tmp_path) as environment, Terminal(tmp_path, environment) as terminal:
        made = page(terminal, Fixed(tmp_path))
    # Block by block, so that a difference is seen.
    assert list(map(shape, made.split("```"))) == list(map(shape, PAGE.read_text(encoding="utf-8").split("```")))
