"""Kafka's exactly-once streams under kills, appended to a file; a stopped series continues where it was stopped.

python -m compat_tests.streams --runs 3 --minutes 5 --broker-kills 10 --instance-kills 5 --out FILE
python -m compat_tests.streams --form complex --seed 7 --kind kafka
"""

import argparse
import json
import pathlib
import shutil
import signal
import sys
import tempfile

from compat_tests.cluster.nodes import KINDS
from compat_tests.streams.processes import FORMS
from compat_tests.streams.run import run


def main() -> int:
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end what was started, as after Ctrl-C
    forms = list(FORMS) if options.form == "all" else [options.form]
    results = []
    for seed in range(options.seed, options.seed + options.runs):
        for form in forms:
            result = result_there(options, form, seed) or one_run(options, form, seed)
            results.append(result)
    kept = sum(result["verdict"] == "kept" for result in results)
    print(f"{kept} of {len(results)} runs delivered every record exactly once")
    return 0 if kept == len(results) else 1


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compat_tests.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--form", choices=[*FORMS, "all"], default="all")
    parser.add_argument("--kind", choices=KINDS, default="barnabas")
    parser.add_argument("--runs", type=int, default=1, help="of each form")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the others count up")
    parser.add_argument("--minutes", type=float, default=5.0, help="of input and kills; a run takes two more or so")
    parser.add_argument("--broker-kills", type=int, default=10)
    parser.add_argument("--instance-kills", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("streams-runs.jsonl"))
    parser.add_argument("--keep", type=pathlib.Path, help="where directories of broken runs go (default: beside --out)")
    return parser.parse_args(words)


def result_there(options: argparse.Namespace, form: str, seed: int) -> dict | None:
    """The result of this run, if the file has it."""
    wanted = {"form": form, "kind": options.kind, "seed": seed, "minutes": options.minutes}
    for line in options.out.read_text().splitlines() if options.out.exists() else []:
        result = json.loads(line)
        if wanted.items() <= result.items():
            return dict(result)
    return None


def one_run(options: argparse.Namespace, form: str, seed: int) -> dict:
    """Do this run and append its result; a run that did not come to its end is one as well."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"streams-{options.kind}-{form}-{seed}-"))
    kills = {"broker_kills": options.broker_kills, "instance_kills": options.instance_kills}
    result: dict = {"form": form, "kind": options.kind, "seed": seed, "minutes": options.minutes}
    try:
        try:
            result = run(form, options.kind, seed, options.minutes, directory, **kills)._asdict()
        except Exception as error:
            result |= {"verdict": "unfinished", "findings": [["unfinished", f"{type(error).__name__}: {error}"]]}
        with options.out.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(line_of(result), flush=True)
        if result["verdict"] != "kept":
            kept = (options.keep or options.out.parent) / f"broken-{options.kind}-{form}-{seed}"
            shutil.copytree(directory, kept, dirs_exist_ok=True)
            print(f"  its directory is kept: {kept}", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


def line_of(result: dict) -> str:
    line = f"{result['form']} {result['kind']} seed {result['seed']}: {result['verdict']}"
    if "kills" in result:
        line += (
            f", {result['produced']} records, {len(result['kills'])} kills, {result['fenced']} exceptions of fencing, "
            f"processing again after {result['recovery_s']} s, {result['seconds']} s in all"
        )
    return "\n  ".join([line, *(f"{kind}: {text}" for kind, text in result["findings"])])


if __name__ == "__main__":
    sys.exit(main())
