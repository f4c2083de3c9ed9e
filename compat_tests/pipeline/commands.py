"""`barnabas pipeline …`, one command after another in one process: a Java that is warm. For the environment with Spark.

`python -m compat_tests.pipeline.commands` reads a JSON list of words a line, runs it as the command line would, and
answers with one JSON line: status, standard output, standard error. `compare ARCHIVE BOOTSTRAP` is comparing.py.
"""

import json
import sys

from click.testing import CliRunner

from barnabas.pipeline.cli import pipeline
from compat_tests.pipeline.comparing import compare


def run(words: list[str]) -> dict[str, object]:
    """One command; what it said."""
    ran = CliRunner().invoke(compare if words[0] == "compare" else pipeline, words[words[0] == "compare" :])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception  # none of the errors that a command explains
    return {"status": ran.exit_code, "stdout": ran.stdout, "stderr": ran.stderr}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
