"""kcat, the command-line client over librdkafka, as Debian packages it: our scenarios through each of its modes."""

import re
import shutil
import subprocess

from compat_tests.clients.client import Client
from compat_tests.clients.pytest_suite import run_scenarios, secured_program


def version() -> str:
    """What the installed program says of itself and of its librdkafka."""
    if shutil.which("kcat") is None:
        return "not installed"
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    return " / ".join(re.findall(r"(?:Version|librdkafka) ([\d.]+)", said))


CLIENT = Client(
    name="kcat",
    version=version(),
    language="C",
    covers="our scenarios: -L, -P, -C, -G and -Q with keys, headers, partitions, codecs, offsets by number,"
    " from the end and by time, JSON, groups, idempotence",
    run=run_scenarios,
    secured=secured_program,
    tools=("kcat",),
)
