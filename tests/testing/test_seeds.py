"""Seeds of the simulated cluster: clean ones, and for each planted bug one that catches it.

`make test` runs the first few clean seeds, continuous integration the bugs of transactions, too, `make test-all` all
that are here, `make sim` thousands. A seed keeps its history over small changes of the code, and no more than that: a
clean seed is a sample, and where the seed that `make sim-bite` found for a bug does not catch it any more, one of the
next must.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.simulation.bugs import BUGS, KIND_OF, planted
from barnabas.testing.simulation.kinds import KINDS, PLAIN
from barnabas.testing.simulation.run import run_seed
from barnabas.testing.simulation.story import NOT_IN_CAST, who_is_who

ROOT = Path(__file__).parents[2]
CLEAN_SEEDS, QUICK_SEEDS = 50, 5
QUICK_SEEDS_OF_TRANSACTIONS = 3
SEEDS_TRIED = 20
LONG = (pytest.mark.thorough, pytest.mark.long)
BITES = Path(__file__).with_name("bites.json")


def is_quick(bug: str) -> bool:
    """Whether continuous integration looks for it."""
    return KIND_OF.get(bug) == "transactions"


def explain(report) -> str:
    story = "\n".join(report.story[-80:])
    return f"{story}\n\n{report.violations[0]}\nagain: python -m barnabas.testing.simulation --seed {report.seed}"


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=LONG) if seed > QUICK_SEEDS else seed for seed in range(1, CLEAN_SEEDS + 1)],
)
def test_a_seed_breaks_no_rule(seed):
    report = run_seed(seed)
    assert report.violations == [], explain(report)
    happened = min(report.events["acked"], report.events["read"])
    assert happened > 20, "a run in which nothing happens proves nothing"


@pytest.mark.parametrize("seed", range(1, QUICK_SEEDS_OF_TRANSACTIONS + 1))
def test_a_seed_with_transactions_breaks_no_rule(seed):
    report = run_seed(seed, kind="transactions")
    assert report.violations == [], explain(report)
    happened = min(report.counts["transactions committed"], report.counts["transactions aborted"])
    assert happened > 5, "a run in which nothing happens proves nothing"


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != PLAIN])
def test_a_seed_of_each_kind_breaks_no_rule(kind):
    report = run_seed(1, kind=kind)
    assert report.violations == [], explain(report)
    assert report.faults.keys() & set(KINDS[kind].faults), "none of what the kind is about happened"
    assert not [line for line in who_is_who(report.parties) if line.endswith(NOT_IN_CAST)]


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=pytest.mark.thorough if is_quick(bug) else LONG) for bug in BUGS],
)
def test_a_planted_bug_is_caught(bug, mistakes):
    first, kind = json.loads(BITES.read_text())[bug]["seed"], KIND_OF.get(bug, PLAIN)
    reports = (run_seed(first + more, bugs=[bug], kind=kind, until_caught=True) for more in range(SEEDS_TRIED))
    assert any(report.violations for report in reports), "it is not caught any more: make sim-bite"
    mistakes.take()  # some bugs are caught by their tracebacks, which the run has judged


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_taken_out_again(bug):
    with planted([bug]):
        inside = [(owner, name, getattr(owner, name)) for owner, name, _ in BUGS[bug]()]
    assert all(getattr(owner, name) is not wrong for owner, name, wrong in inside)


def printed_by(*options: str) -> subprocess.CompletedProcess[str]:
    """What `make sim SEED=…` prints."""
    command = [sys.executable, "-m", "barnabas.testing.simulation", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


def test_the_story_of_a_seed_says_who_is_who_what_was_cut_and_the_verdict():
    ran = printed_by("--seed", "17", "--kind", "plain", "--seconds", "5", "--lines", "20")
    assert ran.returncode == 0, ran.stderr
    assert "broker-1, broker-2, broker-3: a broker; the story calls it by its number" in ran.stdout
    assert 'make sim SEED=17 KIND=plain ARGS="--lines 0"' in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("Seed 17 breaks no rule")
    whole = printed_by("--seed", "17", "--kind", "plain", "--seconds", "5", "--lines", "0")
    assert "--lines 0" not in whole.stdout
    assert len(whole.stdout.splitlines()) > len(ran.stdout.splitlines())


def test_the_story_of_a_seed_ends_with_the_rule_that_it_broke():
    bite = json.loads(BITES.read_text())["early_ack"]
    ran = printed_by("--seed", str(bite["seed"]), "--kind", "plain", "--bug", "early_ack")
    assert ran.returncode == 1, ran.stderr
    *_, verdict, again = ran.stdout.splitlines()
    assert verdict.startswith(f"Seed {bite['seed']} breaks a rule: ")
    assert again.endswith(f"--seed {bite['seed']} --kind plain --bug early_ack")


@pytest.mark.thorough
def test_a_seed_is_one_history_whatever_the_hashes():
    code = "from barnabas.testing.simulation.run import run_seed; print(run_seed(5, 8.0).trace)"
    traces = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1] != "\n"
