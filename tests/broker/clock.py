"""The wall clock of tests in virtual time."""

import trio

START_MS = 1_700_000_000_000


def now_ms() -> int:
    """The wall clock, which goes with trio's."""
    return START_MS + round(trio.current_time() * 1000)
