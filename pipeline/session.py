"""The Spark session that every job runs in (edge): one place that says what Barnabas needs of Spark.

Theory of operation. `open_session` starts Spark in this process (`local[2]` unless asked otherwise), with the Kafka
connector on its class path, or takes the session that already runs, as it is: under `spark-submit` and in notebooks the
user has configured it. Python workers run the interpreter of the driver and import `barnabas` from where the driver
has it. Time zones are UTC, so that a date in an archive means the same on every machine. Traffic between the parts of
a local Spark stays on 127.0.0.1, and the web interface is off.

The connector is a set of jars. `--jars`, or BARNABAS_SPARK_JARS, names them (a directory or a comma-separated list);
without them Spark fetches the connector of its own version from Maven Central when it starts.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_VARIABLE = "BARNABAS_SPARK_JARS"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"  # PySpark 4 is built for Scala 2.13 alone
JAVA_VERSION_MIN = 17
LOCALHOST = "127.0.0.1"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
WARNINGS_TO_STDERR = "-Xlog:disable -Xlog:all=warning:stderr"  # Java's standard output is ours, and may be JSON
WHAT_TO_INSTALL = (
    "the data pipelines need PySpark and Java: pip install '.[spark]' in a clone of Barnabas, and Java 17 or newer"
)


class MissingSpark(RuntimeError):
    """PySpark, or the Java that it runs on, is not here; the message says what to install."""


def require_spark() -> None:
    """Raise MissingSpark unless PySpark can be imported and a Java that suits it can be started."""
    try:
        import pyspark  # noqa: F401  # whether it is there
    except ImportError as error:
        raise MissingSpark(f"{WHAT_TO_INSTALL} ({error})") from error
    java = find_java()
    if java is None:
        raise MissingSpark(f"{WHAT_TO_INSTALL} (no java on the path, and JAVA_HOME is not set)")
    version = java_version(java)
    if version < JAVA_VERSION_MIN:
        raise MissingSpark(f"{WHAT_TO_INSTALL} ({java} is Java {version})")


def find_java() -> str | None:
    """The program that Spark's scripts will start: that of JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


@cache
def java_version(java: str) -> int:
    """The feature release of a Java: 17 of "17.0.15", 8 of "1.8.0_402"; 0 when it does not say."""
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return feature_release(said.stderr + said.stdout)


def feature_release(said: str) -> int:
    """What `java -version` said, as one number."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


def connector_jars(jars: Sequence[str] | None) -> list[str]:
    """The jars that were named, or those of the environment; a directory stands for the jars in it."""
    named = list(jars) if jars else [name for name in os.environ.get(JARS_VARIABLE, "").split(",") if name]
    found: list[str] = []
    for name in named:
        path = Path(name)
        inside = sorted(map(str, path.glob("*.jar"))) if path.is_dir() else [name]
        if not inside:
            raise MissingSpark(f"no jars in {name}")
        found += inside
    return found


def import_path() -> str | None:
    """The folder that Python workers need on their path to import barnabas; None where it is installed."""
    import barnabas

    folder = Path(str(barnabas.__file__)).absolute().parent.parent
    return None if folder.name in {"site-packages", "dist-packages"} else str(folder)


def settings(jars: Sequence[str] | None, driver_memory: str, conf: dict[str, str]) -> dict[str, str]:
    """What a new session is configured with; `conf` has the last word."""
    import pyspark

    found = connector_jars(jars)
    connector = {"spark.jars": ",".join(found)} if found else {}
    packages = {"spark.jars.packages": CONNECTOR.format(version=pyspark.__version__)} if not found else {}
    path = import_path()
    if JAVA_OPTIONS in conf:
        conf = {**conf, JAVA_OPTIONS: f"{WARNINGS_TO_STDERR} {conf[JAVA_OPTIONS]}"}
    return {
        **connector,
        **packages,
        **({"spark.executorEnv.PYTHONPATH": path} if path else {}),
        "spark.driver.memory": driver_memory,
        JAVA_OPTIONS: WARNINGS_TO_STDERR,
        "spark.driver.host": LOCALHOST,
        "spark.driver.bindAddress": LOCALHOST,
        "spark.log.level": "ERROR",  # its warnings are about settings that are as they should be here
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }


def open_session(
    name: str,
    *,
    jars: Sequence[str] | None = None,
    master: str = "local[2]",
    driver_memory: str = "1g",
    **conf: str,
) -> "SparkSession":
    """The session that runs in this process, or a new one; `conf` are Spark's own settings (`**{"spark.…": "…"}`).

    Raises MissingSpark when PySpark or Java is not there.
    """
    require_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # These are read when the Java side and its Python workers are started. What the user has set
    # stays.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOCALHOST)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings(jars, driver_memory, conf).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
