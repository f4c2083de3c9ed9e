"""The command line, from outside: what it prints, its status, and what it does not import."""

import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from barnabas import __version__
from barnabas.broker.cli import gather_settings
from barnabas.broker.config.live import BrokerConfig
from barnabas.form import FORM
from barnabas.wire import messages as m
from barnabas.wire.records import build_batch
from barnabas.wire.versioned_records import versioned

# Before the ready line none of these is imported: each costs tens of milliseconds. trio itself imports ssl.
HEAVY_MODULES = {"rich", "kazoo", "prometheus_client", "zstandard", "lz4", "snappy", "cramjam", "asyncio", "ssl"}
READY_SECONDS_MAX = 30


def barnabas(*arguments, cwd=None):
    command = [sys.executable, "-m", "barnabas.broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


@contextmanager
def running_broker(*arguments, cwd):
    command = [sys.executable, "-m", "barnabas.broker", "serve", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ready_line(process):
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(READY_SECONDS_MAX), "the broker is not ready"
    return process.stdout.readline()


def test_version_and_form_are_printed_as_text_and_as_json():
    assert barnabas("version").stdout == f"barnabas {__version__} ({FORM})\n"
    printed = json.loads(barnabas("version", "--json").stdout)
    assert (printed["barnabas"], printed["form"]) == (__version__, FORM)


def test_records_of_internal_topics_are_dumped_with_their_fields(tmp_path):
    directory, name = tmp_path / "__transaction_state-7", "00000000000000000000.log"
    directory.mkdir()
    key = versioned(m.TransactionLogKey(transactional_id="payments-1"), 0)
    (directory / name).write_bytes(build_batch([(key, None)], timestamp_ms=0).data)
    # Which topic it is only the name of the directory tells, wherever the command runs.
    for file, cwd in ((directory / name, None), (name, directory)):
        assert "transactional_id" not in barnabas("log", "dump", str(file), cwd=cwd).stdout
        printed = barnabas("log", "dump", "--records", str(file), cwd=cwd).stdout
        assert printed.splitlines()[1] == "offset: 0  timestamp: 0  transactional_id: payments-1  tombstone: True"


def test_the_served_apis_are_listed():
    lines = barnabas("apis").stdout.splitlines()
    assert any(line.split()[:3] == ["0", "Produce", "0-11"] for line in lines)
    listed = json.loads(barnabas("apis", "--json").stdout)
    assert {api["key"]: api["max_version"] for api in listed}[18] == 4


def test_the_configuration_shows_values_and_where_they_come_from(tmp_path):
    (tmp_path / "server.properties").write_text("log.segment.bytes=1000000\nssl.key.password=secret\n")
    shown = barnabas("config", "server.properties", "--set", "num.partitions=7", "--json", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(shown.stdout)}
    assert (rows["log.segment.bytes"]["value"], rows["log.segment.bytes"]["source"]) == (
        "1000000",
        "server.properties:1",
    )
    assert (rows["num.partitions"]["value"], rows["num.partitions"]["source"]) == ("7", "--set")
    assert (rows["ssl.key.password"]["value"], rows["broker.rack"]["value"]) == ("[hidden]", None)


def test_topic_properties_show_the_brokers_defaults():
    shown = barnabas("config", "--topic", "--set", "log.roll.hours=1").stdout
    assert "segment.ms = 3600000  (log.roll.ms or log.roll.hours, served)\n" in shown


@pytest.mark.parametrize("command", ["serve", "config"])
def test_a_malformed_value_ends_with_status_2_and_one_message(tmp_path, command):
    (tmp_path / "server.properties").write_text("\nlog.segment.bytes=13\n")
    ended = barnabas(command, "server.properties", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "barnabas: server.properties:2: Invalid value 13 for configuration log.segment.bytes: "
        "Value must be at least 14 (allowed: int [14,...])\n"
    )
    assert os.listdir(tmp_path) == ["server.properties"]


def test_a_missing_file_ends_with_status_2(tmp_path):
    ended = barnabas("serve", "server.properties", cwd=tmp_path)
    assert ended.returncode == 2
    assert "server.properties" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unknown_command_is_an_error():
    ended = barnabas("conquer")
    assert ended.returncode == 2
    assert "No such command 'conquer'" in ended.stderr


def test_later_settings_win_over_earlier_ones(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/a\nlisteners=PLAINTEXT://:1\nnum.partitions=2\n")
    config = BrokerConfig(gather_settings(str(file), "/b", "127.0.0.1:0", ["num.partitions=3"]))
    assert config.log_directories == ("/b",)
    assert (config.listeners, config.num_partitions) == ("PLAINTEXT://127.0.0.1:0", 3)


def test_the_broker_says_in_one_line_where_it_is_ready(tmp_path):
    with running_broker("--listen", "127.0.0.1:0", "--data-dir", "data", cwd=tmp_path) as broker:
        line = ready_line(broker)
        broker.terminate()
        rest, errors = broker.communicate(timeout=30)
    where = r"broker \d+ at PLAINTEXT://127.0.0.1:[1-9]\d*, cluster [\w-]{22}, data \S+"
    assert re.fullmatch(rf"barnabas {__version__} ready: {where}\n", line)
    assert rest == ""
    assert "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_is_a_clean_stop(tmp_path, number):
    with running_broker("--listen", "127.0.0.1:0", "--data-dir", "data", cwd=tmp_path) as broker:
        ready_line(broker)
        broker.send_signal(number)
        broker.communicate(timeout=30)
    assert broker.returncode == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.skipif(not os.path.exists("/proc/self/limits"), reason="the limit is read from /proc")
def test_the_limit_of_open_files_is_raised(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        with running_broker("--listen", "127.0.0.1:0", cwd=tmp_path) as broker:
            ready_line(broker)
            with open(f"/proc/{broker.pid}/limits", encoding="ascii") as limits:
                line = next(line for line in limits if line.startswith("Max open files"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert line.split()[3] == line.split()[4]


def test_an_installed_package_may_add_a_command(tmp_path, monkeypatch):
    (tmp_path / "extra.py").write_text("import click\n\n@click.command()\ndef greet():\n    click.echo('hello')\n")
    info = tmp_path / "extra-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[barnabas.commands]\ngreet = extra:greet\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert barnabas("greet").stdout == "hello\n"
    assert "greet" in barnabas("--help").stdout


def test_a_second_broker_on_the_same_directory_says_so_and_ends_with_status_1(tmp_path):
    with running_broker("--listen", "127.0.0.1:0", "--data-dir", "data", cwd=tmp_path) as broker:
        ready_line(broker)
        second = barnabas("serve", "--listen", "127.0.0.1:0", "--data-dir", "data", cwd=tmp_path)
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert "barnabas: " in second.stderr


def test_nothing_heavy_is_imported_to_serve():
    code = (
        "import sys, trio; before = set(sys.modules); import barnabas.broker.cli, barnabas.broker.process.run; "
        "print(*(set(sys.modules) - before))"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "barnabas.broker.serve" in imported
    assert HEAVY_MODULES.isdisjoint(imported)


def test_the_command_line_itself_imports_no_trio():
    code = "import sys, barnabas.broker.cli; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "trio" not in imported
    assert not any(name.startswith("barnabas.broker.config") for name in imported)


# -- store


def test_a_store_is_carried_from_one_data_directory_to_another(tmp_path):
    with running_broker("--data-dir", "data", "--listen", "127.0.0.1:0", cwd=tmp_path) as process:
        cluster = re.search(r"cluster (\S+),", ready_line(process))[1]
        busy = barnabas("store", "export", "--data-dir", "data", cwd=tmp_path)
        assert busy.returncode == 1
        assert "another process has it open" in busy.stderr
    exported = barnabas("store", "export", "--data-dir", "data", "nodes.json", cwd=tmp_path)
    assert (exported.returncode, exported.stdout, exported.stderr) == (0, "", "")
    nodes = {node["path"]: node for node in json.loads((tmp_path / "nodes.json").read_text())["nodes"]}
    assert nodes["/cluster/id"]["json"]["id"] == cluster
    filled = barnabas("store", "import", "--data-dir", "other", "nodes.json", "--json", cwd=tmp_path)
    assert json.loads(filled.stdout) == {"nodes": len(nodes)}
    copied = barnabas("store", "export", "--data-dir", "other", cwd=tmp_path)
    assert copied.stdout == (tmp_path / "nodes.json").read_text()
    again = barnabas("store", "import", "--data-dir", "other", "nodes.json", cwd=tmp_path)
    assert again.returncode == 1
    assert "is not empty" in again.stderr


def test_a_store_that_is_not_there_or_not_named_is_reported_in_one_line(tmp_path):
    missing = barnabas("store", "export", "--data-dir", "none", cwd=tmp_path)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "there is no such file" in missing.stderr
    assert not (tmp_path / "none").exists()
    unnamed = barnabas("store", "export", cwd=tmp_path)
    assert unnamed.returncode == 2
    assert "either --data-dir or --zookeeper" in unnamed.stderr
    (tmp_path / "nodes.json").write_text("[]")
    malformed = barnabas("store", "import", "--data-dir", "new", "nodes.json", cwd=tmp_path)
    assert malformed.returncode == 1
    assert "nodes.json: not an export" in malformed.stderr
    assert not (tmp_path / "new").exists()
