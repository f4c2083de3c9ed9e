"""docs/commands-on-screen.md: what each command shows on a terminal of 80 columns (edge).

    python -m tests.cli.screens                    types the commands into tmux, and writes the document
    python -m tests.cli.screens -b HOST:PORT       the same with a cluster that runs already, such as Apache Kafka's

Without `-b` the cluster is one of three brokers in this process. Ports, ids and times are replaced by fixed ones where
a table would shift, and the document is left as it is if nothing but numbers differs. tmux has to be installed.
`test_screens.py` compares, and runs the same commands without a terminal.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from barnabas.testing import LocalBroker, LocalCluster
from barnabas.testing.looking.live import wait_until
from tests.rooms import ROOT

PAGE = ROOT / "docs" / "commands-on-screen.md"
COLUMNS = 80
ROWS = 60
SECONDS_MAX = 60
FIRST_PORT = 19092  # as many digits as those that the system picks
CLUSTER_ID = "Qm9ybmFiYXNDYXN0bGUxOQ"
# The records are old, and a broker deletes what is older than a week.
KEPT = "--set retention.ms=-1"
FREE_PORTS = "--listen 127.0.0.1:0 --set barnabas.http.listener=127.0.0.1:0"
ORDERS = "".join(
    f'{{"key":"k{n % 3}","value":"order {n}","timestamp":{1_795_341_600_000 + 1000 * n},"partition":{n % 3}}}\n'
    for n in range(9)
)


class Screen(NamedTuple):
    """What is typed, and how much of the answer is shown.

    `first` lines are shown, all without it. `until`: the command goes on until Ctrl-C, which is typed when this text is
    there.
    """

    typed: str
    first: int | None = None
    until: str = ""


class Section(NamedTuple):
    """A part of the page."""

    title: str
    screens: Sequence[Screen]


SECTIONS = (
    Section(
        "The commands",
        (Screen("barnabas --help"), Screen("barnabas topics --help"), Screen("barnabas version")),
    ),
    Section(
        "Topics",
        (
            Screen(f"barnabas topics create orders letters --partitions 3 --replicas 3 {KEPT}"),
            Screen("barnabas topics ls"),
            Screen("barnabas topics grow letters --partitions 4"),
            Screen("barnabas topics set letters max.message.bytes=2000000"),
            Screen("barnabas topics show letters"),
            Screen("barnabas topics delete letters --dry-run"),
        ),
    ),
    Section(
        "Records",
        (
            Screen("barnabas produce orders --json orders.jsonl"),
            Screen("barnabas consume orders --from -2 -o '%p %o %T %k=%v\\n'"),
            Screen("barnabas consume orders -p 0 -n 2 --json"),
        ),
    ),
    Section(
        "Groups",
        (
            Screen("barnabas groups reset billing --topic orders --to 2 --yes"),
            Screen("barnabas groups ls"),
            Screen("barnabas groups show billing"),
            Screen("barnabas groups show billing --by group"),
            Screen("barnabas groups delete billing --yes"),
        ),
    ),
    Section(
        "Brokers and replicas",
        (
            Screen("barnabas brokers ls"),
            Screen("barnabas brokers show 1"),
            Screen("barnabas check"),
            Screen("barnabas elect --all --dry-run"),
            Screen("barnabas move orders --to 1,2 --dry-run"),
            Screen("barnabas move"),
            Screen("barnabas bench --records 20000"),
        ),
    ),
    Section(
        "Who may do what, and how much",
        (
            Screen("barnabas acls add --allow User:alice --topic orders --operation read,write"),
            Screen("barnabas acls ls --topic orders"),
            Screen("barnabas acls delete --topic orders --yes"),
            Screen("barnabas quotas set --user alice producer_byte_rate=1048576"),
            Screen("barnabas quotas ls"),
            Screen("barnabas quotas delete --user alice --yes"),
        ),
    ),
    Section(
        "A broker, and brokers for tests",
        (
            Screen(f"barnabas serve --data-dir new --log-level warning {FREE_PORTS}", until="ready: "),
            Screen("barnabas lab --brokers 1 --http 127.0.0.1:0 --topic orders:3", until="page http"),
            Screen("barnabas monitor --lab http://127.0.0.1:1/"),
            Screen("barnabas apis", first=6),
            Screen("barnabas config --set num.partitions=3", first=4),
        ),
    ),
    Section(
        "Files of a stopped broker",
        (
            Screen("barnabas log check castle"),
            Screen("barnabas log dump castle/letters-0 --records", first=8),
            Screen("barnabas store export --data-dir castle", first=4),
            Screen("barnabas store export --data-dir castle nodes.json"),
            Screen("barnabas store import --data-dir copy nodes.json"),
            Screen("echo secret | barnabas store scram add --data-dir copy --password-file - alice"),
            Screen("barnabas store scram list --data-dir copy"),
            Screen("barnabas store scram remove --data-dir copy alice"),
        ),
    ),
    Section(
        "For people who come from elsewhere",
        (
            Screen("barnabas cheat kcat", first=6),
            Screen("barnabas completion bash", first=4),
            Screen("barnabas pipeline --help"),
        ),
    ),
    Section(
        "Mistakes",
        (
            Screen("barnabas topcs ls"),
            Screen("barnabas topics show ordres"),
            Screen("echo hello | barnabas produce leters"),
            Screen("barnabas consume orders --from yesterday"),
            Screen("barnabas topics ls -b 127.0.0.1:1 --timeout 0.2"),
            Screen("barnabas topics create orders"),
        ),
    ),
)
HEAD = """\
# Commands on the screen

<!-- Written by `python -m tests.cli.screens` -->

What each command shows on a terminal of 80 columns. The commands were typed into tmux one after the other, with a
cluster of three brokers that had no topics, in a folder with `orders.jsonl` (nine records) and `castle` (the data
directory of a stopped broker). Where an answer is longer than what is shown, `…` says so. Without a terminal the same
is printed, with no control characters. [All commands](reference/commands.md) lists the options.
"""


@contextmanager
def scene(folder: Path, bootstrap: str | None = None) -> Iterator[dict[str, str]]:
    """A folder with what the commands read, and the environment in which they find the cluster."""
    (folder / "orders.jsonl").write_text(ORDERS, encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }
    with LocalBroker(data_dir=folder / "castle", topics=["letters"]) as broker:
        command = [
            "barnabas",
            "produce",
            "letters",
            "--json",
            "orders.jsonl",
            "-p",
            "0",
            "-b",
            broker.bootstrap_servers,
        ]
        subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)

    if bootstrap is not None:
        yield {**environment, "BARNABAS_BOOTSTRAP": bootstrap}
        return
    authorized = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalCluster(3, config=authorized) as cluster:
        yield {**environment, "BARNABAS_BOOTSTRAP": cluster.bootstrap_servers}


class Terminal:
    """A tmux of its own, which ends with the block: each command gets a new screen."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._socket = str(folder / "tmux")
        self._folder = folder
        self._environment = environment

    def __enter__(self) -> "Terminal":
        # tmux ends with its last session, and would do so between two commands.
        self._tmux("new-session", "-d", "-s", "kept", "sleep 3600")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        environment = {name: value for name, value in self._environment.items() if name != "TMUX"}
        ran = subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
        )
        return ran.stdout

    def shown(self, screen: Screen) -> str:
        """What is on the screen when the command has ended."""
        # Ctrl-C ends the command, and not the shell, which keeps the screen open until it is read.
        script = f"trap : INT; {screen.typed}; tmux -S {shlex.quote(self._socket)} wait-for -S ended; exec sleep 600"
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        self._tmux("new-session", "-d", *size, "-s", "screen", f"sh -c {shlex.quote(script)}")
        try:
            if screen.until:
                wait_until(lambda: screen.until in self._captured(), SECONDS_MAX, f"{screen.until!r} does not come")
                self._tmux("send-keys", "-t", "screen", "C-c")
            self._tmux("wait-for", "ended")
            return self._captured()
        finally:
            self._tmux("kill-session", "-t", "screen")

    def _captured(self) -> str:
        # A line that is broken at the edge of the screen comes whole (-J).
        lines = self._tmux("capture-pane", "-p", "-J", "-t", "screen", "-S", "-").splitlines()
        return "\n".join(line.rstrip() for line in lines).rstrip()


def cut(screen: Screen, text: str) -> str:
    """The lines that are shown, broken where the terminal breaks them."""
    breaks = (range(0, len(line) or 1, COLUMNS) for line in text.splitlines())
    lines = [line[at : at + COLUMNS] for line, places in zip(text.splitlines(), breaks, strict=True) for at in places]
    if screen.first is not None and len(lines) > screen.first:
        lines = [*lines[: screen.first], "…"]
    return "\n".join(lines)


class Fixed:
    """Puts fixed ports and ids in place of those of this run, so that the page changes with the program only."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._ports: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        def port(match: re.Match[str]) -> str:
            return "127.0.0.1:" + self._ports.setdefault(match[1], str(FIRST_PORT + len(self._ports)))

        text = re.sub(r"127\.0\.0\.1:(\d{5})\b", port, text.replace(self._folder, "/home/k"))
        return re.sub(r"cluster [\w-]{22}\b", f"cluster {CLUSTER_ID}", text)


def shape(text: str) -> str:
    """The text without what differs from run to run: numbers, what fills columns, and where a long line breaks."""
    return re.sub(r"\d[\d.,:]*", "0", re.sub(r"\s", "", text))


def page(terminal: Terminal, fixed: Fixed) -> str:
    """The text of the document."""
    parts = [HEAD]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n")
        for screen in section.screens:
            answer = cut(screen, fixed(terminal.shown(screen)))
            parts.append("\n".join(filter(None, ["```text", f"$ {screen.typed}", answer, "```\n"])))
    return "\n".join(parts)


def main() -> None:
    """Write the document, if more than numbers differs."""
    options = ArgumentParser(prog="python -m tests.cli.screens", description=(__doc__ or "").partition("\n")[0])
    options.add_argument("-b", "--bootstrap", metavar="HOST:PORT", help="a cluster that runs, without these topics")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with scene(folder, arguments.bootstrap) as environment, Terminal(folder, environment) as terminal:
            made = page(terminal, Fixed(folder))
    if not PAGE.exists() or shape(made) != shape(PAGE.read_text(encoding="utf-8")):
        PAGE.write_text(made, encoding="utf-8")
        print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
