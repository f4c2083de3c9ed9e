"""All attacks at random, from several clients at once, beside ordinary clients of three kinds.

An ordinary client writes numbered records to a topic of its own, with default settings but for `acks=all`, and reads
them in a group; it must hear no error and read every record once, in order. At the end, when the hostile clients have
gone, the broker's memory must come back.
"""

import contextlib
import gc
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from barnabas.testing.running.processes import cpu_seconds_of, forget_peak_of, peak_resident_bytes_of, resident_bytes_of
from compat_tests.hostile.attacks import ATTACKS
from compat_tests.hostile.process import MIB, WatchedBroker

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")
HOSTILE_THREADS = 4
KEPT_MAX = 50  # sockets that stay open, of those that read nothing or send half a frame
WARM_UP_SECONDS = 300.0  # until the allocator has had to hold several large requests at once
RETURN_SECONDS = 330.0  # a broker collects its garbage and returns free memory at least every five minutes
RETURN_BYTES = 20 * MIB


def run(seconds: float, seed: int) -> int:
    """Status 1 if an ordinary client heard an error or the memory did not come back."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="hostile-mix-"))
    try:
        with WatchedBroker(directory) as broker:
            return _mixed(broker, seconds, seed)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _mixed(broker: WatchedBroker, seconds: float, seed: int) -> int:
    for attack in ATTACKS.values():
        attack.prepare(broker.port)
    ordinary = [_ordinary(broker.port, kind) for kind in CLIENTS]
    # Each attack once: what is made once, or kept up to a bound (threads, caches, fetch sessions), is no leak.
    _strike_for(broker.port, WARM_UP_SECONDS, seed)
    time.sleep(RETURN_SECONDS)
    before, cpu_before, began = resident_bytes_of(broker.pid), cpu_seconds_of(broker.pid), time.time()
    forget_peak_of(broker.pid)
    struck = _strike_for(broker.port, seconds, seed + 1)
    peak = peak_resident_bytes_of(broker.pid)
    deadline = time.monotonic() + RETURN_SECONDS
    while (left := resident_bytes_of(broker.pid) - before) > RETURN_BYTES and time.monotonic() < deadline:
        time.sleep(1.0)
    results = [_ended(client) for client in ordinary]
    for name, count in sorted(struck.items()):
        print(f"{name}: {count} strikes")
    for kind, result in zip(CLIENTS, results, strict=True):
        print(f"{kind}: {json.dumps(result)}")
    for step in broker.long_steps(began)[:5]:
        print(f"step {json.dumps(step)}")
    is_alive = broker.is_running()
    cpu = cpu_seconds_of(broker.pid) - cpu_before
    print(
        f"memory: before {before / MIB:.0f} MiB, peak {peak / MIB:.0f}, at the end {left / MIB:+.0f}; CPU {cpu:.0f} s"
    )
    failed = [result for result in results if result["errors"] or result["missing"] or result["disorder"]]
    print("broken" if failed or left > RETURN_BYTES or not is_alive else "kept")
    return 1 if failed or left > RETURN_BYTES or not is_alive else 0


def _strike_for(port: int, seconds: float, seed: int) -> dict[str, int]:
    """How often each attack was struck."""
    words = [sys.executable, "-m", "compat_tests.hostile.mix", str(port), str(seconds), str(seed)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(said))


def _ordinary(port: int, kind: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "compat_tests.hostile.ordinary", str(port), kind]
    client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    return client


def _ended(client: "subprocess.Popen[str]") -> dict[str, object]:
    said, _ = client.communicate("stop\n", timeout=120)
    return dict(json.loads(said))


def _strike_at_random(port: int, seconds: float, seed: int) -> dict[str, int]:
    """Each attack once, then any; for so long."""
    first = random.Random(seed).sample(list(ATTACKS), len(ATTACKS))
    struck = dict.fromkeys(ATTACKS, 0)
    deadline = time.monotonic() + seconds
    lock = threading.Lock()
    kept: list[socket.socket] = []

    def strike(rng: random.Random) -> None:
        while time.monotonic() < deadline:
            with lock:
                name = first.pop() if first else rng.choice(list(ATTACKS))
            with contextlib.suppress(OSError):  # the broker may close this connection
                ATTACKS[name].strike(port, kept)
            with lock:
                struck[name] += 1
                while len(kept) > KEPT_MAX:
                    kept.pop(rng.randrange(len(kept))).close()
            gc.collect()

    workers = [threading.Thread(target=strike, args=[random.Random(f"{seed} {n}")]) for n in range(HOSTILE_THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return struck


if __name__ == "__main__":
    os.nice(10)
    print(json.dumps(_strike_at_random(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))))
