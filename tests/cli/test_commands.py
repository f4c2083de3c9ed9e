"""The command line, from outside: what it prints, its status, and what it does not import."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

from barnabas import __version__
from barnabas.cli.settings import gather_settings
from barnabas.config.live import BrokerConfig
from barnabas.form import FORM
from barnabas.wire import messages as m
from barnabas.wire.records import build_batch
from barnabas.wire.versioned_records import versioned
from tests.cli.running import barnabas, ready_line, running_broker

HEAVY_MODULES = {"rich", "kazoo", "prometheus_client", "zstandard", "lz4", "snappy", "cramjam", "asyncio", "ssl"}
WITHOUT_PAGE = ("--set", "barnabas.http.listener=")


def test_version_and_form_are_printed_as_text_and_as_json():
    assert barnabas("version").stdout == f"barnabas {__version__} ({FORM})\n"
    printed = json.loads(barnabas("version", "--json").stdout)
    assert (printed["barnabas"], printed["form"]) == (__version__, FORM)


def test_the_version_is_an_option_too():
    assert barnabas("--version").stdout == f"barnabas {__version__} ({FORM})\n"


def test_records_of_internal_topics_are_dumped_with_their_fields(tmp_path):
    directory, name = tmp_path / "__transaction_state-7", "00000000000000000000.log"
    directory.mkdir()
    key = versioned(m.TransactionLogKey(transactional_id="payments-1"), 0)
    (directory / name).write_bytes(build_batch([(key, None)], timestamp_ms=0).data)
    # Which topic it is only the name of the directory tells, wherever the command runs.
    for file, cwd in ((directory / name, None), (name, directory)):
        assert "transactional_id" not in barnabas("log", "dump", str(file), cwd=cwd).stdout
        printed = barnabas("log", "dump", "--records", str(file), cwd=cwd).stdout
        time = "timestamp: 1970-01-01T00:00:00.000Z"
        assert printed.splitlines()[1] == f"offset: 0  {time}  transactional_id: payments-1  tombstone: True"


def test_what_is_dumped_for_programs_has_a_value_for_each_name(tmp_path):
    name = "00000000000000000000.log"
    (tmp_path / name).write_bytes(build_batch([(b"K.", None)], timestamp_ms=7).data)
    printed = barnabas("log", "dump", "--records", "--json", name, cwd=tmp_path).stdout
    batch, record = map(json.loads, printed.splitlines())
    assert (batch["last_offset"], batch["codec"], batch["intact"]) == (0, "none", True)
    assert record == {"offset": 0, "timestamp": 7, "key": "K.", "value": None, "headers": None}


def test_all_files_of_a_directory_are_dumped_and_the_damaged_are_named(tmp_path):
    segment, empty = tmp_path / "letters-0" / "00000000000000000000.log", tmp_path / "letters-1"
    segment.parent.mkdir()
    empty.mkdir()
    segment.write_bytes(build_batch([(b"K.", None)], timestamp_ms=1_700_000_000_123).data)
    (segment.parent / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (segment.parent / "notes.txt").write_text("not of a log")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nletters 0 7\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("damaged")

    dumped = barnabas("log", "dump", "--records", str(tmp_path))
    assert dumped.returncode == 1
    assert dumped.stderr.startswith(f"barnabas: {tmp_path}/log-start-offset-checkpoint: line 1: ")
    assert dumped.stderr.count("\n") == 1
    lines = dumped.stdout.splitlines()
    assert [line for line in lines if line.startswith("==")] == [
        f"== {segment}",
        f"== {segment.parent}/leader-epoch-checkpoint",
        f"== {tmp_path}/log-start-offset-checkpoint",
        f"== {tmp_path}/recovery-point-offset-checkpoint",
    ]
    assert "offset: 0  timestamp: 2023-11-14T22:13:20.123Z  key: K.  value: -  headers: -" in lines
    assert lines[-1] == "topic: letters  partition: 0  offset: 7"

    of_one = barnabas("log", "dump", "--json", "letters-0", cwd=tmp_path)
    assert of_one.returncode == 0
    rows = [json.loads(line) for line in of_one.stdout.splitlines()]
    assert [row["file"] for row in rows if "file" in row] == [str(segment), f"{segment.parent}/leader-epoch-checkpoint"]
    assert rows[1]["max_timestamp"] == 1_700_000_000_123


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


PROVIDERS = """
config.providers=env
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
listeners=OUTSIDE://127.0.0.1:0
listener.security.protocol.map=OUTSIDE:SSL
inter.broker.listener.name=OUTSIDE
num.partitions=${env::CASTLE_PARTITIONS}
ssl.key.password=${env:CASTLE_PASSWORD}
listener.name.outside.ssl.keystore.password=${env:CASTLE_PASSWORD}
"""


def test_values_of_config_providers_are_shown_with_their_references(tmp_path):
    (tmp_path / "server.properties").write_text(PROVIDERS)
    secrets = {"CASTLE_PARTITIONS": "7", "CASTLE_PASSWORD": "sortini"}
    for options in (("--json",), (), ("--listeners", "--json"), ("--listeners",), ("--docs",)):
        shown = barnabas("config", "server.properties", *options, cwd=tmp_path, **secrets)
        assert shown.returncode == 0
        assert "sortini" not in shown.stdout + shown.stderr
    assert "OUTSIDE: ssl.key.password = [hidden]  (server.properties:8 ${env:CASTLE_PASSWORD} ssl.key.password" in (
        barnabas("config", "server.properties", "--listeners", cwd=tmp_path, **secrets).stdout
    )
    rows = json.loads(barnabas("config", "server.properties", "--json", cwd=tmp_path, **secrets).stdout)
    (partitions,) = [row for row in rows if row["name"] == "num.partitions"]
    assert (partitions["value"], partitions["source"]) == ("7", "server.properties:7 ${env::CASTLE_PARTITIONS}")
    # What config.providers says is used, and no unknown property.
    assert "config.providers" not in barnabas("config", "server.properties", cwd=tmp_path, **secrets).stderr


def test_a_reference_that_leads_nowhere_ends_the_start_with_its_place(tmp_path):
    (tmp_path / "server.properties").write_text(PROVIDERS)
    for command in ("serve", "config"):
        ended = barnabas(command, "server.properties", cwd=tmp_path, CASTLE_PASSWORD="sortini")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == (
            "barnabas: server.properties:7: num.partitions: ${env::CASTLE_PARTITIONS}: "
            "there is no such variable, or it is not allowed\n"
        )


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
    config = BrokerConfig(gather_settings(str(file), None, "127.0.0.1:0", ["num.partitions=3", "log.dirs=/b"]))
    assert config.log_directories == ("/b",)
    assert (config.listeners, config.num_partitions) == ("PLAINTEXT://127.0.0.1:0", 3)


@pytest.mark.parametrize("name", ["log.dir", "log.dirs"])
def test_a_second_place_for_the_data_is_an_error_that_names_both(tmp_path, name):
    (tmp_path / "server.properties").write_text(f"broker.id=1\n{name}=a\n")
    for arguments, place in ((["server.properties"], "server.properties:2"), (["--set", f"{name}=a"], "--set")):
        ended = barnabas("serve", *arguments, "--data-dir", "b", "--listen", "127.0.0.1:0", cwd=tmp_path)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"barnabas: {place}: {name} and --data-dir both say where the data are")
    assert [path.name for path in tmp_path.iterdir()] == ["server.properties"]


def test_the_broker_says_in_one_line_where_it_is_ready(tmp_path):
    with running_broker("--listen", "127.0.0.1:0", "--data-dir", "data", *WITHOUT_PAGE, cwd=tmp_path) as broker:
        line = ready_line(broker)
        broker.terminate()
        rest, errors = broker.communicate(timeout=30)
    where = r"broker \d+ at PLAINTEXT://127.0.0.1:[1-9]\d*, cluster [\w-]{22}, data \S+"
    assert re.fullmatch(rf"barnabas {__version__} ready: {where}\n", line)
    assert rest == ""
    assert "Traceback" not in errors


def test_a_second_line_says_where_its_page_is(tmp_path):
    arguments = ("--listen", "127.0.0.1:0", "--set", "barnabas.http.listener=127.0.0.1:0")
    with running_broker(*arguments, cwd=tmp_path) as broker:
        # This listener was asked for, so it is there before the broker is.
        page = re.fullmatch(r"page (http://127\.0\.0\.1:[1-9]\d*/)\n", ready_line(broker))
        assert page is not None
        assert " ready: " in ready_line(broker)
        with urlopen(f"{page[1]}readyz") as answer:
            assert json.load(answer) == {"ok": True, "state": "running", "reasons": []}


def test_a_port_that_is_taken_is_an_error_if_it_was_asked_for(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listener = f"barnabas.http.listener={address}"
        ended = barnabas("serve", "--listen", "127.0.0.1:0", "--set", listener, cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"barnabas: cannot listen for HTTP on {address}: Address already in use"


def test_a_malformed_address_of_the_page_is_an_error_with_its_place(tmp_path):
    ended = barnabas("serve", "--set", "barnabas.http.listener=moon", cwd=tmp_path)
    assert ended.returncode == 2
    assert "moon for configuration barnabas.http.listener: Value must be host:port" in ended.stderr


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


def install_command(directory, point):
    """A package that adds the command `greet` by this entry point."""
    info = directory / "extra-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[barnabas.commands]\ngreet = {point}\n")


@pytest.mark.parametrize("is_archive", [False, True])
def test_an_installed_package_may_add_a_command(tmp_path, monkeypatch, is_archive):
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "extra.py").write_text("import click\n\n@click.command()\ndef greet():\n    click.echo('hello')\n")
    install_command(folder, "extra:greet")
    monkeypatch.setenv("PYTHONPATH", shutil.make_archive(str(folder), "zip", folder) if is_archive else str(folder))
    assert barnabas("greet").stdout == "hello\n"
    assert "greet" in barnabas("--help").stdout


@pytest.mark.parametrize(
    ("source", "point", "why"),
    [
        ("", "nowhere:greet", "ModuleNotFoundError: No module named 'nowhere'"),
        ("", "extra:greet", "AttributeError: module 'extra' has no attribute 'greet'"),
        ("1 / 0", "extra:greet", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_one_line(tmp_path, monkeypatch, source, point, why):
    (tmp_path / "extra.py").write_text(source)
    install_command(tmp_path, point)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    listed = barnabas("--help")
    assert listed.returncode == 0
    words = " ".join(listed.stdout.split())  # a long line is broken
    assert f"greet (cannot be loaded: {why})" in words
    assert "pipeline Jobs on Apache Spark" in words
    ended = barnabas("greet", "--to", "K.", "--help")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"barnabas: the command greet cannot be loaded: {why}\n"


def test_a_second_broker_on_the_same_directory_says_so_and_ends_with_status_1(tmp_path):
    with running_broker("--listen", "127.0.0.1:0", "--data-dir", "data", cwd=tmp_path) as broker:
        ready_line(broker)
        second = barnabas("serve", "--listen", "127.0.0.1:0", "--data-dir", "data", cwd=tmp_path)
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert "barnabas: " in second.stderr


def test_nothing_heavy_is_imported_to_serve():
    code = (
        "import sys, trio; before = set(sys.modules); import barnabas.cli.serve, barnabas.broker.process.run; "
        "print(*(set(sys.modules) - before))"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "barnabas.broker.serve" in imported
    assert HEAVY_MODULES.isdisjoint(imported)


def test_the_command_line_itself_imports_no_trio():
    code = "import sys, barnabas.cli.commands; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "trio" not in imported
    assert not any(name.startswith("barnabas.config") for name in imported)
