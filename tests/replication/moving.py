"""What tests share with `test_log_dir_moves.py`."""

from tests.broker.clusters import until
from tests.broker.harness import Machine
from tests.broker.requests import placement_request


async def with_directories(nursery, dirs="/a,/b", **properties):
    """A broker whose moves take one batch at a time, and a client."""
    machine = await Machine(nursery, **{"log_dirs": dirs, "replica_fetch_max_bytes": "60", **properties}).start()
    return machine, await machine.connect()


async def move(client, path: str, topic: str = "t") -> int:
    """Ask for it; the error code."""
    answer = await client.ask(placement_request(path, (topic, 0)))
    return answer.results[0].partitions[0].error_code


def directories(machine, topic: str = "t") -> dict[str, list[str]]:
    """Log directory -> what lies there for partition 0 of the topic: "current", "future", "delete"."""
    found = {}
    for path in machine.properties["log.dirs"].split(","):
        names = [name for name in machine.disk.list(path) if name.startswith(f"{topic}-0")]
        found[path] = sorted(name.rpartition("-")[2] if "." in name else "current" for name in names)
    return found


async def has_moved(machine, path: str, topic: str = "t") -> None:
    await until(lambda: "current" in directories(machine, topic)[path])


TEN = [b"%d" % number * 10_000 for number in range(10)]  # too much to be copied in the step of a swap
