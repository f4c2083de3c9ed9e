"""Runs the blocks of a page of documentation, one after another. For the environment that has Spark.

`python -m compat_tests.pipeline.walkthrough PAGE ADDRESS` takes the blocks marked `python` and `sh` as they stand, but
for the broker's address, runs the former in one namespace and the latter by a shell, and prints a JSON line for each:
its first line and what it said. The first one that fails ends it.
"""

import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS_OF_PAGE = "127.0.0.1:9092"


def run_shell(text: str) -> str:
    ran = subprocess.run(["sh", "-eu", "-c", text], stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout


def main(page: str, address: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, (language, written) in enumerate(BLOCK.findall(pathlib.Path(page).read_text(encoding="utf-8"))):
        text = written.replace(ADDRESS_OF_PAGE, address)
        if language == "sh":
            said = run_shell(text)
        else:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, f"block {number} of {page}", "exec"), namespace)
            said = output.getvalue()
        print(json.dumps({"block": written.splitlines()[0], "said": said}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
