"""Cases of the copier, appended to a file; stopped, it continues with the cases that the file does not hold yet.

python -m compat_tests.copier --seed 1 --out FILE                    # Apache Kafka's matrix of 16 cases, and more
python -m compat_tests.copier --case "brokers SIGKILL id 1" --out FILE
python -m compat_tests.copier --report --out FILE
"""

import argparse
import json
import pathlib
import shutil
import signal
import sys
import tempfile

from compat_tests.cluster.nodes import KINDS
from compat_tests.copier.cases import CASES, Case
from compat_tests.copier.run import run

HEADING = "| case | seconds | committed | aborted | strikes | copiers started | verdict |\n|-|-|-|-|-|-|-|"


def main() -> int:
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end what was started, as after Ctrl-C
    if not options.report:
        for case in CASES:
            if case.name in (options.case or [each.name for each in CASES]):
                run_once(options, case)
    results = results_of(options)
    print("\n".join([HEADING, *map(row_of, results)]))
    return 0 if all(result["verdict"] == "kept" for result in results) else 1


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compat_tests.copier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [case.name for case in CASES]
    parser.add_argument("--case", choices=names, action="append", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--numbers", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, default="barnabas")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("copier.jsonl"))
    parser.add_argument("--keep", type=pathlib.Path, help="for directories of broken cases (default: beside --out)")
    parser.add_argument("--proxy", action="store_true", help="TCP proxies, although namespaces could be made")
    parser.add_argument("--report", action="store_true", help="only print the table of what the file holds")
    return parser.parse_args(words)


def run_once(options: argparse.Namespace, case: Case) -> None:
    """Run the case unless the file holds it."""
    if any(result["case"] == case.name for result in results_of(options)):
        return
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"copier-{options.kind}-"))
    kept = (options.keep or options.out.parent) / f"broken-{options.kind}-{options.seed}-{case.name.replace(' ', '-')}"
    try:
        namespaces = False if options.proxy else None
        result = run(case, options.seed, options.numbers, directory, kind=options.kind, namespaces=namespaces)._asdict()
        with options.out.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(row_of(result), flush=True)
        for finding, text in result["findings"]:
            print(f"  {finding}: {text}", flush=True)
        if result["findings"]:
            shutil.copytree(directory, kept, dirs_exist_ok=True)
            print(f"  its directory is kept: {kept}", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def results_of(options: argparse.Namespace) -> list[dict]:
    """What the file holds of these options."""
    if not options.out.exists():
        return []
    results = [json.loads(line) for line in options.out.read_text().splitlines() if line.strip()]
    same = options.kind, options.seed, options.numbers
    return [result for result in results if (result["kind"], result["seed"], result["numbers"]) == same]


def row_of(result: dict) -> str:
    cells = [
        result["case"],
        result["seconds"],
        result["committed"],
        result["aborted"],
        len(result["struck"]),
        result["starts"],
        result["verdict"],
    ]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
