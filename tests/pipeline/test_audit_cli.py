"""What the commands `audit` and `segments` say before they start any Spark."""

import pytest
from click.testing import CliRunner

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
