"""Sequence numbers and producer epochs: what is new, what is a repetition, what is out of order."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, fetch, produce, produce_one
from compat_tests.differential.scenario import scenario

TOP = 2**31 - 1  # the largest sequence number; 0 follows
NEVER_SEEN = 2**60


def _records(producer, epoch, sequence, count=1, **fields):
    content = [b"x"] * count
    return batch(*content, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, at=PAST_MS, **fields)


def _sequences(client, topic, producer, steps):
    """Each step: (name, epoch, first sequence, records)."""
    for name, epoch, sequence, count in steps:
        yield name, client.ask(produce_one(topic, _records(producer, epoch, sequence, count)), 9)


@scenario
def sequence_numbers(side):
    topic = side.create_topic("one")
    steps = [
        ("first", 0, 0, 2),
        ("second", 0, 2, 2),
        ("first again", 0, 0, 2),
        ("second again", 0, 2, 2),
        ("second again, shorter", 0, 2, 1),
        ("second again, longer", 0, 2, 3),
        ("gap", 0, 5, 1),
        ("third", 0, 4, 1),
        ("inside the first", 0, 1, 1),
        *((f"then {sequence}", 0, sequence, 1) for sequence in range(5, 11)),
        ("5 back", 0, 6, 1),
        ("6 back", 0, 5, 1),
        ("first again, forgotten", 0, 0, 2),
        ("next epoch, sequence not 0", 1, 11, 1),
        ("next epoch", 1, 0, 1),
        ("old epoch", 0, 11, 1),
        ("old epoch, a repetition", 0, 10, 1),
        ("next epoch goes on", 1, 1, 1),
        ("epochs left out", 5, 0, 1),
        ("again", 5, 0, 1),
    ]
    with side.connect() as client:
        yield from _sequences(client, topic, side.new_producer(), steps)


@scenario
def sequence_numbers_of_new_producers(side):
    topic = side.create_topic("one")
    with side.connect() as client:
        steps = [("starts at 5", 0, 5, 1), ("goes on", 0, 6, 1), ("repeats", 0, 5, 1)]
        yield from _sequences(client, topic, side.new_producer(), steps)
        steps = [("starts in epoch 3", 3, 0, 1), ("falls back to epoch 2", 2, 0, 1)]
        yield from _sequences(client, topic, side.new_producer(), steps)
        odd = {"0": (0, 0), "gap": (0, 7), "epoch 32767": (32767, 0), "epoch -1": (-1, 0), "epoch -2": (-2, 0)}
        for index, (name, (epoch, sequence)) in enumerate(odd.items()):
            records = _records(NEVER_SEEN + index, epoch, sequence)
            yield f"id never given, {name}", client.ask(produce_one(topic, records), 9)
        yield "id without sequence", client.ask(produce_one(topic, _records(side.new_producer(), 0, -1)), 9)


@scenario
def sequence_numbers_wrap(side):
    topic = side.create_topic("one", 3)
    histories = {
        "one by one": [(TOP - 1, 1), (TOP, 1), (0, 1), (TOP, 1)],
        "crossing": [(TOP - 2, 2), (TOP, 3), (TOP, 3), (2, 1), (2, 1), (9, 1)],
        "crossing at once": [(TOP - 1, 5), (3, 1)],
    }
    with side.connect() as client:
        for partition, (name, history) in enumerate(histories.items()):
            producer = side.new_producer()
            for step, (sequence, count) in enumerate(history):
                request = produce_one(topic, _records(producer, 0, sequence, count), partition=partition)
                yield f"{name}, {step}: {sequence}", client.ask(request, 9)


@scenario
def repetitions_in_every_version(side):
    for version in range(3, 12):
        topic, producer = side.create_topic(str(version)), side.new_producer()
        cases = {
            "first": produce_one(topic, _records(producer, 3, 0)),
            "first again": produce_one(topic, _records(producer, 3, 0)),
            "first again, acks 1": produce_one(topic, _records(producer, 3, 0), acks=1),
            "gap": produce_one(topic, _records(producer, 3, 9)),
            "old epoch": produce_one(topic, _records(producer, 2, 1)),
            "gzip": produce_one(topic, _records(producer, 3, 1, 3, codec=1)),
            "gzip again": produce_one(topic, _records(producer, 3, 1, 3, codec=1)),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def repetitions_within_requests(side):
    topic, producer = side.create_topic("one", 2), side.new_producer()
    appended = side.create_topic("append-time", message_timestamp_type="LogAppendTime")
    both = produce([(topic, [(0, _records(producer, 0, 0)), (1, _records(producer, 0, 0))])])
    twice = produce([(topic, [(1, _records(producer, 0, 1)), (1, _records(producer, 0, 1))])])
    mixed = produce([(topic, [(0, batch(at=PAST_MS)), (1, _records(producer, 0, 2))])])
    cases = {"two partitions": both, "again": both, "twice in one request": twice, "with a plain batch": mixed}
    cases |= {f"append time {number}": produce_one(appended, _records(producer, 0, 0)) for number in (1, 2)}
    with side.connect() as client:
        yield from client.ask_all(9, cases)


@scenario
def producer_ids(side):
    side.new_producer()
    for version in range(6):
        cases = {
            "new": m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
            "timeout -1": m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1),
            "longest timeout": m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TOP),
            "empty transactional id": m.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000),
        }
        if version >= 3:
            known = {"id and epoch": (3, 5), "id alone": (3, -1), "epoch alone": (-1, 3), "unknown id": (2**50, 1)}
            cases |= {
                name: m.InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=1000, producer_id=producer, producer_epoch=epoch
                )
                for name, (producer, epoch) in known.items()
            }
            cases["empty transactional id, id alone"] = m.InitProducerIdRequest(
                transactional_id="", transaction_timeout_ms=1000, producer_id=3
            )
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def other_records_under_numbers_that_were_used(side):
    """As by a producer whose id was given out before: numbers far back are no repetition of what was written then."""
    topic, producer = side.create_topic("one"), side.new_producer()
    last_five = range(5, 10)

    def written(sequence, value):
        records = batch(value, producer_id=producer, producer_epoch=0, base_sequence=sequence, at=PAST_MS)
        return client.ask(produce_one(topic, records), 9)

    with side.connect() as client:
        for sequence in range(10):
            yield f"old {sequence}", written(sequence, b"old")
        for sequence in (*range(5), *last_five):
            yield f"new {sequence}", written(sequence, b"new %d" % sequence)
        yield "the log", client.ask(fetch([(topic, [(0, 0)])]), 12)
