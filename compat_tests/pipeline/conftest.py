"""What the pipeline's tests share."""

from collections.abc import Iterator

import pytest

from compat_tests.pipeline.jobs import SHORT_LIVED_JVM, Commands
from compat_tests.spark.environment import spark_python


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A warm process for the commands that are not killed."""
    spark_python()
    process = Commands(tmp_path_factory.mktemp("commands"), **SHORT_LIVED_JVM)
    yield process
    process.close()
