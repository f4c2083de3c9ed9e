"""EndTxn in every state, and transactions that end without it: by their time, or for a successor."""

from compat_tests.differential.asking import produce_one
from compat_tests.differential.asking_groups import offsets_of
from compat_tests.differential.asking_transactions import (
    Stuck,
    Writer,
    add,
    add_offsets,
    commit_in,
    end,
    init,
    producers_of,
    read,
    records_of,
    seen,
    verify,
)
from compat_tests.differential.scenario import scenario

VERSIONS = range(5)
NEVER_GIVEN = 2**50
RESULTS = {"commit": True, "abort": False}
EPOCHS = (-32_768, -1, 0, 2, 3, 32_765, 32_766, 32_767)  # the owner has epoch 1
PRODUCERS = (-(2**63), -1, NEVER_GIVEN, 2**63 - 1)


@scenario
def ends_of_nothing(side):
    with Writer(side) as writer:
        writer.init()
        name, producer, epoch = writer.who
        for version in VERSIONS:
            for result, commit in RESULTS.items():
                cases = {
                    "empty id": end("", producer, epoch, commit=commit),
                    "unknown id": end("unknown", producer, epoch, commit=commit),
                    "other producer": end(name, NEVER_GIVEN, epoch, commit=commit),
                    "former epoch": end(name, producer, 0, commit=commit),
                    "higher epoch": end(name, producer, 9, commit=commit),
                    "no epoch": end(name, producer, -1, commit=commit),
                    "Empty": end(name, producer, epoch, commit=commit),
                }
                for case, request in cases.items():
                    yield f"v{version} {result} {case}", writer.client.ask(request, version)
        yield "then", writer.described()


@scenario
def others_than_the_owner(side):
    """Any other epoch, and any other producer id, is refused in every request, and the owner goes on."""
    topic = side.create_topic("one")
    side.await_coordinator()
    with Writer(side) as writer, Writer(side, "thief") as thief:
        writer.init()
        thief.add(topic)
        name, producer, epoch = writer.who
        others = {f"epoch {other}": (producer, other) for other in EPOCHS}
        others |= {f"producer {other}": (other, epoch) for other in PRODUCERS}
        others["thief"] = thief.who[1:]

        for state in ("Empty", "Ongoing"):
            for label, who in others.items():
                offsets = commit_in(name, side.name("g"), *who, [(topic, [(0, 1)])])
                for version in range(4):
                    yield f"{state} {label} add v{version}", writer.client.ask(add(name, *who, {topic: [0]}), version)
                for version in VERSIONS:
                    yield f"{state} {label} end v{version}", writer.client.ask(end(name, *who), version)
                yield f"{state} {label} offsets", writer.client.ask(offsets, 3)
                yield f"{state} {label} verify", writer.client.ask(verify((name, *who, {topic: [0]})), 4)
                # Kafka takes a higher epoch into an open transaction, which cannot be ended then.
                if who[0] >= 0 and 0 <= who[1] <= (epoch if state == "Ongoing" else EPOCHS[-1]):
                    late = produce_one(topic, records_of(*who, 0, b"false"), transactional_id=name)
                    yield f"{state} {label} produce", writer.client.ask(late, 11)
            if state == "Empty":
                writer.add(topic)
                writer.write(topic, b"a")

        yield "then", writer.described()
        yield "end", writer.end()
        yield "read", writer.client.ask(read(topic), 12)
        yield "offsets", writer.client.ask(offsets_of(side.name("g"), [(topic, [0])]), 8)


@scenario
def ends_and_their_repetitions(side):
    topic = side.create_topic("one")
    for version in VERSIONS:
        for result, commit in RESULTS.items():
            with Writer(side, f"{version}-{result}") as writer:
                writer.add(topic)
                writer.write(topic, b"a")
                yield f"v{version} {result}", writer.end(commit=commit, version=version)
                yield f"v{version} {result} ended", writer.described()
                yield f"v{version} {result} again", writer.client.ask(end(*writer.who, commit=commit), version)
                yield f"v{version} {result} contrary", writer.client.ask(end(*writer.who, commit=not commit), version)
                higher = end(writer.name, writer.producer, 3, commit=commit)
                yield f"v{version} {result} higher epoch", writer.client.ask(higher, version)


@scenario
def ends_while_markers_are_missing(side):
    for result, commit in RESULTS.items():
        with Writer(side, result) as writer, Stuck(writer, commit=commit):
            yield f"{result} stuck", writer.described()
            for version in VERSIONS:
                yield f"{result} v{version} again", writer.client.ask(end(*writer.who, commit=commit), version)
                yield f"{result} v{version} contrary", writer.client.ask(end(*writer.who, commit=not commit), version)
                wrong = end(writer.name, NEVER_GIVEN, 0, commit=commit)
                yield f"{result} v{version} other producer", writer.client.ask(wrong, version)


@scenario
def ends_of_several_partitions(side):
    one, two = side.create_topic("one", 3), side.create_topic("two")
    for result, commit in RESULTS.items():
        with Writer(side, result) as writer:
            writer.add(one, partitions=(0, 1, 2))
            writer.add(two)
            writer.write(one, b"a")
            writer.write(one, b"b", b"c", partition=2)
            yield f"{result} end", writer.end(commit=commit)
            for topic, partition in ((one, 0), (one, 1), (one, 2), (two, 0)):
                for name, answer in seen(writer.client, topic, partition):
                    yield f"{result} {topic} {partition} {name}", answer


@scenario
def a_transaction_that_takes_too_long(side):
    topic, never = side.create_topic("one"), side.create_topic("never")
    side.await_coordinator()
    with Writer(side, timeout_ms=1000) as writer:
        writer.add(topic)
        writer.write(topic, b"a")
        side.wait(lambda: writer.is_in("CompleteAbort"))
        yield "aborted", writer.described()
        name, producer, epoch = writer.who
        for version in VERSIONS:
            yield f"end v{version}", writer.client.ask(end(*writer.who), version)
            yield f"offsets v{version}", writer.client.ask(add_offsets(*writer.who, "g"), version)
            offsets = commit_in(*writer.who[:1], "g", producer, epoch, [(topic, [(0, 1)])])
            yield f"commit v{version}", writer.client.ask(offsets, version)
        for version in range(4):
            yield f"add v{version}", writer.client.ask(add(*writer.who, {topic: [0]}), version)
        for version in range(3, 12):
            late = writer.produce(topic, writer.records(1, b"late"), version=version)
            yield f"produce v{version}", late
        yield "produce elsewhere", writer.produce(never, writer.records(0, b"late"))
        for version in range(3, 6):
            yield f"init v{version}", writer.client.ask(init(name, 1000, producer, epoch), version)
        yield "producers", producers_of(side, topic)
        yield "read", writer.client.ask(read(topic), 12)
        yield "init at last", writer.init()
        yield "then", writer.described()


@scenario
def a_transaction_that_takes_too_long_and_wrote_nothing(side):
    topic = side.create_topic("one")
    for name, partitions in {"added": [0], "nothing": []}.items():
        with Writer(side, name, timeout_ms=1000) as writer:
            writer.client.ask(add(*writer.who, {topic: partitions} if partitions else {}), 3)
            side.wait(lambda writer=writer: writer.is_in("CompleteAbort"))
            yield name, writer.described()
    with side.connect() as client:
        yield from seen(client, topic)


@scenario
def a_successor_takes_the_id_over(side):
    topic, other = side.create_topic("one"), side.create_topic("two")
    with Writer(side) as former:
        former.add(topic, other)
        former.write(topic, b"a")
        with Writer(side) as successor:
            yield "who", successor.described()
            yield "former: end", former.client.ask(end(*former.who), 3)
            yield "former: add", former.client.ask(add(*former.who, {topic: [0]}), 3)
            yield "former: produce", former.produce(topic, former.records(1, b"b"))
            yield "former: produce, where it wrote nothing", former.produce(other, former.records(0, b"b"))
            successor.add(topic)
            yield "produce", successor.write(topic, b"c")
            yield "former: produce into the open one", former.produce(topic, former.records(1, b"b"))
            records = records_of(former.producer, former.epoch, 0, b"again")
            yield "former: produce as the first", former.produce(topic, records)
            yield "end", successor.end()
            yield from seen(successor.client, topic)
            yield "read", successor.client.ask(read(topic), 12)
