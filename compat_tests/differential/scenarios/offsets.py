"""ListOffsets in all versions."""

from compat_tests.differential.asking import PAST_MS, batch, list_offsets, produce_one
from compat_tests.differential.scenario import scenario

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100, -(2**63), 0, 2**62)
TIMES = (999, 1000, 1001, 2000, 2001, 3000, 3001)


def _topics(side):
    """One topic with times that go up and down, and an empty one."""
    filled, empty = side.create_topic("filled"), side.create_topic("empty")
    with side.connect() as client:
        for number, after in enumerate((1000, 3000, 2000, 3000, 2500)):
            client.ask(produce_one(filled, batch(b"a%d" % number, b"b", at=PAST_MS + after)), 9)
    return filled, empty


@scenario
def list_offsets_by_time(side):
    filled, empty = _topics(side)
    for version in range(10):
        cases = {}
        for topic in (filled, empty):
            cases |= {f"{topic} {time}": list_offsets({topic: [(0, time)]}, limit=10) for time in SPECIAL}
            cases |= {f"{topic} +{after}": list_offsets({topic: [(0, PAST_MS + after)]}, limit=10) for after in TIMES}
        if version == 0:
            for limit in (0, 1, 2, -1):
                for name, time in {"-1": -1, "-2": -2, "later": PAST_MS + 5000, "0": 0}.items():
                    cases[f"{name}, at most {limit}"] = list_offsets({filled: [(0, time)]}, limit=limit)
        for isolation in (1, 2):
            for name, time in {"-1": -1, "-3": -3, "+2000": PAST_MS + 2000}.items():
                cases[f"{name}, isolation {isolation}"] = list_offsets({filled: [(0, time)]}, isolation=isolation)
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def list_offsets_errors(side):
    filled, empty = _topics(side)
    unknown = side.name("unknown")
    for version in range(10):
        cases = {
            "unknown topic": list_offsets({unknown: [(0, -1)]}),
            "unknown partition": list_offsets({filled: [(5, -1)]}),
            "negative partition": list_offsets({filled: [(-1, -1)]}),
            "bad time of an unknown topic": list_offsets({unknown: [(0, -100)]}),
            "bad name": list_offsets({"..": [(0, -1)]}),
            "partition twice": list_offsets({filled: [(0, -1), (0, -2)]}),
            "topic twice": list_offsets([(filled, [(0, -1)]), (filled, [(0, -2)])]),
            "topic twice, other partition": list_offsets([(filled, [(0, -1)]), (filled, [(1, -2)])]),
            "twice, and another": list_offsets({filled: [(0, -1), (0, -2)], empty: [(0, -1)]}),
            "nothing": list_offsets({}),
            "no partitions": list_offsets({filled: []}),
            "good and bad": list_offsets({filled: [(0, -1), (3, -1)], unknown: [(0, -1)], empty: [(0, -2)]}),
        }
        cases |= {
            f"replica {replica}": list_offsets({filled: [(0, -1)]}, replica=replica) for replica in (-2, -3, 0, 1)
        }
        cases["a replica's time"] = list_offsets({filled: [(0, PAST_MS + 2000)]}, replica=1)
        if version >= 4:
            for epoch in (0, 1, 9, -2):
                for name, time in {"-1": -1, "-2": -2, "+1000": PAST_MS + 1000, "-100": -100}.items():
                    cases[f"{name}, leader epoch {epoch}"] = list_offsets({filled: [(0, time)]}, leader_epoch=epoch)
        with side.connect() as client:
            yield from client.ask_all(version, cases)
