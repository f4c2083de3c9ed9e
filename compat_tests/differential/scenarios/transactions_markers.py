"""WriteTxnMarkers by hand: control batches of every kind, in every order, from coordinators of every epoch."""

from compat_tests.differential.asking import batch, fetch, produce_one
from compat_tests.differential.asking_groups import offsets_of
from compat_tests.differential.asking_transactions import (
    Writer,
    marker,
    markers,
    producers_of,
    read,
    records_of,
    seen,
)
from compat_tests.differential.scenario import scenario

VERSIONS = (0, 1)
STRANGER = 2**50
RESULTS = {"commit": True, "abort": False}
SHORT_SECONDS = 1.0


@scenario
def markers_of_stranger(side):
    """They end nothing, and are written."""
    topic = side.create_topic("one", 2)
    for version in VERSIONS:
        producer = side.new_producer()
        cases = {
            result: markers(marker(producer, 3, {topic: [0]}, commit=commit)) for result, commit in RESULTS.items()
        }
        cases |= {
            "higher epoch": markers(marker(producer, 5, {topic: [0]})),
            "lower epoch": markers(marker(producer, 4, {topic: [0]})),
            "same epoch": markers(marker(producer, 5, {topic: [0]}, commit=False)),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)
            yield f"v{version} producers", producers_of(side, topic)
            for name, answer in seen(client, topic):
                yield f"v{version} {name}", answer
            fenced = batch(b"a", producer_id=producer, producer_epoch=4, base_sequence=0)
            yield f"v{version} lower epoch produces", client.ask(produce_one(topic, fenced), 9)
            living = batch(b"a", producer_id=producer, producer_epoch=5, base_sequence=0)
            yield f"v{version} same epoch produces", client.ask(produce_one(topic, living), 9)


@scenario
def epochs_of_coordinators(side):
    topic = side.create_topic("one")
    producer = side.new_producer()
    for version in VERSIONS:
        with side.connect() as client:
            for epoch in (5 + version, 4, 5 + version, 9 + version, 8, 0, -1):
                request = markers(marker(producer, 0, {topic: [0]}, coordinator_epoch=epoch))
                answer = client.ask(request, version)
                yield f"v{version} {epoch}", answer
                producer_row = producers_of(side, topic)
                yield f"v{version} {epoch} producers", producer_row
                if epoch == 5 + version:
                    break
            for epoch in (4, 9 + version, 8, 0, -1):
                request = markers(marker(producer, 0, {topic: [0]}, coordinator_epoch=epoch))
                yield f"v{version} then {epoch}", client.ask(request, version)
                yield f"v{version} then {epoch} producers", producers_of(side, topic)


@scenario
def markers_that_cannot_be_written(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    for version in VERSIONS:
        cases = {
            "nothing": markers(),
            "no topics": markers(marker(1, 0, {})),
            "no partitions": markers(marker(1, 0, {topic: []})),
            "unknown topic": markers(marker(1, 0, {"no-such-topic": [0]})),
            "unknown partition": markers(marker(1, 0, {topic: [9]})),
            "negative partition": markers(marker(1, 0, {topic: [-1]})),
            "bad name": markers(marker(1, 0, {"a/b": [0]})),
            "two unknown": markers(marker(1, 0, {"no-such-topic": [0, 1], "nor-this": [0]})),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def markers_with_negative_numbers(side):
    topic = side.create_topic("one")
    for version in VERSIONS:
        cases = {
            "producer": markers(marker(-1, 0, {topic: [0]})),
            "epoch": markers(marker(1, -1, {topic: [0]})),
            "both": markers(marker(-5, -5, {topic: [0]})),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)
            yield f"v{version} log", client.ask(fetch([(topic, [(0, 0)])]), 12)


@scenario
def several_markers_in_one_request(side):
    topic = side.create_topic("one", 4)
    for version in VERSIONS:
        one, two = side.new_producer(), side.new_producer()
        cases = {
            "two producers": markers(marker(one, 0, {topic: [0]}), marker(two, 0, {topic: [0]}, commit=False)),
            "two partitions": markers(marker(one, 0, {topic: [0, 1]})),
            "one producer twice": markers(marker(one, 0, {topic: [2]}), marker(one, 0, {topic: [3]})),
            "bad, then good": markers(marker(one, 0, {topic: [9]}), marker(two, 0, {topic: [0]})),
            "one unknown": markers(marker(one, 0, {topic: [0, 9]})),
        }
        # Names for what is in the answers.
        with side.connect() as client:
            for name, request in cases.items():
                answer = client.ask(request, version)
                for row in answer.markers:
                    row.producer_id = {one: 1, two: 2}[row.producer_id]
                yield f"v{version} {name}", answer
            for index in range(4):
                log = client.ask(fetch([(topic, [(index, 0)])]), 12)
                sizes = bytes(log.responses[0].partitions[0].records or b"")
                yield f"v{version} log {index}", {"bytes": len(sizes)}


@scenario
def markers_that_kafka_does_not_answer(side):
    topic = side.create_alone("one")
    for version in VERSIONS:
        producer = side.new_producer()
        cases = {
            "good, then unknown": markers(marker(producer, 0, {topic: [0]}), marker(5, 0, {topic: [9]})),
            "a partition twice": markers(marker(producer, 0, [(topic, [0, 0])])),
        }
        for name, request in cases.items():
            yield f"v{version} {name}", side.ask(request, version, seconds=SHORT_SECONDS)


@scenario
def markers_end_an_open_transaction(side):
    """By hand, while its coordinator takes it for open; the producer goes on."""
    topic = side.create_topic("one")
    for version in VERSIONS:
        for result, commit in RESULTS.items():
            with Writer(side, f"{version}-{result}") as writer:
                name = f"v{version} {result}"
                writer.add(topic)
                writer.write(topic, b"a")
                request = markers(marker(writer.producer, writer.epoch, {topic: [0]}, commit=commit))
                yield f"{name} marker", writer.client.ask(request, version)
                yield f"{name} state", writer.described()
                for kind, answer in seen(writer.client, topic):
                    yield f"{name} {kind}", answer
                yield f"{name} goes on", writer.write(topic, b"b")
                yield f"{name} end", writer.end(commit=not commit)
                yield f"{name} read", writer.client.ask(read(topic), 12)


@scenario
def markers_with_another_epoch_than_the_transaction(side):
    topic = side.create_topic("one")
    for version in VERSIONS:
        with Writer(side, str(version)) as writer:
            writer.init()
            writer.add(topic)
            writer.write(topic, b"a")
            for name, epoch in (("lower", 0), ("higher", 3), ("the same", 1)):
                answer = writer.client.ask(markers(marker(writer.producer, epoch, {topic: [0]})), version)
                yield f"v{version} {name}", answer
                for kind, answer in seen(writer.client, topic):
                    yield f"v{version} {name} {kind}", answer
            yield f"v{version} producers", producers_of(side, topic)
            yield f"v{version} goes on", writer.write(topic, b"b")


@scenario
def markers_where_more_replicas_are_wanted_than_there_are(side):
    topic = side.create_topic("one", min_insync_replicas="4")
    for version in VERSIONS:
        yield f"v{version}", side.ask(markers(marker(1, 0, {topic: [0]})), version)


@scenario
def markers_in_topics_of_every_kind(side):
    kinds = {
        "append-time": {"message_timestamp_type": "LogAppendTime"},
        "gzip": {"compression_type": "gzip"},
        "compacted": {"cleanup_policy": "compact"},
    }
    for name, configs in kinds.items():
        topic, producer = side.create_topic(name, **configs), side.new_producer()
        with side.connect() as client:
            for result, commit in RESULTS.items():
                request = markers(marker(producer, 0, {topic: [0]}, commit=commit, coordinator_epoch=7))
                yield f"{name} {result}", client.ask(request, 1)
            yield f"{name} log", client.ask(fetch([(topic, [(0, 0)])]), 12)


@scenario
def markers_in_topics_for_small_messages(side):
    topic = side.create_topic("one", max_message_bytes="77")
    exact = side.create_topic("two", max_message_bytes="78")
    for name, of in {"77": topic, "78": exact}.items():
        yield name, side.ask(markers(marker(1, 0, {of: [0]})), 1)


@scenario
def markers_let_offsets_take_effect(side):
    topic = side.create_topic("one", 2)
    side.await_coordinator()
    for version in VERSIONS:
        for result, commit in RESULTS.items():
            with Writer(side, f"{version}-{result}") as writer:
                group = side.name(f"g-{version}-{result}")
                writer.add_offsets(group)
                (added,) = writer.described().transaction_states[0].topics
                writer.commit_offsets(group, (topic, [(0, 4)]))
                request = markers(marker(writer.producer, writer.epoch, {added.topic: added.partitions}, commit=commit))
                asked = offsets_of(group, [(topic, [0, 1])], require_stable=True)
                yield f"v{version} {result} before", writer.client.ask(asked, 8)
                yield f"v{version} {result}", writer.client.ask(request, version)
                yield f"v{version} {result} after", writer.client.ask(asked, 8)
                yield f"v{version} {result} state", writer.described()


@scenario
def batches_after_a_marker_of_a_higher_epoch(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.add(topic)
        writer.write(topic, b"a")
        yield "marker", writer.client.ask(markers(marker(writer.producer, 1, {topic: [0]}, commit=False)), 1)
        yield "transactional", writer.produce(topic, writer.records(1, b"b"))
        yield "plain", writer.produce(topic, writer.records(1, b"b", attributes=0))
        yield "its epoch", writer.produce(topic, records_of(writer.producer, 1, 0, b"b"))
        yield "its epoch, plain", writer.produce(topic, records_of(writer.producer, 1, 0, b"b", attributes=0))
        yield "producers", producers_of(side, topic)
