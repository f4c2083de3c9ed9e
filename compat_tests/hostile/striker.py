"""Hostile clients in a process of their own.

python -m compat_tests.hostile.striker PORT NAME THREADS SECONDS     strike again and again, then print how often
python -m compat_tests.hostile.striker PORT NAME THREADS 0           strike once with each, and keep what stays open
"""

import json
import os
import socket
import sys
import threading
import time

from compat_tests.hostile.attacks import ATTACKS


def main() -> None:
    port, name, threads, seconds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    os.nice(10)
    attack = ATTACKS[name]
    strikes: list[float] = []
    kept: list[socket.socket] = []
    errors: list[str] = []
    deadline = time.monotonic() + seconds

    def strike() -> None:
        while True:
            began = time.monotonic()
            try:
                attack.strike(port, kept)
            except OSError as error:
                errors.append(repr(error))
            strikes.append(time.monotonic() - began)
            if time.monotonic() >= deadline:
                return

    workers = [threading.Thread(target=strike) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps({"strikes": len(strikes), "longest_s": round(max(strikes), 2), "errors": errors[:3]}), flush=True)
    if not seconds:
        sys.stdin.readline()  # what is kept stays open until then


if __name__ == "__main__":
    main()
