"""A task that people do with Kafka's scripts, and what tasks need to be there before.

Each task is done twice on one broker, by Kafka's script and by our command, with names of its own for the topics,
groups and users in it; what both leave behind, or print, is compared. `record_tasks.py` and `admin_tasks.py` are the
table of docs/commands.md.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Setup = tuple[str, str]  # one of our commands, and its standard input
Look = Callable[..., object]

# The records are old, and a broker deletes what is older than a week.
FILLED: Sequence[Setup] = (
    ("topics create orders --partitions 1 --set retention.ms=-1", ""),
    (
        "produce orders --json",
        "".join(
            json.dumps({"key": f"k{n}", "value": f"v{n}", "timestamp": 1_000_000_000_000 + 100 * n}) + "\n"
            for n in range(10)
        ),
    ),
)
EMPTY: Sequence[Setup] = (("topics create orders --partitions 1", ""),)
READ: Sequence[Setup] = (*FILLED, ("groups reset billing --topic orders --to 4 --yes", ""))
LINES = "one\ntwo\nthree\n"
FROM_START = "--from-beginning --timeout-ms 8000"


class Task(NamedTuple):
    """One row of the table. `look` is what is left behind; or the two `parse` make the printed answers comparable."""

    title: str
    theirs: str
    ours: str
    setup: Sequence[Setup] = ()
    given: str = ""  # standard input
    ours_given: str | None = None  # where it differs
    look: Look | None = None  # (both, names) -> what is compared
    parse_theirs: Callable[[str], object] | None = None
    parse_ours: Callable[[str], object] | None = None
    files: Mapping[str, str] = {}  # those that the script wants, by their names
