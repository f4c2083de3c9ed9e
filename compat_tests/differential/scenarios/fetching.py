"""Fetch without sessions in all versions: positions, limits, epochs; what waits and what is answered at once."""

import time

from barnabas.wire import messages as m
from barnabas.wire.records import Record
from compat_tests.differential.asking import MIB, NO_ID, PAST_MS, batch, fetch, produce_one
from compat_tests.differential.scenario import scenario

VERSIONS = range(4, 18)
BY_ID = 13  # the first version that asks by topic id
UNKNOWN_ID = b"\x13" * 16
LONG_MS = 5000  # a wait that a right answer does not take
CLOCK_SECONDS = 0.05  # how far clocks may differ


def _topics(side):
    """One topic of twenty records in ten batches, an empty one, and one of three partitions: {what for: name}."""
    names = {
        "many": side.create_topic("many"),
        "empty": side.create_topic("empty"),
        "three": side.create_topic("three", 3),
    }
    with side.connect() as client:
        for number in range(10):
            pair = batch(b"a%d" % number * 30, b"b%d" % number, at=PAST_MS + number)
            client.ask(produce_one(names["many"], pair), 9)
        for partition in range(3):
            records = batch(b"p%d" % partition * 500, at=PAST_MS)
            client.ask(produce_one(names["three"], records, partition=partition), 9)
    return names


def _called(side, names, version):
    """How each topic is called in this version: by its name, or by its id."""
    if version < BY_ID:
        return names | {"unknown": side.name("unknown")}
    return {key: side.topic_id(name) for key, name in names.items()} | {"unknown": UNKNOWN_ID}


@scenario
def fetch_positions(side):
    names = _topics(side)
    for version in VERSIONS:
        topic = _called(side, names, version)
        many, empty, unknown = topic["many"], topic["empty"], topic["unknown"]
        cases = {f"many at {offset}": fetch([(many, [(0, offset)])]) for offset in (0, 5, 20, 21, -1, -(2**63))}
        cases |= {f"empty at {offset}": fetch([(empty, [(0, offset)])]) for offset in (0, 1)}
        cases |= {
            "unknown topic": fetch([(unknown, [(0, 0)])]),
            "unknown topic and a good one": fetch([(unknown, [(0, 0)]), (many, [(0, 18)])]),
            "unknown partition": fetch([(many, [(9, 0)])]),
            "negative partition": fetch([(many, [(-1, 0)])]),
            "no topics": fetch([]),
            "no partitions": fetch([(many, [])]),
            "partition twice": fetch([(many, [(0, 18), (0, 18)])]),
            "topic twice": fetch([(many, [(0, 18)]), (many, [(0, 18)])]),
            "internal, not there": fetch([("__transaction_state" if version < BY_ID else UNKNOWN_ID, [(0, 0)])]),
            "rack": fetch([(many, [(0, 18)])], rack="r1"),
        }
        if version < BY_ID:
            cases |= {"bad name": fetch([("..", [(0, 0)])]), "empty name": fetch([("", [(0, 0)])])}
        else:
            cases["zero id"] = fetch([(NO_ID, [(0, 0)])])
        for isolation in (1, 2):
            cases[f"isolation {isolation}"] = fetch([(many, [(0, 18)])], isolation=isolation)
            cases[f"isolation {isolation} at the end"] = fetch([(many, [(0, 20)])], isolation=isolation)
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def fetch_limits(side):
    names = _topics(side)
    for version in VERSIONS:
        topic = _called(side, names, version)
        many, three = [(topic["many"], [(0, 0)])], [(topic["three"], [(0, 0), (1, 0), (2, 0)])]
        end = [(topic["many"], [(0, 20)])]
        cases = {f"at most {limit}": fetch(many, max_bytes=limit) for limit in (1, 0, -1, 400)}
        cases |= {
            f"of a partition at most {limit}": fetch(many, partition_bytes=limit) for limit in (1, 0, -1, 200, 400)
        }
        cases |= {
            "of three at most 700": fetch(three, max_bytes=700),
            "of three at most 1": fetch(three, max_bytes=1),
            "of each of three at most 10": fetch(three, partition_bytes=10),
            "an empty one first": fetch([(topic["empty"], [(0, 0)]), (topic["three"], [(0, 1), (1, 0)])], max_bytes=1),
            "0 bytes suffice at the end": fetch(end, min_bytes=0, wait_ms=LONG_MS),
            "-1 bytes suffice at the end": fetch(end, min_bytes=-1, wait_ms=LONG_MS),
            "wait -1": fetch(end, wait_ms=-1),
            "wait 0": fetch(end, wait_ms=0),
            "more than there is": fetch(many, min_bytes=1 << 30),
            "error beside data": fetch(
                [(topic["many"], [(0, 99)]), (topic["three"], [(0, 1)])], wait_ms=LONG_MS, min_bytes=MIB
            ),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def fetch_epochs(side):
    names = _topics(side)
    for version in range(9, 18):
        topic = _called(side, names, version)
        many = topic["many"]
        cases = {f"leader epoch {epoch}": fetch([(many, [(0, 18, epoch)])]) for epoch in (0, 1, 5, -1, -2)}
        cases["leader epoch of an unknown partition"] = fetch([(many, [(9, 0, 3)])])
        if version >= 12:
            cases |= {f"fetched epoch {epoch}": fetch([(many, [(0, 18, -1, epoch)])]) for epoch in (0, 1, -1, -2)}
            for offset in (20, 21, 30):
                cases[f"fetched epoch 0 at {offset}"] = fetch([(many, [(0, offset, 0, 0)])])
        with side.connect() as client:
            yield from client.ask_all(version, cases)


def _in_old_formats(side, codec):
    """A topic of one batch with everything that records may have."""
    topic = side.create_topic(f"codec-{codec}")
    second = Record(0, PAST_MS + 5000, b"k2", None, [("h", b"x")])
    records = batch((b"k", b"v" * 40), second, (None, b""), codec=codec, at=PAST_MS)
    side.ask(produce_one(topic, records), 9)
    return topic


@scenario
def fetch_in_old_formats(side):
    """Versions whose records are of format 0 or 1: what is stored is converted, whatever its codec."""
    topics = {codec: _in_old_formats(side, codec) for codec in range(5)}
    off, plain = side.create_topic("off", message_downconversion_enable="false"), topics[0]
    side.ask(produce_one(off, batch(at=PAST_MS)), 9)
    for version in range(4):
        cases = {f"codec {codec}": fetch([(topic, [(0, 0)])]) for codec, topic in topics.items()}
        cases |= {f"codec {codec} at 1": fetch([(topic, [(0, 1)])]) for codec, topic in topics.items()}
        cases |= {f"at most {limit}": fetch([(plain, [(0, 0)])], partition_bytes=limit) for limit in (1, 80, 130)}
        cases |= {
            "at the end": fetch([(plain, [(0, 3)])]),
            "beyond the end": fetch([(plain, [(0, 4)])]),
            "unknown topic": fetch([(side.name("unknown"), [(0, 0)])]),
            "conversion is off": fetch([(off, [(0, 0)])]),
            "conversion is off, nothing new": fetch([(off, [(0, 1)])]),
            "off beside on": fetch([(off, [(0, 0)]), (plain, [(0, 0)])]),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def log_append_time_in_old_formats(side):
    for codec in (0, 1):
        topic = side.create_topic(str(codec), message_timestamp_type="LogAppendTime")
        side.ask(produce_one(topic, batch(b"a", b"b", codec=codec, at=PAST_MS)), 9)
        for version in (0, 2):
            yield f"v{version} codec {codec}", side.ask(fetch([(topic, [(0, 0)])]), version)


def _timed(side, request, version=12, then=None):
    """The answer, and whether it came only when the time was over; `then` happens while it waits."""
    started = time.monotonic()
    with side.connect() as client:
        client.send(request, version)
        if then is not None:
            time.sleep(0.3)  # let the request wait
            side.ask(then, 9)
        answer = client.receive()
    waited = time.monotonic() - started >= request.max_wait_ms / 1000 - CLOCK_SECONDS
    return {"waited to the end": waited, "answer": answer}


@scenario
def fetch_waits(side):
    topic = side.create_topic("one", 2)
    small = batch(b"w" * 10, at=PAST_MS)
    unknown = side.name("unknown")
    first = [(topic, [(0, 1)])]
    yield "the whole time", _timed(side, fetch([(topic, [(0, 0)])], wait_ms=1000))
    both = fetch([(topic, [(0, 0), (1, 0)])], wait_ms=LONG_MS)
    yield "until a record comes", _timed(side, both, then=produce_one(topic, small))
    enough = fetch([(topic, [(0, 1)])], wait_ms=1000, min_bytes=10_000)
    yield "when too little comes", _timed(side, enough, then=produce_one(topic, small))
    together = fetch([(topic, [(0, 1), (1, 0)])], wait_ms=LONG_MS, min_bytes=140)
    yield "until two suffice", _timed(side, together, then=produce_one(topic, small, partition=1))
    cases = {
        "no topics": fetch([], wait_ms=1000),
        "errors alone": fetch([(unknown, [(0, 0)])], wait_ms=LONG_MS),
        "an error and nothing new": fetch([(unknown, [(0, 0)]), (topic, [(0, 2)])], wait_ms=LONG_MS),
        "out of range and nothing new": fetch([(topic, [(0, 99), (1, 1)])], wait_ms=LONG_MS),
        "fenced and nothing new": fetch([(topic, [(0, 1, 5)])], wait_ms=LONG_MS),
        "more wanted than allowed": fetch([(topic, [(0, 0)])], wait_ms=1000, min_bytes=5000, max_bytes=10),
        "less than a batch allowed": fetch(first, wait_ms=1000, min_bytes=500, partition_bytes=10),
        "read committed at the end": fetch([(topic, [(0, 2)])], wait_ms=500, isolation=1),
        "0 bytes of a partition": fetch([(topic, [(0, 0)])], wait_ms=1000, partition_bytes=0),
    }
    for name, request in cases.items():
        yield name, _timed(side, request)
    by_id = fetch([(UNKNOWN_ID, [(0, 0)]), (side.topic_id(topic), [(0, 2)])], wait_ms=1000)
    yield "an unknown id and nothing new", _timed(side, by_id, 13)


@scenario
def a_topic_is_deleted_and_created_again(side):
    """Responses to a waiting fetch, to fetch sessions, to producers, and to groups with offsets."""
    topic = side.create_topic("one", 2)
    first_id = side.topic_id(topic)
    with side.connect() as client, side.connect() as waiting, side.connect() as waiting_by_id:
        client.ask(produce_one(topic, batch(b"one", at=PAST_MS)), 9)
        by_id = client.ask(fetch([(first_id, [(0, 0)])], session=(0, 0)), 13).session_id
        by_name = client.ask(fetch([(topic, [(0, 0)])], session=(0, 0)), 12).session_id
        waiting.send(fetch([(topic, [(0, 1)])], wait_ms=LONG_MS), 12)
        waiting_by_id.send(fetch([(first_id, [(0, 1)])], wait_ms=LONG_MS), 13)
        time.sleep(0.2)  # let them wait
        yield "delete", client.ask(m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
        yield "a waiting fetch", waiting.receive()
        yield "a waiting fetch by id", waiting_by_id.receive()
        time.sleep(0.5)  # until the metadata cache has the deletion
        cases = {"produce": (9, produce_one(topic, batch(b"x"))), "fetch": (12, fetch([(topic, [(0, 0)])]))}
        cases |= {"fetch by id": (13, fetch([(first_id, [(0, 0)])]))}
        cases |= {
            "session": (12, fetch([], session=(by_name, 1))),
            "session by id": (13, fetch([], session=(by_id, 1))),
        }
        for name, (version, request) in cases.items():
            yield f"deleted: {name}", client.ask(request, version)
        side.delete_topic(topic)  # Kafka refuses the name until the deletion is complete.
        side.create_topic("one", 2)
        yield "another id", side.topic_id(topic) != first_id
        client.ask(produce_one(topic, batch(b"y", at=PAST_MS)), 9)
        cases["session"] = (12, fetch([], session=(by_name, 2)))
        cases["session by id"] = (13, fetch([], session=(by_id, 2)))
        for name, (version, request) in cases.items():
            yield f"created again: {name}", client.ask(request, version)
