"""Two cases with fewer numbers and strikes: every number is copied exactly once."""

import pytest

from compat_tests.copier.cases import Case
from compat_tests.copier.run import run
from compat_tests.tools import require_tool

SEED = 101
NUMBERS = 15_000


@pytest.mark.parametrize(
    "case",
    [Case("brokers", "SIGKILL", "metadata", 1), Case("copiers", "SIGKILL", "member", 3)],
    ids=lambda case: case.name,
)
def test_every_number_is_copied_exactly_once(case, tmp_path):
    require_tool("java")
    result = run(case, SEED, NUMBERS, tmp_path, rounds=1)
    assert result.verdict == "kept", result
    assert len(result.struck) == 3
    assert result.committed >= NUMBERS / 750
    assert result.aborted > 0
