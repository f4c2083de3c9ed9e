"""Record the answers of Apache Kafka to the scenarios: python -m compat_tests.differential --record [FAMILY...]

FAMILY is a file of scenarios/ without its ending; without one all are recorded. Needs Java, and Maven the first time.
"""

import argparse
import pathlib
import sys
import tempfile
import traceback
from typing import Any

from compat_tests.differential import recorded, scenarios
from compat_tests.differential.scenario import answers_of, load
from compat_tests.differential.side import Side
from compat_tests.differential.single_brokers import kafka_in, make_ready


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.differential", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="some of the files of scenarios (all)")
    parser.add_argument("--record", action="store_true", required=True, help="keep what Kafka answers")
    wanted = parser.parse_args().families

    load(scenarios)
    chosen = [name for name in recorded.recorded_scenarios() if not wanted or recorded.family_of(name) in wanted]
    answers: dict[str, dict[str, Any]] = {}
    failed: set[str] = set()  # families
    with tempfile.TemporaryDirectory(prefix="differential-") as scratch:
        directory = pathlib.Path(scratch)
        with kafka_in(directory) as kafka:
            make_ready("kafka", kafka.port, directory)
            for name in chosen:
                try:
                    answers[name] = answers_of(name, Side("kafka", kafka.port, directory, name))
                except Exception:
                    failed.add(recorded.family_of(name))
                    traceback.print_exc()
                else:
                    print(f"{name}: {len(answers[name])} answers", flush=True)

    whole = {name: found for name, found in answers.items() if recorded.family_of(name) not in failed}
    for path in recorded.write(whole):
        print(f"changed: {path.name}")
    for family in sorted(failed):
        print(f"not recorded: {family}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
