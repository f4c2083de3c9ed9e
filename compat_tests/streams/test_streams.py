"""Kafka's complex exactly-once streams for a minute, while a broker and an instance are killed: all is delivered."""

import pytest

from compat_tests.streams.run import run
from compat_tests.tools import require_tool


@pytest.mark.long
@pytest.mark.thorough
def test_streams_deliver_every_record_once_although_broker_and_instance_are_killed(tmp_path):
    require_tool("java")
    result = run("complex", "barnabas", 1, 1.0, tmp_path, broker_kills=1, instance_kills=1)
    assert result.verdict == "kept", result
    assert len(result.kills) == 2
    assert result.produced > 5_000
