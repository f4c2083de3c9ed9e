"""What test programs print, as outcomes: go test -json, Rust's libtest, JUnit XML (pytest, node, mocha)."""

import json
import pathlib
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from compat_tests.clients.client import FAILED, PASSED, SKIPPED, Outcome

GO_STATUS = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
RUST_STATUS = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}


def go_outcomes(printed: str) -> list[Outcome]:
    """From `go test -json`. A test that began and never ended has failed: its program was killed or panicked."""
    began: dict[str, str] = {}
    for line in printed.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        test, action = event.get("Test"), event["Action"]
        if test is None:
            continue
        if action == "run":
            began.setdefault(test, FAILED)
        elif action in GO_STATUS:
            began[test] = GO_STATUS[action]
    return [Outcome(test, status) for test, status in began.items()]


def rust_outcomes(target: str, listed: str, printed: str) -> list[Outcome]:
    """From `cargo test --test TARGET`, first with `--list`. What is listed and not reported has failed."""
    outcomes = dict.fromkeys(re.findall(r"^(\S+): test$", listed, re.MULTILINE), FAILED)
    for name, word in re.findall(r"^test (\S+) \.\.\. .*?(ok|FAILED|ignored)\b", printed, re.MULTILINE):
        outcomes[name] = RUST_STATUS[word]
    return [Outcome(f"{target}::{name}", status) for name, status in outcomes.items()]


def junit_outcomes(path: pathlib.Path) -> list[Outcome]:
    """From a JUnit file; nothing if its writer did not live to write it. A test named twice keeps its worst end."""
    if not path.exists():
        return []
    worst: dict[str, str] = {}
    for test, status in _junit_cases(ElementTree.parse(path).getroot(), ""):
        if worst.get(test) != FAILED:
            worst[test] = status
    return [Outcome(test, status) for test, status in worst.items()]


def _junit_cases(node: ElementTree.Element, suite: str) -> Iterator[tuple[str, str]]:
    for child in node:
        if child.tag == "testsuite":
            yield from _junit_cases(child, child.get("name", ""))
        elif child.tag == "testcase":
            yield _junit_name(child, suite), _junit_status(child)


def _junit_name(case: ElementTree.Element, suite: str) -> str:
    name, group = case.get("name", ""), case.get("classname", "")
    if re.fullmatch(r"[\w.]+\.\w+", group):  # pytest: a module, or a class in it
        return f"{group.rsplit('.', 1)[-1]}.{name}"
    if group in ("", "test"):  # node calls every class so
        return f"{suite}: {name}" if suite else name
    return f"{group}: {name}"  # mocha: a sentence


def _junit_status(case: ElementTree.Element) -> str:
    tags = {child.tag for child in case}
    return FAILED if tags & {"failure", "error"} else SKIPPED if "skipped" in tags else PASSED
