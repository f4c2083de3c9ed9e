"""Pages that are written from tables of the sources: APIs, error codes, commands, and commands of other tools.

`generated.py` writes them; `test_generated.py` says which are out of date.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from barnabas.cli.cheat_sheet import SHEETS
from barnabas.cli.commands import commands
from barnabas.cli.describing import described
from barnabas.cli.output import Row
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode

WRITTEN = "<!-- Written by make generated -->"

APIS_HEAD = f"""\
# APIs

{WRITTEN}

The APIs of Kafka's protocol that a broker of Kafka 3.9 in ZooKeeper mode lists, and what becomes of them here. A client
is offered the versions of those that are served. *Flexible from*: from this version on lengths are compact, and a
message may have tagged fields. The fields of each version are in the file of the last column, and
[wire](../../wire/README.md) explains the encoding; [broker/handlers](../../broker/handlers/README.md) has the file that
answers each API. `barnabas apis` prints this table, and `barnabas brokers show 1 --apis` that of any broker.
"""
ERRORS_HEAD = f"""\
# Error codes

{WRITTEN}

The error codes of Kafka 3.9. *Retried*: the same request may succeed later, perhaps at another broker, and clients send
it again.
"""
COMMANDS_HEAD = f"""\
# All commands

{WRITTEN}

What `barnabas --help-json` says, command by command. [Commands for any Kafka cluster](../commands.md) has examples.
Each command has `--help`.
"""
COMING_FROM_HEAD = f"""\
# Coming from Kafka's scripts, kcat, rpk or kcl

{WRITTEN}

The commands that you know, and ours. T is a topic, G a group, B the address of a broker, F a file. `barnabas cheat`
prints these tables, `barnabas cheat kcat` one of them.

Ours work with Apache Kafka from 2.8 on, with Barnabas, and with other brokers that speak the protocol. The cluster is
named by `-b HOST:PORT`, by the variable `BARNABAS_BOOTSTRAP`, or by a file of client properties (`--command-config`).
All print a table for a person, and one JSON object a line with `--json`.
[Commands for any Kafka cluster](commands.md) explains them, and has
[a longer table](commands.md#from-kafkas-scripts) of tasks that Kafka's scripts and ours have done on both brokers with
the same result. Of the tables here a test parses our half of each line, and runs neither.

| you are used to | here |
|-|-|
| `-e`, `--timeout-ms`: stop at the end | `consume` stops at the end; `-f` goes on |
| `--from-beginning` | `consume` begins with the oldest record; `--from latest` with the next one |
| `--bootstrap-server`, `--brokers` | `-b`, or `BARNABAS_BOOTSTRAP` once |
| `--property print.key=true …`, `-f FORMAT` | `-o '%k %v'`, or `--json` |
| a reset or deletion that is done at once | it asks, or needs `--yes`; `--dry-run` shows what would be done |
"""
TITLES = {"kafka": "Kafka's scripts", "kcat": "kcat", "rpk": "rpk", "kcl": "kcl"}


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [titles, ["-"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(_cell(each) for each in line) + " |" for line in lines) + "\n"


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|").replace("\n", " ")


def code(text: str) -> str:
    """The text as code, within a table or outside."""
    return f"`{text}`"


def apis_page() -> str:
    """docs/reference/apis.md."""
    rows = [
        (
            api.key,
            api.name,
            f"{api.min_version}–{api.max_version}" if api.served else "not served",
            "never" if api.flexible_from is None else api.flexible_from,
            f"[{api.family}.py](../../wire/schemas/{api.family}.py)",
        )
        for api in APIS.values()
    ]
    return f"{APIS_HEAD}\n{table(['key', 'API', 'versions', 'flexible from', 'fields'], rows)}"


def errors_page() -> str:
    """docs/reference/errors.md."""
    rows = [(int(each), code(each.name), "yes" if each.retriable else "no", each.message) for each in ErrorCode]
    return f"{ERRORS_HEAD}\n{table(['code', 'name', 'retried', 'meaning'], rows)}"


def coming_from_page() -> str:
    """docs/coming-from.md."""
    parts = [COMING_FROM_HEAD]
    for tool, sheet in SHEETS.items():
        rows = [(code(theirs), code(ours)) for theirs, ours in sheet]
        parts.append(f"## {TITLES[tool]}\n\n{table([TITLES[tool], 'barnabas'], rows)}")
    return "\n".join(parts)


def commands_page() -> str:
    """docs/reference/commands.md."""
    with commands.make_context("barnabas", [], resilient_parsing=True) as context:
        rows = list(described(commands, context))
    statuses = table(["status", "meaning"], rows[0]["statuses"].items())
    return "\n".join([COMMANDS_HEAD, statuses, *(part for row in rows for part in _command(row))])


def _command(row: Row) -> Iterator[str]:
    """The section about a command: its text, its arguments and its options."""
    yield f"## {row['command']}\n\n{_text(row['help'])}\n"

    arguments = [
        (code(each["name"]), "yes" if each["required"] else "no", "yes" if each["several"] else "no")
        for each in row["arguments"]
    ]
    if arguments:
        yield table(["argument", "required", "several"], arguments)
    options = [each for each in row["options"] if "--help" not in each["names"]]
    if options:
        yield table(["option", "meaning"], [(_option(each), _plain(each["help"] or "")) for each in options])


def _text(help_text: str) -> str:
    """Help as click writes it: a paragraph after a line with a backspace keeps its lines."""
    paragraphs = []
    for paragraph in help_text.split("\n\n"):
        kept = paragraph.removeprefix("\b\n")
        paragraphs.append(_plain(paragraph) if kept == paragraph else f"```text\n{kept}\n```")
    return "\n\n".join(paragraphs)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([*<])", r"\\\1", text)


def _option(option: Row) -> str:
    """The names of an option, and what it takes."""
    taken = ""
    if not option["flag"]:
        taken = " " + ("|".join(map(str, option["choices"])) if "choices" in option else _taken(option))
    return ", ".join(code(f"{name}{taken}") for name in option["names"])


def _taken(option: Row) -> str:
    return str(option["metavar"] or option["type"].upper())
