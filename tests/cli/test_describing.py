"""`barnabas --help-json`, and names that nearly fit."""

import json
import subprocess
import sys

from click.testing import CliRunner

from barnabas.cli.commands import commands


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


# Besides cli/ itself: the packages that add commands, each by the file that declares them.
OF_HELP = {
    "barnabas",
    "barnabas.form",
    "barnabas.status",
    "barnabas.pipeline",
    "barnabas.pipeline.cli",
    "barnabas.testing",
    "barnabas.testing.lab",
    "barnabas.testing.lab.cli",
}
SLOW_TO_IMPORT = {"trio", "ssl", "asyncio", "tqdm", "sqlite3", "h11", "pyspark", "kazoo"}
SAY_IMPORTS = """
import atexit, sys
from barnabas.cli.commands import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = ["barnabas", "--help"]
main()
"""


def test_help_imports_the_declarations_of_the_commands_and_nothing_slow():
    ran = subprocess.run([sys.executable, "-c", SAY_IMPORTS], capture_output=True, text=True, check=True, timeout=60)
    imported = set(ran.stderr.split())
    own = {name for name in imported if name.split(".")[0] == "barnabas"}
    assert {name for name in own if not name.startswith("barnabas.cli")} <= OF_HELP
    assert "barnabas.cli.consume" in own
    assert SLOW_TO_IMPORT.isdisjoint(imported)


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
