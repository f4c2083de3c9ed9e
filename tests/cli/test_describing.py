"""`barnabas --help-json`, and names that nearly fit."""

import json
import subprocess
import sys


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
