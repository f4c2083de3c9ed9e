"""The bare loop that `make bench` compares with: Kafka's own producer must take it for a broker."""

import re

import pytest

from bench.contenders import BareLoop
from compat_tests.kafka import run_java_tool


@pytest.mark.parametrize("acks", ["1", "all"])
def test_the_java_producer_is_served_by_the_bare_loop(tmp_path, acks):
    bare = BareLoop(tmp_path)
    bare.start()
    try:
        ran = run_java_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "t", "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={bare.bootstrap}", f"acks={acks}"),
        )
    finally:
        bare.stop()
    assert re.search(r"^20000 records sent", ran.stdout, re.MULTILINE), ran.stdout + ran.stderr
    assert (tmp_path / "log").stat().st_size > 20_000 * 100
