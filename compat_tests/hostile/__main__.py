"""Hostile clients beside ordinary ones, measured.

python -m compat_tests.hostile table [NAME ...]        what each attack costs others
python -m compat_tests.hostile limits --seconds 60     each limit of memory used up, and what others notice
python -m compat_tests.hostile logins                  what attacks before a login cost, at listeners of every protocol
python -m compat_tests.hostile fuzz --minutes 60       streams of bytes for the authenticator, broken records of TLS
python -m compat_tests.hostile mix --minutes 30        all attacks at random, beside ordinary clients of three kinds
"""

import argparse
import pathlib
import sys

from compat_tests.hostile import limits, login_fuzz, login_table, mix, table
from compat_tests.hostile.attacks import ATTACKS
from compat_tests.hostile.exhaust import LIMITS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.hostile", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    tables = commands.add_parser("table", help="longest step, memory, an ordinary client's p99, attack by attack")
    tables.add_argument("names", nargs="*", help=f"of {', '.join(ATTACKS)} (default: all)")
    tables.add_argument("--seconds", type=float, default=5.0, help="of strikes by one client, then by twenty")
    tables.add_argument("--out", type=pathlib.Path, default=pathlib.Path("hostile.jsonl"))
    limited = commands.add_parser("limits", help="the longest waits of well-behaved parties, limit by limit")
    limited.add_argument("names", nargs="*", help=f"of {', '.join(LIMITS)} (default: all)")
    limited.add_argument("--seconds", type=float, default=60.0, help="with one attacker, then with twenty")
    logins = commands.add_parser("logins", help="the same of attacks before a login, and of half-open handshakes")
    logins.add_argument("--seconds", type=float, default=1.0, help="of strikes by one client")
    logins.add_argument("--half-open", type=int, default=10_000)
    fuzzed = commands.add_parser("fuzz", help="mutated logins and TLS records, in one process; extends the corpus")
    fuzzed.add_argument("--minutes", type=float, default=60.0)
    fuzzed.add_argument("--seed", type=int, default=1)
    fuzzed.add_argument("--corpus", type=pathlib.Path, default=login_fuzz.CORPUS)
    mixed = commands.add_parser("mix", help="all attacks at random, and whether an ordinary client hears an error")
    mixed.add_argument("--minutes", type=float, default=30.0)
    mixed.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.command == "table":
        table.run(options.names or list(ATTACKS), options.seconds, options.out)
        return 0
    if options.command == "limits":
        return limits.run(options.names, options.seconds)
    if options.command == "logins":
        login_table.run(options.seconds, options.half_open)
        return 0
    if options.command == "fuzz":
        return login_fuzz.fuzz(options.minutes, options.seed, options.corpus)
    return mix.run(options.minutes * 60, options.seed)


if __name__ == "__main__":
    sys.exit(main())
