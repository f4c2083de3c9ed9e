"""Produce in all versions: acks, topics, partitions, transactional ids; and what is stored afterwards."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, fetch, new_topic, produce, produce_one
from compat_tests.differential.scenario import scenario
from compat_tests.differential.side import CLOSED, SILENT

VERSIONS = range(3, 12)
TRANSACTIONAL, CONTROL = 16, 32


def _open_transaction():
    return batch(attributes=TRANSACTIONAL, producer_id=10**12, producer_epoch=0, base_sequence=0)


@scenario
def produce_in_every_version(side):
    side.await_coordinator()
    topic, unknown = side.create_topic("two", 2), side.name("unknown")
    alone = side.create_alone("alone")  # followers may be quicker than no time at all
    for version in VERSIONS:
        cases = {
            "acks 1": produce_one(topic, batch(), acks=1),
            "acks -1": produce_one(topic, batch()),
            "acks 2": produce_one(topic, batch(), acks=2),
            "acks -2": produce_one(topic, batch(), acks=-2),
            "acks 5 to an unknown topic": produce_one(unknown, batch(), acks=5),
            "acks 5 without records": produce_one(topic, b"", acks=5),
            "acks 5, damaged": produce_one(topic, batch()[:-1] + b"\x00", acks=5),
            "several": produce([(topic, [(0, batch()), (1, batch()), (7, batch())]), (unknown, [(0, batch())])]),
            "no records": produce_one(topic, b""),
            "internal": produce_one("__consumer_offsets", batch()),
            "internal, not there": produce_one("__transaction_state", batch()),
            "bad name": produce_one("..", batch()),
            "no name": produce_one("", batch()),
            "no topics": produce([]),
            "no partitions": produce([(topic, [])]),
            "negative partition": produce_one(topic, batch(), partition=-1),
            "timeout 0": produce_one(alone, batch(), timeout_ms=0),
            "timeout -5": produce_one(alone, batch(), timeout_ms=-5),
            "zstd": produce_one(topic, batch(b"z" * 100, codec=4)),
            "transactional id, plain batch": produce_one(topic, batch(), transactional_id="t1"),
            "no transactional id, transactional batch": produce_one(topic, _open_transaction()),
            "transactional": produce_one(topic, _open_transaction(), transactional_id="t1"),
            "empty transactional id": produce_one(topic, batch(), transactional_id=""),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def unreadable_beside_readable(side):
    """What cannot be read at all fails the request, what can be is refused by itself."""
    topic = side.create_topic("one", 2)
    good = batch(b"good", at=PAST_MS)
    with side.connect() as client:
        for name, bad in {"zeros": bytes(100), "magic 3": good[:16] + b"\x03" + good[17:], "cut": good[:-1]}.items():
            for version in (3, 8, 11):
                yield f"v{version} good, {name}", client.ask(produce([(topic, [(0, good), (1, bad)])]), version)
                yield f"v{version} {name}, good", client.ask(produce([(topic, [(0, bad), (1, good)])]), version)
        yield "stored", client.ask(fetch([(topic, [(0, 0), (1, 0)])]), 11)


@scenario
def produce_twice_to_one_partition(side):
    for version in VERSIONS:
        topic = side.create_topic(str(version), 2)
        one, two = batch(b"one"), batch(b"two")
        cases = {
            "partition twice": produce([(topic, [(0, one), (0, two)])]),
            "topic twice": produce([(topic, [(0, one)]), (topic, [(1, two)])]),
            "topic and partition twice": produce([(topic, [(0, one)]), (topic, [(0, two)])]),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)
            yield f"v{version} stored", client.ask(fetch([(topic, [(0, 0), (1, 0)])]), 4)


@scenario
def produce_without_acks(side):
    """A success is silent, an error closes the connection."""
    topic = side.create_topic("one")
    cases = {
        "good": produce_one(topic, batch(), acks=0),
        "unknown partition": produce_one(topic, batch(), acks=0, partition=7),
        "unknown topic": produce_one(side.name("unknown"), batch(), acks=0),
        "damaged": produce_one(topic, batch()[:-1] + b"\x00", acks=0),
        "no topics": produce([], acks=0),
    }
    for version in (3, 7, 9, 11):
        for name, request in cases.items():
            with side.connect() as client:
                client.send(request, version)
                heard = client.listen(0.3)
                yield f"v{version} {name}", heard
                assert heard in (CLOSED, SILENT), heard


@scenario
def control_batches_from_a_producer(side):
    topic = side.create_topic("one")
    batches = {
        "control": batch(attributes=CONTROL, producer_id=9, producer_epoch=0, base_sequence=0),
        "transactional control": batch(
            attributes=TRANSACTIONAL | CONTROL, producer_id=9, producer_epoch=0, base_sequence=0
        ),
        "control without a producer": batch(attributes=CONTROL),
        "transactional without a producer": batch(attributes=TRANSACTIONAL),
    }
    with side.connect() as client:
        for name, records in batches.items():
            for transactional_id in (None, "t"):
                request = produce_one(topic, records, transactional_id=transactional_id)
                yield f"{name}, id {transactional_id}", client.ask(request, 9)
        opened = batch(attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0, base_sequence=0)
        mixed = produce([(topic, [(0, opened)]), (side.name("unknown"), [(0, batch())])])
        yield "transactional and plain", client.ask(mixed, 9)


@scenario
def too_few_replicas_in_sync(side):
    topic = side.create_topic("one", min_insync_replicas="2")
    for version in (3, 7, 8, 11):
        for acks in (-1, 1):
            yield f"v{version} acks {acks}", side.ask(produce_one(topic, batch(), acks=acks), version)


@scenario
def pipelined_requests(side):
    """Twenty produce requests in a row, then a long poll with a request behind it."""
    topic = side.create_topic("one")
    with side.connect() as client:
        for number in range(20):
            client.send(produce_one(topic, batch(b"%d" % number, at=PAST_MS), acks=(1, -1)[number % 2]), 9)
        answers = [client.receive() for _ in range(20)]
        yield "offsets", [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        client.send(fetch([(topic, [(0, 20)])], wait_ms=300), 12)
        client.send(fetch([(topic, [(0, 0)])]), 12)
        yield "the long poll", client.receive()
        yield "what waited behind it", client.receive()


@scenario
def large_answers(side):
    """Which batches an answer holds, and where it cuts the last one."""
    topic = side.create_topic("one")
    with side.connect() as client:
        for _ in range(3):
            client.ask(produce_one(topic, batch(*[b"z" * 1000] * 900, at=PAST_MS)), 9)
        limits = {"all": (50 << 20, 50 << 20), "partition": (50 << 20, 1 << 20), "request": (1 << 20, 50 << 20)}
        limits |= {"less than a batch": (2000, 1 << 20), "one byte": (1, 1)}
        for name, (max_bytes, partition_bytes) in limits.items():
            request = fetch([(topic, [(0, 0)])], max_bytes=max_bytes, partition_bytes=partition_bytes)
            (partition,) = client.ask(request, 12).responses[0].partitions
            yield name, [len(partition.records), partition.high_watermark]


@scenario
def largest_names(side):
    topic = side.name("x" * (249 - len(side.name(""))))
    yield "create", side.ask(m.CreateTopicsRequest(topics=[new_topic(topic)], timeout_ms=15_000), 4)
    side.wait(lambda: side.has_leaders(topic))
    yield "produce", side.ask(produce_one(topic, batch(at=PAST_MS)), 9)
    yield "fetch", side.ask(fetch([(topic, [(0, 0)])]), 11)
