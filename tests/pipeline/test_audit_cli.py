"""What the commands `audit` and `segments` say before they start any Spark."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from barnabas.pipeline import audit_cli, logs
from barnabas.pipeline.cli import pipeline


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["audit", "ledger.jsonl"], "what lies there? Give --replica, --bootstrap-server or --archive"),
        (["audit", "--bootstrap-server", "127.0.0.1:9092"], "--bootstrap-server needs --topic"),
        (["segments"], "Missing argument"),
    ],
)
def test_what_is_missing_is_reported(words, why):
    ran = CliRunner().invoke(pipeline, words)
    assert ran.exit_code == 2
    assert why in ran.stderr


@pytest.mark.parametrize("command", ["audit", "segments"])
def test_help_needs_no_spark(command):
    ran = CliRunner().invoke(pipeline, [command, "--help"])
    assert ran.exit_code == 0
    assert "--topic" in ran.stdout
    assert "--json" in ran.stdout


@pytest.fixture
def no_spark(monkeypatch):
    """A session that runs nothing: what a command reads before comes first."""
    errors = {"PySparkException": ArithmeticError, "AnalysisException": ArithmeticError, "Py4JError": ArithmeticError}
    for name in ("pyspark", "pyspark.errors", "py4j", "py4j.protocol"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**errors))
    tracker = SimpleNamespace(getActiveStageIds=list)
    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    monkeypatch.setattr(audit_cli, "spark_session", lambda *_: nullcontext(session))
    monkeypatch.setattr(audit_cli, "suit_to_one_machine", lambda _: None)


def test_an_audit_of_no_archive_is_not_taken_for_one_with_findings(no_spark, tmp_path):
    ran = CliRunner().invoke(pipeline, ["audit", "--archive", str(tmp_path)])
    assert (ran.exit_code, ran.stderr) == (
        2,
        f"barnabas: {tmp_path} holds no archive: there is no folder manifest in it\n",
    )


def test_an_audit_without_its_cluster_is_not_taken_for_one_with_findings(no_spark, monkeypatch):
    monkeypatch.setattr(logs, "ASK_SECONDS", 0.01)
    ran = CliRunner().invoke(pipeline, ["audit", "--bootstrap-server", "127.0.0.1:1", "--topic", "letters"])
    assert ran.exit_code == 2
    assert ran.stderr.startswith("barnabas: 127.0.0.1:1: _TRANSPORT: ")
