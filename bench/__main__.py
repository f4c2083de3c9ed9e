"""Run every measurement and print the tables: `python -m bench [NAME …]`."""

import sys

from bench.measurements import MEASUREMENTS


def main() -> int:
    names = sys.argv[1:] or list(MEASUREMENTS)
    for name in names:
        if name not in MEASUREMENTS:
            print(f"no measurement {name!r}; there are: {', '.join(MEASUREMENTS)}", file=sys.stderr)
            return 2
        print(f"\n## {MEASUREMENTS[name].__doc__.splitlines()[0]}\n", flush=True)
        MEASUREMENTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
