"""`barnabas store`: a cluster's metadata as a file, and credentials in a store, without a broker."""

import json
import os
import re

import pytest

from barnabas.security.sasl.scram import MECHANISMS, make_credential, parse_credential, salted_password
from tests.cli.running import barnabas, ready_line, running_broker


def test_a_store_is_carried_from_one_data_directory_to_another(tmp_path):
    with running_broker("--data-dir", "data", "--listen", "127.0.0.1:0", cwd=tmp_path) as process:
        cluster = re.search(r"cluster (\S+),", ready_line(process))[1]
        busy = barnabas("store", "export", "--data-dir", "data", cwd=tmp_path)
        assert busy.returncode == 1
        assert "another process has it open" in busy.stderr
    exported = barnabas("store", "export", "--data-dir", "data", "nodes.json", cwd=tmp_path)
    assert (exported.returncode, exported.stdout, exported.stderr) == (0, "", "")
    assert (tmp_path / "nodes.json").stat().st_mode & 0o777 == 0o600
    nodes = {node["path"]: node for node in json.loads((tmp_path / "nodes.json").read_text())["nodes"]}
    assert nodes["/cluster/id"]["json"]["id"] == cluster
    filled = barnabas("store", "import", "--data-dir", "other", "nodes.json", "--json", cwd=tmp_path)
    assert json.loads(filled.stdout) == {"nodes": len(nodes)}
    copied = barnabas("store", "export", "--data-dir", "other", cwd=tmp_path)
    assert copied.stdout == (tmp_path / "nodes.json").read_text()
    again = barnabas("store", "import", "--data-dir", "other", "nodes.json", cwd=tmp_path)
    assert again.returncode == 1
    assert "is not empty" in again.stderr


def test_the_properties_of_a_broker_name_its_store(tmp_path):
    (tmp_path / "server.properties").write_text("log.dirs=first,second\n")
    (tmp_path / "password").write_text("sortini")
    named = ["--config", "server.properties"]
    added = barnabas("store", "scram", "add", "alice", *named, "--password-file", "password", cwd=tmp_path)
    assert added.returncode == 0, added.stderr
    listed = barnabas("store", "scram", "list", "--data-dir", "first", "--json", cwd=tmp_path)
    assert {each["user"] for each in json.loads(listed.stdout)} == {"alice"}
    (tmp_path / "server.properties").write_text("log.dirs=first\nlog.segment.bytes=none\n")
    wrong = barnabas("store", "scram", "list", *named, cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "log.segment.bytes" in wrong.stderr


def test_a_store_that_is_not_there_or_not_named_is_reported_in_one_line(tmp_path):
    missing = barnabas("store", "export", "--data-dir", "none", cwd=tmp_path)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "there is no such file" in missing.stderr
    assert not (tmp_path / "none").exists()
    unnamed = barnabas("store", "export", cwd=tmp_path)
    assert unnamed.returncode == 2
    assert "one of --data-dir, --zookeeper and --config" in unnamed.stderr
    (tmp_path / "nodes.json").write_text("[]")
    malformed = barnabas("store", "import", "--data-dir", "new", "nodes.json", cwd=tmp_path)
    assert malformed.returncode == 1
    assert "nodes.json: not an export" in malformed.stderr
    assert not (tmp_path / "new").exists()


# -- SCRAM credentials in a store


def test_scram_credentials_are_written_listed_and_removed_without_a_broker(tmp_path):
    (tmp_path / "password").write_text("sortini\n")
    added = barnabas("store", "scram", "add", "alice", "--data-dir", "d", "--password-file", "password", cwd=tmp_path)
    assert (added.stdout, added.stderr) == ("alice: SCRAM-SHA-256, SCRAM-SHA-512 written\n", "")
    more = ("--mechanism", "SCRAM-SHA-512", "--iterations", "8192", "--password-env", "CASTLE_PASSWORD", "--json")
    added = barnabas("store", "scram", "add", "<default>", "--data-dir", "d", *more, cwd=tmp_path, CASTLE_PASSWORD="x")
    assert json.loads(added.stdout) == {"user": "<default>", "mechanisms": ["SCRAM-SHA-512"]}
    listed = barnabas("store", "scram", "list", "--data-dir", "d", "--json", cwd=tmp_path)
    assert [tuple(row.values()) for row in json.loads(listed.stdout)] == [
        ("<default>", "SCRAM-SHA-512", 8192),
        ("alice", "SCRAM-SHA-256", 4096),
        ("alice", "SCRAM-SHA-512", 4096),
    ]
    some = ("--data-dir", "d", "--mechanism", "SCRAM-SHA-512")
    removed = barnabas("store", "scram", "remove", "alice", *some, cwd=tmp_path)
    assert removed.stdout == "alice: SCRAM-SHA-512 removed\n"
    again = barnabas("store", "scram", "remove", "alice", *some, cwd=tmp_path)
    assert (again.returncode, again.stderr) == (1, "barnabas: alice has no credential of SCRAM-SHA-512\n")
    assert barnabas("store", "scram", "remove", "alice", "--data-dir", "d", cwd=tmp_path).returncode == 0
    listed = barnabas("store", "scram", "list", "--data-dir", "d", cwd=tmp_path)
    assert listed.stdout.splitlines()[1:] == ["<default>  SCRAM-SHA-512  8192"]


def test_a_written_credential_is_that_of_the_password(tmp_path):
    options = ("--password-file", "-", "--mechanism", "SCRAM-SHA-256", "--data-dir", "d")
    barnabas("store", "scram", "add", "jäger/1", *options, cwd=tmp_path, stdin="sörtini \nmore\n")
    exported = json.loads(barnabas("store", "export", "--data-dir", "d", cwd=tmp_path).stdout)["nodes"]
    (text,) = [
        node["json"]["config"]["SCRAM-SHA-256"] for node in exported if node["path"] == "/config/users/j%C3%A4ger%2F1"
    ]
    mechanism = MECHANISMS[1]
    stored = parse_credential(text, mechanism)
    salted = salted_password("sörtini ".encode(), stored.salt, 4096, mechanism)
    assert make_credential(salted, stored.salt, 4096, mechanism) == stored
    assert len(stored.salt) == 32


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--data-dir", "d"), "There is no terminal to ask for the password"),
        (("--data-dir", "d", "--password-env", "CASTLE_NONE"), "The password is empty, or not there"),
        (("--data-dir", "d", "--password-env", "BYTES"), "The password is not UTF-8"),
        (("--data-dir", "d", "--password-file", "empty"), "The password is empty, or not there"),
        (("--data-dir", "d", "--password-file", "latin"), "latin: the password is not UTF-8"),
        (("--data-dir", "d", "--password-file", "none"), "No such file"),
        (("--data-dir", "d", "--password-file", "-", "--password-env", "A"), "either --password-file or"),
        (("--data-dir", "d", "--password-env", "A", "--iterations", "4095"), "4096<=x<=16384"),
        (("--data-dir", "d", "--password-env", "A", "--mechanism", "PLAIN"), "SCRAM-SHA-512"),
        (("--password-env", "A"), "one of --data-dir, --zookeeper and --config"),
    ],
)
def test_a_credential_that_cannot_be_made_is_refused_before_a_store_is_made(tmp_path, options, why):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"\xe4\n")
    ended = barnabas("store", "scram", "add", "alice", *options, cwd=tmp_path, A="sortini", BYTES=os.fsdecode(b"\xe4"))
    assert ended.returncode == 2
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "d").exists()


def test_a_user_without_a_name_is_refused(tmp_path):
    ended = barnabas("store", "scram", "remove", "", "--data-dir", "d", cwd=tmp_path)
    assert (ended.returncode, "The name of a user is not empty" in ended.stderr) == (2, True)
