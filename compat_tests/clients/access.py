"""How a client logs in, and what it is to do then: what `secured.py` writes to a file for the program of a client.

A program is started with the name of that file, which holds the fields of `Access` and `Task` in one JSON object, and
prints one JSON object at the end:

| mode | what the program does | what it prints |
|-|-|-|
| `once` | writes the numbers below `records` to `topic`, reads them through `group` | `{"read": different records}` |
| `refused` | writes one record and reports the error by which the client gives up | `{"refused": "text"}` |
| `steady` | for `seconds` writes a record every 20 ms, and reads it | `{"written": , "read": , "errors": []}` |

Passwords and tokens are in the file, not among the arguments, which every user of a machine can read.
"""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

SECONDS_MAX = 60.0  # that a client may take to write and to read what it should
REFUSED_SECONDS_MAX = 20.0  # and to report that the broker, or the client itself, refuses the connection
PACE_SECONDS = 0.02  # between two records of a steady producer


class Access(NamedTuple):
    """How a client connects; what its protocol does not need is empty."""

    bootstrap: str
    protocol: str  # as security.protocol has it
    mechanism: str = ""
    username: str = ""
    password: str = ""
    token: str = ""  # of OAUTHBEARER
    authority: str = ""  # PEM files: the certificate that is trusted,
    certificate: str = ""  # the client's own
    key: str = ""  # and its key

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


class Task(NamedTuple):
    """What a client does."""

    mode: str
    topic: str
    group: str
    records: int = 1
    seconds: float = 0.0


Done = dict[str, Any]
Act = Callable[[Access, Task], Done]


def librdkafka_settings(access: Access) -> dict[str, str]:
    """How a client over librdkafka connects; where it gets a token of OAUTHBEARER is its own matter."""
    settings = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": access.protocol,
        "broker.address.family": "v4",
    }
    if access.mechanism:
        settings["sasl.mechanism"] = access.mechanism
    if access.mechanism not in ("", "OAUTHBEARER"):
        settings |= {"sasl.username": access.username, "sasl.password": access.password}
    if access.authority:
        settings["ssl.ca.location"] = access.authority
    if access.certificate:
        settings |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.key}
    return settings


def kafka_python_settings(access: Access, token_provider: object) -> dict[str, Any]:
    """How kafka-python and aiokafka, which began as a part of it, connect and log in; of TLS the protocol alone."""
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.mechanism:
        settings["sasl_mechanism"] = access.mechanism
    if access.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = token_provider
    elif access.mechanism:
        settings |= {"sasl_plain_username": access.username, "sasl_plain_password": access.password}
    return settings


def write_private(path: pathlib.Path, value: object) -> None:
    """Write a value with secrets in it, as JSON."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(value))


def settings_file(folder: pathlib.Path, access: Access, task: Task) -> pathlib.Path:
    """Write the file that a program is started with."""
    path = folder / f"{task.topic}.json"
    write_private(path, {**access._asdict(), **task._asdict()})
    return path


def run_program(**acts: Act) -> None:
    """The main of a program in Python: `acts` by mode."""
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text())
    task = Task(**{name: settings.pop(name) for name in Task._fields})
    print(json.dumps(acts[task.mode](Access(**settings), task)))
