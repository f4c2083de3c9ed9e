"""What readers of committed records are given: up to which offset, and what they must leave out."""

from compat_tests.differential.asking import PAST_MS, batch, fetch, list_offsets, produce_one
from compat_tests.differential.asking_clusters import delete_records
from compat_tests.differential.asking_transactions import READ_COMMITTED, Writer, producers_of, read
from compat_tests.differential.scenario import scenario

FETCH_VERSIONS = range(4, 18)
LIST_VERSIONS = range(2, 10)
LATEST, EARLIEST, MAX_TIMESTAMP, LATEST_TIERED = -1, -2, -3, -5


def _produce(writer, topic, *values):
    return writer.client.ask(produce_one(topic, batch(*values)), 9)


def _asked(side, topic, version, offset):
    return side.topic_id(topic) if version >= 13 else topic  # of Fetch, which names topics by id


@scenario
def committed_records_in_every_version(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.transaction(topic, b"a", b"b")
        _produce(writer, topic, b"plain")
        writer.transaction(topic, b"c", commit=False)
        writer.transaction(topic, b"d")
        writer.add(topic)
        writer.write(topic, b"open")
        _produce(writer, topic, b"behind")
        for version in FETCH_VERSIONS:
            for offset in range(12):
                for isolation in (0, READ_COMMITTED):
                    request = fetch([(_asked(side, topic, version, offset), [(0, offset)])], isolation=isolation)
                    yield f"v{version} {offset} isolation {isolation}", writer.client.ask(request, version)


@scenario
def the_last_stable_offset(side):
    topic = side.create_topic("one")
    with Writer(side, "one") as one, Writer(side, "two") as two:

        def ends():
            for isolation in (0, READ_COMMITTED):
                asked = list_offsets({topic: [(0, LATEST)]}, isolation=isolation)
                yield f"latest {isolation}", one.client.ask(asked, 7)
            yield "read", one.client.ask(read(topic), 12)

        steps = (
            ("empty", lambda: None),
            ("one added", lambda: one.add(topic)),
            ("one", lambda: one.write(topic, b"a")),
            ("plain", lambda: _produce(one, topic, b"plain")),
            ("two added", lambda: two.add(topic)),
            ("two", lambda: two.write(topic, b"b")),
            ("two again", lambda: two.write(topic, b"c", b"d")),
            ("one ends", lambda: one.end(commit=True)),
            ("one begins", lambda: one.add(topic)),
            ("one again", lambda: one.write(topic, b"e")),
            ("two ends", lambda: two.end(commit=True)),
            ("one ends again", lambda: one.end(commit=True)),
        )
        for name, step in steps:
            step()
            for kind, answer in ends():
                yield f"{name}: {kind}", answer


@scenario
def aborted_transactions(side):
    topic = side.create_topic("one")
    with Writer(side, "one") as one, Writer(side, "two") as two:
        one.add(topic)
        two.add(topic)
        one.write(topic, b"a")
        two.write(topic, b"b")
        one.end(commit=False)
        one.transaction(topic, b"c", commit=False)
        two.end(commit=False)
        one.transaction(topic, b"d")
        two.add(topic)
        two.write(topic, b"e")
        one.transaction(topic, b"f", commit=False)
        for offset in range(15):
            yield f"from {offset}", one.client.ask(read(topic, offset), 12)
        for limit in (1, 80, 160, 320):
            yield f"at most {limit}", one.client.ask(read(topic, 0, partition_bytes=limit), 12)
        two.end(commit=False)
        for offset in range(15):
            yield f"decided, from {offset}", one.client.ask(read(topic, offset), 12)


@scenario
def aborted_transactions_in_several_segments(side):
    topic = side.create_topic("one", segment_bytes="1048576")
    with Writer(side) as writer:
        for number in range(4):
            writer.add(topic)
            writer.write(topic, bytes(400_000))
            writer.write(topic, bytes(400_000))
            writer.end(commit=number % 2 == 1)
        for offset in range(0, 13):
            answer = writer.client.ask(read(topic, offset, partition_bytes=1), 12)
            (row,) = answer.responses[0].partitions
            row.records = b""
            yield f"from {offset}", answer


@scenario
def offsets_by_time_for_committed_records(side):
    topic = side.create_topic("one")
    open_ms = PAST_MS + 7_000_000
    with Writer(side) as writer:
        writer.client.ask(produce_one(topic, batch(b"a", at=PAST_MS)), 9)
        writer.transaction(topic, b"b")
        writer.add(topic)
        writer.produce(topic, writer.records(1, b"open", at=open_ms))
        for version in LIST_VERSIONS:
            for name, time in {
                "latest": LATEST,
                "earliest": EARLIEST,
                "largest time": MAX_TIMESTAMP,
                "before all": PAST_MS - 1,
                "the first": PAST_MS,
                "the second": PAST_MS + 1,
                "the open one": PAST_MS + 6_000_000,
                "beyond": PAST_MS + 8_000_000,
            }.items():
                for isolation in (0, READ_COMMITTED):
                    if time == MAX_TIMESTAMP and version < 7:
                        continue
                    asked = list_offsets({topic: [(0, time)]}, isolation=isolation)
                    answer = writer.client.ask(asked, version)
                    for row in answer.topics[0].partitions:
                        row.timestamp -= PAST_MS if row.timestamp == open_ms else 0
                    yield f"v{version} {name} {isolation}", answer


@scenario
def a_reader_that_waits_for_a_commit(side):
    topic = side.create_topic("one")
    for commit in (True, False):
        with Writer(side, str(commit)) as writer, side.connect() as reader:
            (row,) = writer.client.ask(list_offsets({topic: [(0, LATEST)]}), 7).topics[0].partitions
            writer.add(topic)
            writer.write(topic, b"a")
            reader.send(read(topic, row.offset, wait_ms=5000), 12)
            yield f"{commit} waits", reader.listen(0.3)
            writer.end(commit=commit)
            yield f"{commit} read", reader.receive()


@scenario
def a_session_of_committed_records(side):
    topic = side.create_topic("one", 2)
    with Writer(side) as writer:
        opened = writer.client.ask(fetch([(topic, [(0, 0), (1, 0)])], isolation=READ_COMMITTED, session=(0, 0)), 12)
        yield "opened", opened

        def next_fetch(epoch):
            return writer.client.ask(fetch([], isolation=READ_COMMITTED, session=(opened.session_id, epoch)), 12)

        writer.add(topic, partitions=(0, 1))
        writer.write(topic, b"a")
        yield "open", next_fetch(1)
        writer.write(topic, b"b", partition=1)
        writer.end()
        yield "committed", next_fetch(2)
        yield "again", next_fetch(3)


@scenario
def records_of_an_open_transaction_are_deleted(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.add(topic)
        writer.write(topic, b"a", b"b")
        _produce(writer, topic, b"plain")
        for name, offset in (("inside", 1), ("behind", 3)):
            yield name, writer.client.ask(delete_records(topic, offset), 2)
            for isolation in (0, READ_COMMITTED):
                asked = list_offsets(
                    {
                        topic: [
                            (0, LATEST),
                        ]
                    },
                    isolation=isolation,
                )
                yield f"{name}: latest {isolation}", writer.client.ask(asked, 7)
            yield f"{name}: read", writer.client.ask(read(topic, offset), 12)
            yield f"{name}: producers", producers_of(side, topic)
        yield "goes on", writer.write(topic, b"c")
        yield "end", writer.end(commit=False)
        yield "read", writer.client.ask(read(topic, 3), 12)


@scenario
def producers_in_transactions(side):
    topic = side.create_topic("one")
    with Writer(side, "one") as one, Writer(side, "two") as two:
        one.add(topic)
        yield "added", producers_of(side, topic)
        one.write(topic, b"a")
        yield "open", producers_of(side, topic)
        two.transaction(topic, b"b", b"c", commit=False)
        yield "another ended", producers_of(side, topic)
        one.end()
        yield "ended", producers_of(side, topic)
        one.init()
        one.transaction(topic, b"d")
        yield "next epoch", producers_of(side, topic)
