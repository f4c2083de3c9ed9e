"""What holds of every file of our own that a browser gets."""

import re
from pathlib import Path

LINES_MAX = 400
RUNS_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|dangerously|\son\w+=\""
)
FOREIGN = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[\w-]+\.\w+")


def check_file(path: Path) -> None:
    """It is short, runs nothing that a record contains, and asks no other site."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert RUNS_TEXT.search(text) is None
    assert FOREIGN.search(text) is None, "the page asks its own broker only"
    assert " style=" not in text, "the content security policy refuses it"
