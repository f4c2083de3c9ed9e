"""What came of one seed, for a run of many in other processes, which do not know the functions of `__main__`."""

import traceback
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.testing.crashes.bugs import BUGS
from barnabas.testing.crashes.history import run_history
from barnabas.testing.simulation.bugs import planted


class Report(NamedTuple):
    """What came of one seed."""

    seed: int
    counts: "Counter[str]"
    failure: str | None


def report_of(seed: int, bugs: Sequence[str]) -> Report:
    """Run the history of this seed."""
    try:
        with planted(bugs, BUGS):
            return Report(seed, run_history(seed), None)
    except Exception as error:  # whatever a history ends with is a finding
        return Report(seed, Counter(), "".join(traceback.format_exception_only(error)).strip())
