"""kio 0.5.0, an independent codec generated from Kafka 3.9's own definitions, asked in a process of its own.

It needs an environment of its own, because its newer versions, which other tests may use, have the same import name:
BARNABAS_KIO_PYTHON names the interpreter.
"""

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def interpreter() -> str:
    """The Python that has kio; without one the test is skipped on a user's machine and fails where all must run."""
    python = os.environ.get("BARNABAS_KIO_PYTHON") or str(HERE.parents[1] / ".venv-kio" / "bin" / "python")
    if Path(python).exists():
        return python
    reason = f"kio 0.5.0 is not installed: no {python} (make .venv-kio, or set BARNABAS_KIO_PYTHON)"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def answers_of_kio(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One answer for each question, in the form that `kio_oracle.py` describes."""
    run = subprocess.run(
        [interpreter(), str(HERE / "kio_oracle.py")],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]
