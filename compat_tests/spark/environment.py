"""The environment of programs with Spark: an interpreter that has PySpark, and the jars of Spark's Kafka connector.

Theory of operation. PySpark is large and needs Java, so that the project's own environment goes without it: whatever
uses Spark runs as a process of another one, `.venv-spark`, which holds the extra `spark` (`make .venv-spark/made`;
BARNABAS_SPARK_PYTHON names another interpreter). The connector is not part of PySpark. `pom.xml` names its four jars,
Maven copies them once, and a session takes them as `spark.jars`; users with open internet let Spark fetch them
(`spark.jars.packages`). Without Java, PySpark or the jars a test is skipped, and in continuous integration it fails.
"""

import functools
import os
import pathlib
import subprocess

from compat_tests.clients.client import ROOT, WORK
from compat_tests.kafka import bring_jars
from compat_tests.tools import give_up, require_tool

HERE = pathlib.Path(__file__).parent
POM = HERE / "pom.xml"
PYTHON_VARIABLE, JARS_VARIABLE = "BARNABAS_SPARK_PYTHON", "BARNABAS_SPARK_JARS"


@functools.cache
def spark_python() -> pathlib.Path:
    """The interpreter that has PySpark; without it, or without Java, the test is given up."""
    require_tool("java")
    python = pathlib.Path(os.environ.get(PYTHON_VARIABLE) or ROOT / ".venv-spark" / "bin" / "python")
    if not python.exists():
        give_up(f"PySpark is not installed: no {python} (make .venv-spark/made, or set {PYTHON_VARIABLE})")
    return python


@functools.cache
def connector_jars() -> list[pathlib.Path]:
    """The four jars of the connector; Maven brings them when it has not yet."""
    return sorted(bring_jars(POM, WORK / "spark").glob("*.jar"))


def spark_environment(**more: str) -> dict[str, str]:
    """The environment of a program with Spark: ours, the packages of the tree, the connector, and 127.0.0.1 alone."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
        JARS_VARIABLE: ",".join(map(str, connector_jars())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }


def run_with_spark(
    *arguments: str | pathlib.Path, timeout: float = 600, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` where PySpark is, to its end."""
    return subprocess.run(
        [str(spark_python()), *map(str, arguments)],
        env=spark_environment(**more),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
