"""Each limit of memory, used up by one client for seconds: others are served without an error, in bounded memory."""

import pytest

from compat_tests.hostile.exhaust import LIMITS
from compat_tests.hostile.limits import MEMORY_BYTES_MAX, measure

SECONDS = 4.0
# `python -m compat_tests.hostile limits` measures on a quiet machine, where one second is the bound. A party that waits
# for the attackers, and not for the processor, waits as long as they last.
SERVED_MS_MAX = 15_000.0


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_is_used_up_delays_no_other_client(name: str) -> None:
    seen = measure(name, 1, SECONDS)
    assert seen.errors == []
    assert max(seen.waits_ms.values()) < SERVED_MS_MAX
    assert seen.memory_bytes < MEMORY_BYTES_MAX
