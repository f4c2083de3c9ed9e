"""`barnabas image`: what the container image runs, in place of apache/kafka, Confluent's or Bitnami's image (edge).

`configure` translates the variables of those images to a file of properties, and `launch` serves with it. Both are
called by the scripts in docker/kafka, which have the names and the places of those images' scripts.
"""

import base64
import os
import re
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.status import STATUS_MISUSED

if TYPE_CHECKING:
    from barnabas.config.parse import Setting

PROPERTIES = "etc/kafka/kafka.properties"
# Where the images take a whole file from; variables override what is in it.
MOUNTED_FILES = ("mnt/shared/config/server.properties", "bitnami/kafka/config/server.properties")
ITERATIONS = 4096
SCRAM_USER = re.compile(
    r"(?P<mechanism>SCRAM-SHA-(256|512))=\[name=(?P<name>[^,\]]+)"
    r"(,iterations=(?P<iterations>\d+))?,password=(?P<password>.*)\]"
)
# Lines of Kafka's log for which Testcontainers' modules and scripts of users wait. Each is true of this broker, too.
READY_LINES = (
    "[KafkaServer id={id}] started (kafka.server.KafkaServer)",
    "[BrokerServer id={id}] Transitioning from RECOVERY to RUNNING (kafka.server.BrokerLifecycleManager)",
    "Kafka Server started (kafka.server.KafkaRaftServer)",
)

in_root = click.option(
    "--root",
    envvar="BARNABAS_IMAGE_ROOT",
    default="/",
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory that has etc/kafka [/].",
)


@click.group(hidden=True)
def image() -> None:
    """Start as Apache Kafka's, Confluent's and Bitnami's images do, from environment variables."""


@image.command()
@in_root
def configure(root: Path) -> None:
    """Translate the environment variables of Kafka's images to properties, and write them to etc/kafka."""
    from barnabas.config.environment import translate
    from barnabas.config.live import BrokerConfig
    from barnabas.config.parse import ConfigError

    base = [setting for name in MOUNTED_FILES for setting in _settings_of(root / name)]
    try:
        found = translate(
            os.environ,
            lambda path: (root / path.lstrip("/")).read_text(encoding="utf-8"),
            {setting.name: setting.text for setting in base},
            [place for place in ("/bitnami/kafka", "/bitnami/kafka/data", "/var/lib/kafka/data") if _is_volume(place)],
        )
        settings = [*base, *found.settings]
        warnings = BrokerConfig(settings).warnings()
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"barnabas: {problem}", err=True)
        sys.exit(STATUS_MISUSED)

    for line in (*found.notes, *warnings):
        click.echo(f"barnabas: {line}", err=True)

    target = root / PROPERTIES
    target.parent.mkdir(parents=True, exist_ok=True)
    # Passwords may be among the properties, so only the broker's user reads them.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="latin-1") as file:
        file.write(_as_file(settings))


def _settings_of(path: Path) -> "list[Setting]":
    from barnabas.config.parse import parse_properties

    return parse_properties(path.read_text(encoding="latin-1"), str(path)) if path.is_file() else []


def _is_volume(place: str) -> bool:
    return os.path.ismount(place)


def _as_file(settings: "Iterable[Setting]") -> str:
    """A file in Java's format. Of several settings of one name the last one holds."""
    import javaproperties

    return javaproperties.dumps({each.name: each.text for each in settings}, timestamp=None) + "\n"


@image.command(context_settings={"ignore_unknown_options": True})
@click.argument("action", type=click.Choice(["format", "random-uuid"]))
@click.option("--add-scram", "-S", "users", multiple=True, metavar="MECHANISM=[name=NAME,password=PASSWORD]")
@click.argument("others", nargs=-1, type=click.UNPROCESSED, expose_value=False)
@in_root
def storage(action: str, users: Sequence[str], root: Path) -> None:
    """What scripts want of kafka-storage: an id, and users of SCRAM. Directories are formatted by the broker."""
    if action == "random-uuid":
        click.echo(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return
    import trio

    from barnabas.broker.process import scram_users
    from barnabas.cli.store_place import store_place

    place = store_place(None, None, str(root / PROPERTIES))
    for text in users:
        user = SCRAM_USER.fullmatch(text)
        if user is None:
            raise click.BadParameter(f"{text.partition('=')[0]}: expected [name=NAME,password=PASSWORD]")
        iterations = int(user["iterations"] or ITERATIONS)
        trio.run(scram_users.add, place, user["name"], [user["mechanism"]], iterations, user["password"])
        click.echo(f"{user['name']}: {user['mechanism']} written")


@image.command()
@in_root
def launch(root: Path) -> None:
    """Serve with the properties that `configure` wrote, until SIGTERM."""
    from barnabas.cli.failing import fail
    from barnabas.cli.serve import run_until_stopped
    from barnabas.cli.settings import gather_settings
    from barnabas.config.live import BrokerConfig
    from barnabas.config.parse import ConfigError

    try:
        config = BrokerConfig(gather_settings(str(root / PROPERTIES), None, None, ()))
    except ConfigError as error:
        fail(str(error), STATUS_MISUSED)
    run_until_stopped(config, _say_ready, "", "info", "text")


def _say_ready(line: str) -> None:
    """Print the ready line, and Kafka's lines after it."""
    click.echo(line)
    broker = re.search(r" ready: broker (\d+) ", line)
    for text in READY_LINES if broker else ():
        click.echo(text.format(id=broker[1] if broker else ""))
