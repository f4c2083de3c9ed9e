"""Run seeds of the simulated cluster, one or thousands; search seeds that catch planted bugs (edge).

    python -m barnabas.testing.simulation --seed 17             one seed, with its story
    python -m barnabas.testing.simulation --seed 17 --html F    the same, and as a diagram in the file F
    python -m barnabas.testing.simulation --seeds 2000          all from 1 on, in two processes, as long as it takes
    python -m barnabas.testing.simulation --bite                for each planted bug the first seed that catches it

A long run appends one JSON line per seed to `--results` and skips seeds that are there already, so it continues where
it was stopped. It ends with status 1 if any seed of the file has a violation; each of these is printed with the command
that replays it.
"""

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

from barnabas.progress import print_beside, progress
from barnabas.testing.simulation.bugs import BUGS, KIND_OF
from barnabas.testing.simulation.kinds import KINDS, PLAIN, combined
from barnabas.testing.simulation.run import SECONDS, UNCERTAIN_RULES, Report, run_seed
from barnabas.testing.simulation.story import who_is_who

History = tuple[int, float, list[str], str]  # seed, seconds, bugs, kind: what `run_seed` runs

MODULE = "barnabas.testing.simulation"
BITE_SEEDS_MAX = 500
BITES_FILE = Path("tests/testing/bites.json")
SEEDS_A_PROCESS = 50  # then another one begins, with another PYTHONHASHSEED


def main() -> int:
    """What the command line says."""
    options = parser()
    arguments = options.parse_args()
    if arguments.html is not None and arguments.seed is None:
        options.error("--html shows one history: name it with --seed")
    if arguments.bite:
        return _bite(arguments)
    if arguments.seed is not None:
        return _tell_one(arguments)
    return _run_many(arguments)


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    options = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--seed", type=int, help="run this one seed and tell its story")
    options.add_argument("--html", type=Path, metavar="FILE", help="write a diagram of this one seed")
    options.add_argument("--seeds", type=int, default=100, metavar="N", help="run seeds 1 to N")
    options.add_argument("--first", type=int, default=1, metavar="SEED", help="begin with this seed instead of 1")
    options.add_argument("--seconds", type=float, default=SECONDS, help="simulated seconds of load and faults")
    options.add_argument("--kind", default="", type=_kind, metavar="A+B", help=f"kinds: {', '.join(KINDS)}")
    options.add_argument("--bug", action="append", default=[], choices=BUGS, help="plant this bug")
    options.add_argument("--bite", action="store_true", help="search for each bug the first seed that catches it")
    options.add_argument("--results", type=Path, help="where results are appended (sim-results[-KIND].jsonl)")
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--lines", type=int, default=200, help="so many of the story's last lines; 0: all")
    return options


def _kind(name: str) -> str:
    """A kind, or several; or "" for those that each seed draws."""
    try:
        if name:
            combined(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def replay_command(seed: int, seconds: float = SECONDS, bugs: Sequence[str] = (), kind: str = "") -> str:
    """The command that runs this seed again."""
    options = ("" if seconds == SECONDS else f" --seconds {seconds:g}") + (f" --kind {kind}" if kind else "")
    return f"python -m {MODULE} --seed {seed}{options}" + "".join(f" --bug {bug}" for bug in bugs)


# -- one seed


def _tell_one(arguments: argparse.Namespace) -> int:
    history = arguments.seed, arguments.seconds, arguments.bug, arguments.kind
    report = run_seed(*history) if arguments.html is None else _draw(arguments.html, history)
    print(f"Seed {report.seed}: who is who (docs/simulation.md has the topics, and what may be lost of each)")
    for line in who_is_who(report.parties):
        print(f"  {line}")
    printed = report.story[-arguments.lines :]
    if len(printed) < len(report.story):
        print(f"\nThe last {len(printed)} of {len(report.story)} lines of the story; --lines 0 prints all:")
        print(f'    make sim SEED={report.seed}{f" KIND={arguments.kind}" * bool(arguments.kind)} ARGS="--lines 0"')
    print("\n  seconds  what happened")
    for line in printed:
        print(line)
    print(json.dumps(report.as_json(), indent=1))
    if not report.violations:
        print(f"\nSeed {report.seed} breaks no rule (docs/simulation.md has the rules)")
        return 0
    print(f"\nSeed {report.seed} breaks a rule: {len(report.violations)} violations; the first: {report.violations[0]}")
    print(f"again: {replay_command(*history)}")
    return 1


def _draw(path: Path, history: History) -> Report:
    """Run one seed, and write its diagram."""
    # Thousands of seeds run without a diagram, each in a process that imports no more than it needs.
    from barnabas.testing.simulation.diagram import packing
    from barnabas.testing.simulation.diagram.recorder import Recorder

    # A file that cannot be written is noticed before the run, which takes seconds. The page is written when the run is
    # over, whatever became of it.
    try:
        page = path.open("w", encoding="utf-8")
    except OSError as error:
        sys.exit(f"--html {path}: {error.strerror}")
    with page:
        recorder = Recorder()
        report = run_seed(*history, recorder=recorder)
        shown = packing.history(report, recorder.recording, replay_command(*history))
        page.write(packing.page(shown, {name: _part(name) for name in packing.PARTS}))
    print(f"{path}: {len(recorder.recording.messages)} messages, {path.stat().st_size // 1000} kB", file=sys.stderr)
    return report


def _part(name: str) -> str:
    return (files("barnabas.testing.simulation.diagram") / name).read_text(encoding="utf-8")


# -- many


def _run_many(arguments: argparse.Namespace) -> int:
    path = arguments.results or Path(f"sim-results{'-' * bool(arguments.kind)}{arguments.kind}.jsonl")
    done = {line["seed"] for line in _lines_of(path)}
    seeds = [seed for seed in range(arguments.first, arguments.first + arguments.seeds) if seed not in done]
    print(f"{len(seeds)} seeds to run, {len(done)} in {path}", flush=True)
    work = partial(run_seed, seconds=arguments.seconds, bugs=arguments.bug, kind=arguments.kind)
    with path.open("a", encoding="utf-8") as results, progress("run", len(seeds), " seeds", lines=True) as advance:
        for report in _in_processes(work, seeds, arguments.processes):
            results.write(json.dumps(report.as_json()) + "\n")
            results.flush()
            if report.violations:
                print_beside(f"seed {report.seed} ({report.kind}): {report.violations[0]}")
            advance(1)

    return _summarize(_lines_of(path), arguments)


def _in_processes(work: "partial[Report]", seeds: Sequence[int], processes: int) -> Iterator[Report]:
    if processes <= 1:
        yield from map(work, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=SEEDS_A_PROCESS) as pool:
        yield from pool.imap_unordered(work, seeds)


def _lines_of(results: Path) -> list[dict[str, object]]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line]


def _summarize(lines: Sequence[dict[str, object]], arguments: argparse.Namespace) -> int:
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for line in lines:
        for total, name in ((faults, "faults"), (counts, "counts"), (events, "events")):
            found = line[name]
            if isinstance(found, dict):
                total.update(found)

    bad = [line for line in lines if line["violations"]]
    cpu = sorted(float(str(line["cpu_seconds"])) for line in lines)
    print(f"{len(lines)} seeds, {len(bad)} with violations")
    if cpu:
        print(f"CPU seconds a seed: median {cpu[len(cpu) // 2]:.2f}, longest {cpu[-1]:.2f}")
    for title, total in (("faults", faults), ("replicas", counts), ("answers", events)):
        print(f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    for line in bad:
        again = replay_command(int(str(line["seed"])), arguments.seconds, arguments.bug, arguments.kind)
        print(f"  {again}   # {line['rules']}")
    return 1 if bad else 0


# -- planted bugs


def _bite(arguments: argparse.Namespace) -> int:
    bites: dict[str, dict[str, object]] = {}
    sought = arguments.bug or list(BUGS)
    with progress("search", len(sought), " bugs") as advance:
        for bug in sought:
            found = _first_bite(bug, arguments)
            if found is None:
                print_beside(f"{bug}: not caught by {BITE_SEEDS_MAX} seeds")
            else:
                bites[bug] = {"seed": found.seed, "rule": found.rules[0], "violation": found.violations[0][:200]}
                print_beside(f"{bug}: seed {found.seed}: {found.violations[0]}")
            advance(1)
    before = json.loads(BITES_FILE.read_text(encoding="utf-8")) if BITES_FILE.exists() else {}
    BITES_FILE.write_text(json.dumps(before | bites, indent=1) + "\n", encoding="utf-8")
    return 0 if bites.keys() >= set(sought) else 1


def _first_bite(bug: str, arguments: argparse.Namespace) -> Report | None:
    """The report of the first seed, in their order, that catches this bug, and finds nothing without it."""
    kind = arguments.kind or KIND_OF.get(bug, PLAIN)
    right = partial(run_seed, seconds=arguments.seconds, kind=kind)
    work = partial(right, bugs=[bug], until_caught=True)
    step = 4 * arguments.processes
    for first in range(1, BITE_SEEDS_MAX + 1, step):
        seeds = range(first, min(first + step, BITE_SEEDS_MAX + 1))
        reports = {report.seed: report for report in _in_processes(work, seeds, arguments.processes)}
        for seed in seeds:
            if set(reports[seed].rules) - UNCERTAIN_RULES and not right(seed).violations:
                return reports[seed]
    return None


if __name__ == "__main__":
    sys.exit(main())
