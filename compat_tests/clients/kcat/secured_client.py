"""kcat over TLS and SASL: the program of `access.py`, which starts kcat with a file of settings (-F)."""

import json
import pathlib
import subprocess
import tempfile
from base64 import urlsafe_b64decode

from compat_tests.clients.access import (
    REFUSED_SECONDS_MAX,
    SECONDS_MAX,
    Access,
    Done,
    Task,
    librdkafka_settings,
    run_program,
)

CONNECTION_LOST = 1  # how kcat ends when every broker is down


def settings_of(access: Access) -> dict[str, str]:
    settings = librdkafka_settings(access)
    if access.mechanism == "OAUTHBEARER":
        settings |= {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": oauth_config(access.token),
        }
    return settings


def oauth_config(token: str) -> str:
    """kcat takes no token, but librdkafka makes one without a signature: of the claim that names the user in ours."""
    payload = token.split(".")[1]
    claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    name = next(name for name in claims if name not in ("iat", "exp"))
    return f"principalClaimName={name} principal={claims[name]}"


def kcat(
    access: Access, *words: str, stdin: str = "", seconds: float = SECONDS_MAX
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="kcat-") as folder:
        file = pathlib.Path(folder) / "settings"
        file.write_text("".join(f"{name}={text}\n" for name, text in settings_of(access).items()))
        command = ["kcat", "-F", str(file), *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)


def once(access: Access, task: Task) -> Done:
    numbers = "".join(f"{number}\n" for number in range(task.records))
    wrote = kcat(access, "-P", "-t", task.topic, stdin=numbers)
    assert wrote.returncode == 0, wrote.stderr
    words = ["-o", "beginning", "-c", str(task.records), "-X", "auto.offset.reset=earliest"]
    read = kcat(access, *words, "-G", task.group, task.topic)
    assert read.returncode == 0, read.stderr
    return {"read": len(set(read.stdout.split()))}


def refused(access: Access, task: Task) -> Done:
    tried = kcat(access, "-L", "-m", "5", seconds=REFUSED_SECONDS_MAX)
    assert tried.returncode == CONNECTION_LOST, tried.stdout
    return {"refused": tried.stderr}


if __name__ == "__main__":
    librdkafka_settings, run_program(once=once, refused=refused)
