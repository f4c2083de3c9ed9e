"""`barnabas --help-json`, and names that nearly fit."""

import json
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.commands import COMMANDS, HIDDEN, commands


def barnabas(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_every_command_is_described_in_json():
    ran = barnabas("--help-json")
    rows = {row["command"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert ran.returncode == 0
    assert {"barnabas serve", "barnabas topics create", "barnabas move", "barnabas acls add"} <= rows.keys()
    assert all(row["help"] for row in rows.values())
    consume = rows["barnabas consume"]
    assert consume["arguments"] == [{"name": "TOPIC", "required": True, "several": False, "type": "text"}]
    (count,) = [option for option in consume["options"] if "--count" in option["names"]]
    assert (count["names"], count["flag"], count["type"]) == (["-n", "--count"], False, "integer range")
    (codec,) = [option for option in rows["barnabas produce"]["options"] if "--codec" in option["names"]]
    assert (codec["choices"], codec["default"]) == (["none", "gzip", "snappy", "lz4", "zstd"], "none")
    assert consume["statuses"].keys() == {"0", "1", "2", "130"}


def test_a_misspelled_command_is_answered_with_the_nearest_name():
    ran = barnabas("topcs", "ls")
    assert ran.returncode == 2
    assert ran.stderr.endswith("Error: No such command 'topcs'. The nearest is 'topics'.\n")


# The table of the commands, and no command.
OF_HELP = {
    "barnabas",
    "barnabas.form",
    "barnabas.status",
    "barnabas.cli",
    "barnabas.cli.commands",
    "barnabas.cli.failing",
}
SLOW_TO_IMPORT = {"importlib.metadata", "trio", "ssl", "asyncio", "tqdm", "sqlite3", "h11", "pyspark", "kazoo"}
SAY_IMPORTS = """
import atexit, sys
from barnabas.cli.commands import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = ["barnabas", "--help"]
main()
"""


def test_help_imports_no_command_and_nothing_slow():
    ran = subprocess.run([sys.executable, "-c", SAY_IMPORTS], capture_output=True, text=True, check=True, timeout=60)
    imported = set(ran.stderr.split())
    assert {name for name in imported if name.split(".")[0] == "barnabas"} == OF_HELP
    assert SLOW_TO_IMPORT.isdisjoint(imported)


def test_the_completion_of_a_command_imports_no_command():
    environment = {"_BARNABAS_COMPLETE": "bash_complete", "COMP_WORDS": "barnabas topi", "COMP_CWORD": "1"}
    code = SAY_IMPORTS.replace(', "--help"', "")
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=60,
    )
    assert ran.stdout == "plain,topics\n"
    assert {name for name in ran.stderr.split() if name.split(".")[0] == "barnabas"} == OF_HELP


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(name):
    command = commands.get_command(click.Context(commands), name)
    assert command.get_short_help_str(limit=1000) == COMMANDS[name].summary
    assert not command.hidden


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_command_is_there_and_not_in_the_help(name):
    assert commands.get_command(click.Context(commands), name).hidden
    assert f"  {name} " not in CliRunner().invoke(commands, ["--help"]).output


def test_no_summary_is_cut_or_broken_in_a_terminal_of_80_columns():
    lines = CliRunner().invoke(commands, ["--help"], terminal_width=80).output.splitlines()
    listed = lines[lines.index("Commands:") + 1 :]
    assert [line.split(maxsplit=1) for line in listed] == [[name, row.summary] for name, row in COMMANDS.items()]


def test_the_help_of_every_command_fits_into_80_columns_without_control_characters():
    names = [json.loads(line)["command"].split()[1:] for line in barnabas("--help-json").stdout.splitlines()]
    assert ["topics", "create"] in names
    wide = []
    for name in [[], *names]:
        printed = CliRunner().invoke(commands, [*name, "--help"], prog_name="barnabas", terminal_width=80)
        assert printed.exit_code == 0, name
        assert all(each.isprintable() for each in printed.output.splitlines()), name
        wide += [(name, line) for line in printed.output.splitlines() if len(line) > 80]
    assert wide == []
