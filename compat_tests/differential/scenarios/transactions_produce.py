"""Transactional batches: which may begin a transaction in their partition, and which are refused (KIP-890)."""

from barnabas.wire import messages as m
from barnabas.wire.records import TRANSACTIONAL
from compat_tests.differential.asking import batch, fetch, produce, produce_one
from compat_tests.differential.asking_transactions import (
    Stuck,
    Writer,
    await_transactions,
    init,
    producers_of,
    records_of,
    seen,
)
from compat_tests.differential.scenario import scenario

VERSIONS = range(3, 12)
NEVER_GIVEN = 2**50


@scenario
def batches_of_partitions_that_were_not_added(side):
    topic, other = side.create_topic("one"), side.create_topic("two")
    for version in VERSIONS:
        with Writer(side, str(version)) as writer:
            yield f"v{version} Empty", writer.produce(topic, writer.records(0, b"a"), version=version)
            writer.add(other)
            yield f"v{version} Ongoing", writer.produce(topic, writer.records(0, b"a"), version=version)
            writer.end()
            yield f"v{version} CompleteCommit", writer.produce(topic, writer.records(0, b"a"), version=version)
    with side.connect() as client:
        yield from seen(client, topic)


@scenario
def batches_of_unknown_transactions(side):
    topic = side.create_topic("one")
    for version in VERSIONS:
        with Writer(side, str(version)) as writer:
            writer.init()
            writer.add(topic)
            producer, epoch = writer.producer, writer.epoch
            for name, records, of in (
                ("null id", writer.records(0, b"a"), None),
                ("empty id", writer.records(0, b"a"), ""),
                ("unknown id", writer.records(0, b"a"), side.name("unknown")),
                ("other producer", records_of(NEVER_GIVEN, epoch, 0, b"a"), writer.name),
                ("former epoch", records_of(producer, 0, 0, b"a"), writer.name),
                ("higher epoch", records_of(producer, 5, 0, b"a"), writer.name),
                ("no producer", records_of(-1, -1, -1, b"a"), writer.name),
                ("no producer, null id", records_of(-1, -1, -1, b"a"), None),
                ("no epoch", records_of(producer, -1, 0, b"a"), writer.name),
                ("no sequence", records_of(producer, epoch, -1, b"a"), writer.name),
            ):
                yield f"v{version} {name}", writer.produce(topic, records, transactional_id=of, version=version)
    with side.connect() as client:
        yield from seen(client, topic)


@scenario
def batches_of_several_producers_in_one_request(side):
    topic = side.create_topic("one", 3)
    with Writer(side, "one") as one, Writer(side, "two") as two:
        one.add(topic, partitions=(0, 1, 2))
        two.add(topic, partitions=(0, 1, 2))
        first, second = one.records(0, b"a"), two.records(0, b"b")
        raised = records_of(one.producer, 1, 0, b"a")
        plain = batch(b"p")
        idempotent = batch(b"i", producer_id=side.new_producer(), producer_epoch=0, base_sequence=0)
        for version in VERSIONS:
            cases = {
                "two producers": [(0, first), (1, second)],
                "two epochs": [(0, first), (1, raised)],
                "the second twice": [(0, first), (1, second), (1, first)],
            }
            for name, parts in cases.items():
                yield (
                    f"v{version} {name}",
                    one.client.ask(produce([(topic, parts)], transactional_id=one.name), version),
                )
        cases = {
            "with a plain one": [(0, first), (1, plain)],
            "plain first": [(0, plain), (1, first)],
            "with an idempotent one": [(2, first), (0, idempotent)],
        }
        for name, parts in cases.items():
            yield name, one.client.ask(produce([(topic, parts)], transactional_id=one.name), 11)


@scenario
def one_partition_was_added_and_another_was_not(side):
    topic = side.create_topic("one", 3)
    for version in VERSIONS:
        with Writer(side, str(version)) as writer:
            writer.add(topic, partitions=(0,))
            parts = [(0, writer.records(0, b"a")), (1, writer.records(0, b"b")), (7, writer.records(0, b"c"))]
            yield f"v{version}", writer.client.ask(produce([(topic, parts)], transactional_id=writer.name), version)
            writer.end()
    with side.connect() as client:
        yield from seen(client, topic, 1)


@scenario
def transactional_ids_of_plain_batches(side):
    topic = side.create_topic("one")
    await_transactions(side)
    idempotent = batch(b"i", producer_id=side.new_producer(), producer_epoch=0, base_sequence=0)
    for name, records in {"plain": batch(b"p"), "idempotent": idempotent}.items():
        for of in ("", "unknown"):
            yield f"{name} {of!r}", side.ask(produce_one(topic, records, transactional_id=of), 9)


@scenario
def batches_while_markers_are_missing(side):
    topic = side.create_topic("one")
    for commit in (True, False):
        with Writer(side, str(commit)) as writer, Stuck(writer, commit=commit) as stuck:
            for version in VERSIONS:
                request = {"version": version}
                yield f"{commit} v{version} another", writer.produce(topic, writer.records(0, b"a"), **request)
                same = writer.produce(stuck.topic, writer.records(0, b"a"), acks=1, **request)
                yield f"{commit} v{version} the same", same


@scenario
def batches_that_are_late(side):
    topic = side.create_topic("one")
    for version in VERSIONS:
        for commit in (True, False):
            with Writer(side, f"{version}-{commit}") as writer:
                writer.add(topic)
                writer.write(topic, b"a")
                writer.end(commit=commit)
                name = f"v{version} {commit}"
                yield f"{name} next", writer.produce(topic, writer.records(1, b"b"), version=version)
                yield f"{name} repeated", writer.produce(topic, writer.records(0, b"a"), version=version)
    with side.connect() as client:
        yield from seen(client, topic)


@scenario
def plain_batches_after_transactions(side):
    for commit in (True, False):
        topic = side.create_topic(str(commit))
        with Writer(side, str(commit)) as writer:
            writer.transaction(topic, b"a", commit=commit)
            yield f"{commit} next", writer.produce(topic, writer.records(1, b"b", attributes=0))
            yield f"{commit} refused", writer.produce(topic, writer.records(1, b"c"))
            yield f"{commit} behind it", writer.produce(topic, writer.records(2, b"c", attributes=0))


@scenario
def sequences_in_transactions(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.add(topic)
        for name, sequence, count in (
            ("too early", 3, 1),
            ("earlier", 2, 1),
            ("first", 0, 2),
            ("repeated", 0, 2),
            ("second", 2, 1),
            ("gap", 5, 1),
            ("inside", 1, 1),
            ("third", 3, 1),
        ):
            yield name, writer.produce(topic, writer.records(sequence, *[b"x"] * count))
        writer.end()
        writer.add(topic)
        for step, sequence in enumerate((3, 6, 4, 4, 5)):
            name = f"next transaction, {step}: {sequence}"
            yield name, writer.produce(topic, writer.records(sequence, b"y"))
        yield "producers", producers_of(side, topic)
        yield "end", writer.end()
        yield "bumped", writer.init(writer.producer, writer.epoch)
        writer.add(topic)
        for sequence in (6, 0):
            yield f"next epoch {sequence}", writer.produce(topic, writer.records(sequence, b"z"))


@scenario
def sequences_that_are_too_early_for_their_transaction(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        yield "not added", writer.produce(topic, writer.records(3, b"x"))
        writer.add(topic)
        for sequence in (5, 3, 4, 0, 1):
            yield f"{sequence}", writer.produce(topic, writer.records(sequence, b"x"))


@scenario
def plain_batches_in_an_open_transaction(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.add(topic)
        writer.write(topic, b"a")
        plain = writer.records(1, b"b", attributes=0)
        for version in VERSIONS:
            yield f"v{version}", writer.produce(topic, plain, version=version)
            yield f"v{version} null id", writer.produce(topic, plain, version=version, transactional_id=None)
        yield "of another", writer.client.ask(produce_one(topic, batch(b"c")), 9)
        yield "goes on", writer.write(topic, b"d")
        yield from seen(writer.client, topic)


@scenario
def a_higher_epoch_in_an_open_transaction(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.add(topic)
        writer.write(topic, b"a")
        yield "higher", writer.produce(topic, records_of(writer.producer, 1, 0, b"b"))
        yield "lower", writer.produce(topic, records_of(writer.producer, -1, 0, b"b"))


@scenario
def transactional_batches_without_acknowledgement(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        records = writer.records(0, b"a")
        for acks in (1, 0, -1, 2):
            request = produce_one(topic, records, acks=acks, transactional_id=writer.name)
            with side.connect() as client:
                client.send(request, 9)
                yield f"acks {acks}", client.listen() if acks == 0 else client.receive()
        yield "null id", writer.produce(topic, records, acks=1, transactional_id=None)
        with side.connect() as client:
            client.send(produce_one(topic, records, acks=0), 9)
            yield "null id, acks 0", client.listen()
        writer.add(topic)
        with side.connect() as client:
            client.send(produce_one(topic, records, acks=0, transactional_id=writer.name), 9)
            yield "added, acks 0", client.listen()
        yield "added, acks 1", writer.produce(topic, writer.records(1, b"b"), acks=1)
        writer.end()
        yield from seen(writer.client, topic)


@scenario
def transactional_batches_for_what_is_not_there(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    with Writer(side) as writer:
        writer.add(topic)
        for version in (3, 9, 11):
            for name, where, index in (
                ("unknown topic", "no-such-topic", 0),
                ("unknown partition", topic, 9),
                ("groups", "__consumer_offsets", 0),
                ("transactions", "__transaction_state", 0),
                ("bad name", "a/b", 0),
            ):
                answer = writer.produce(where, writer.records(0, b"a"), partition=index, version=version)
                yield f"v{version} {name}", answer


@scenario
def transactional_batches_that_are_damaged(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.add(topic)
        good = writer.records(0, b"a")
        yield "bad checksum", writer.produce(topic, good[:-1] + b"?")
        yield "cut", writer.produce(topic, good[:-1])
        yield "control", writer.produce(topic, writer.records(0, b"a", attributes=TRANSACTIONAL | 32))
        yield "too large", writer.produce(topic, writer.records(0, bytes(1_100_000)))
        yield "good", writer.produce(topic, good)


@scenario
def transactional_batches_are_stored_as_the_topic_says(side):
    compressed = side.create_topic("gzip", compression_type="gzip")
    append_time = side.create_topic("append-time", message_timestamp_type="LogAppendTime")
    compacted = side.create_topic("compacted", cleanup_policy="compact")
    with Writer(side) as writer:
        writer.add(compressed, append_time, compacted)
        for topic in (compressed, append_time, compacted):
            yield f"{topic} produce", writer.produce(topic, writer.records(0, (b"k", b"a")))
            yield f"{topic} without key", writer.produce(topic, writer.records(1, b"b"))
        writer.end()
        for topic in (compressed, append_time, compacted):
            yield f"{topic} log", writer.client.ask(fetch([(topic, [(0, 0)])]), 12)


PROBES = 200  # more than there are attempts


def _verify_is_on(side, value):
    """Change the one property of transactions that can be changed, on all brokers."""
    Request = m.IncrementalAlterConfigsRequest
    operation = 1 if value is None else 0
    change = Request.AlterableConfig(
        name="transaction.partition.verification.enable", config_operation=operation, value=value
    )
    resource = Request.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    return side.ask(Request(resources=[resource]), 1)


@scenario
def batches_that_are_not_verified(side):
    topic, probe = side.create_topic("one", 2), side.create_topic("probe", PROBES)
    with Writer(side) as writer, Writer(side, "probe") as prober:
        # A partition for each attempt: in one that has accepted a batch the transaction is open.
        partitions = iter(range(PROBES))

        def is_accepted():
            answer = prober.produce(probe, prober.records(0, b"p"), partition=next(partitions))
            return answer.responses[0].partition_responses[0].error_code == 0

        yield "off", _verify_is_on(side, "false")
        try:
            side.wait(is_accepted)
            yield "not added", writer.produce(topic, writer.records(0, b"a"))
            yield "again", writer.produce(topic, writer.records(0, b"a"))
            yield "null id", writer.produce(topic, writer.records(1, b"a"), transactional_id=None)
            yield (
                "of another",
                writer.produce(topic, records_of(NEVER_GIVEN, 3, 0, b"a"), transactional_id="x", partition=1),
            )
            yield "producers", producers_of(side, topic, 0, 1)
        finally:
            on = _verify_is_on(side, None)
            # Later scenarios rely on it, and Kafka applies a change some time after its answer.
            side.wait(lambda: not is_accepted())
        yield "on", on


@scenario
def a_producer_that_was_fenced_where_it_never_wrote(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.transaction(topic, b"a")
        former = writer.records(1, b"late")
        writer.init()
        yield "former epoch, known here", writer.produce(topic, former)
        writer.transaction(topic, b"b")
        yield "former epoch, fenced here", writer.produce(topic, former)
        yield "init with it", writer.client.ask(init(writer.name, 1000, writer.producer, 0), 4)
