"""Live fault runs and fail-over times, appended to a file; a stopped series of runs continues where it was stopped.

python -m compat_tests.cluster run --runs 30 --seconds 60 --kind barnabas --out FILE
python -m compat_tests.cluster failover --kills 10 --out FILE
python -m compat_tests.cluster failover --report --out FILE
"""

import argparse
import json
import pathlib
import shutil
import signal
import sys
import tempfile

from compat_tests.cluster import failover, run
from compat_tests.cluster.nodes import KINDS


def main() -> int:
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end what was started, as after Ctrl-C
    if options.command == "failover":
        return measure(options)
    return run_all(options)


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compat_tests.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="random faults under load, then the ledger against the replicas")
    runs.add_argument("--runs", type=int, default=30)
    runs.add_argument("--seconds", type=float, default=60.0)
    runs.add_argument("--kind", choices=KINDS, default="barnabas")
    runs.add_argument("--seed", type=int, default=1, help="of the first run; the others count up")
    runs.add_argument("--load", choices=[*run.LOADS, "both"], default="both", help="both: every third is verifiable")
    runs.add_argument("--out", type=pathlib.Path, default=pathlib.Path("cluster-runs.jsonl"))
    runs.add_argument("--keep", type=pathlib.Path, help="where directories of broken runs go (default: beside --out)")
    runs.add_argument("--secured", action="store_true", help="TLS, logins and ACLs (needs namespaces)")
    runs.add_argument("--proxy", action="store_true", help="TCP proxies, although namespaces could be made")
    failovers = commands.add_parser("failover", help="the longest time without an acknowledgement when a leader dies")
    failovers.add_argument("--kills", type=int, default=10, help="of each kind of cluster")
    failovers.add_argument("--stops", type=int, default=3, help="clean stops of a leader, of each kind of cluster")
    failovers.add_argument("--kind", choices=[*KINDS, "both"], default="both")
    failovers.add_argument("--out", type=pathlib.Path, default=pathlib.Path("cluster-failover.jsonl"))
    failovers.add_argument("--report", action="store_true", help="only print the table of what was measured")
    return parser.parse_args(words)


def run_all(options: argparse.Namespace) -> int:
    """The runs that the file does not hold yet; status 1 if any run in it broke a promise."""
    for seed in range(options.seed, options.seed + options.runs):
        if any(result["seed"] == seed for result in results_of(options)):
            continue
        load = options.load if options.load != "both" else ("verifiable" if seed % 3 == 0 else "confluent")
        directory = pathlib.Path(tempfile.mkdtemp(prefix=f"cluster-{options.kind}-{seed}-"))
        kept = (options.keep or options.out.parent) / f"broken-{options.kind}-{seed}"
        try:
            result = one_run(options, seed, directory, load)
            with options.out.open("a") as out:
                out.write(json.dumps(result) + "\n")
            print(line_of(result), flush=True)
            if result["verdict"] != "kept":
                shutil.copytree(directory, kept, dirs_exist_ok=True)
                print(f"  its directory is kept: {kept}", flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return summarize(results_of(options))


def one_run(options: argparse.Namespace, seed: int, directory: pathlib.Path, load: str) -> dict:
    """One run's result; a run that did not come to its end is one as well."""
    namespaces = False if options.proxy else None
    try:
        result = run.run(
            options.kind, seed, options.seconds, directory, load=load, namespaces=namespaces, is_secured=options.secured
        )
        return result._asdict()
    except Exception as error:
        row = {"seed": seed, "kind": options.kind, "load": load, "seconds": options.seconds, "verdict": "unfinished"}
        return {**row, "findings": [["unfinished", f"{type(error).__name__}: {error}"]], "faults": [], "counts": {}}


def results_of(options: argparse.Namespace) -> list[dict]:
    if not options.out.exists():
        return []
    results = [json.loads(line) for line in options.out.read_text().splitlines() if line.strip()]
    return [result for result in results if result["kind"] == options.kind and result["seconds"] == options.seconds]


def line_of(result: dict) -> str:
    line = f"seed {result['seed']} {result['kind']} {result['load']}: {result['verdict']}"
    if result["counts"]:
        line += (
            f", {result['counts'].get('acked', 0)} acknowledged, {result['counts'].get('failed', 0)} failed, "
            f"{len(result['faults'])} faults, longest gap {result['longest_gap_s']} s, "
            f"whole after {result['recovery_s']} s"
        )
        if hung := result["counts"].get("hung"):
            line += f", {hung} readers hung"
    return "\n  ".join([line, *(f"{kind}: {text.splitlines()[0]}" for kind, text in result["findings"])])


def summarize(results: list[dict]) -> int:
    kept = sum(result["verdict"] == "kept" for result in results)
    acked = sum(result["counts"].get("acked", 0) for result in results)
    faults = sum(len(result["faults"]) for result in results)
    print(f"{kept} of {len(results)} runs kept every promise: {acked} records acknowledged under {faults} faults")
    return 0 if kept == len(results) else 1


def measure(options: argparse.Namespace) -> int:
    kinds = KINDS if options.kind == "both" else (options.kind,)
    if not options.report:
        failover.measure(kinds, options.kills, options.stops, options.out)
    print(failover.table(failover.read(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
