"""AddPartitionsToTxn and AddOffsetsToTxn: partitions of a transaction, and whether a partition belongs to one."""

from barnabas.wire import messages as m
from compat_tests.differential.asking_transactions import (
    Stuck,
    Writer,
    add,
    add_offsets,
    add_several,
    await_transactions,
    seen,
    verify,
)
from compat_tests.differential.scenario import scenario

CLIENT_VERSIONS = range(4)
BROKER_VERSIONS = (4, 5)
NEVER_GIVEN = 2**50


@scenario
def partitions_of_unknown_ids_and_producers(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        writer.init()
        for version in CLIENT_VERSIONS:
            cases = {
                "empty id": add("", writer.producer, 1, {topic: [0]}),
                "unknown id": add(side.name("unknown"), writer.producer, 1, {topic: [0]}),
                "other producer": add(writer.name, NEVER_GIVEN, 1, {topic: [0]}),
                "no producer": add(writer.name, -1, -1, {topic: [0]}),
                "former epoch": add(writer.name, writer.producer, 0, {topic: [0]}),
                "higher epoch": add(writer.name, writer.producer, 2, {topic: [0]}),
                "no epoch": add(writer.name, writer.producer, -1, {topic: [0]}),
            }
            yield from writer.client.ask_all(version, cases)
        yield "then", writer.described()


@scenario
def partitions_that_may_not_be_added(side):
    topic = side.create_topic("one", 2)
    side.await_coordinator()
    with Writer(side) as writer:
        for version in CLIENT_VERSIONS:
            topics = {
                "no such topic": {"no-such-topic": [0]},
                "no such partition": {topic: [2]},
                "negative": {topic: [-1]},
                "groups": {"__consumer_offsets": [0]},
                "transactions": {"__transaction_state": [0]},
                "one good": {topic: [0, 7], "__consumer_offsets": [0], "no-such-topic": [0]},
                "bad name": {"a/b": [0]},
                "empty name": {"": [0]},
                "a partition twice": {"no-such-topic": [0, 0], topic: [1, 1]},
                "unknown partition, empty id": {topic: [2]},
            }
            cases = {name: add(*writer.who, of) for name, of in topics.items()}
            cases["unknown partition, empty id"] = add("", 1, 0, {topic: [2]})
            cases["unknown partition, unknown id"] = add("unknown", 1, 0, {topic: [2, 0]})
            yield from writer.client.ask_all(version, cases)
        yield "then", writer.described()


@scenario
def partitions_that_are_added(side):
    one, two = side.create_topic("one", 3), side.create_topic("two")
    for version in CLIENT_VERSIONS:
        with Writer(side, str(version)) as writer:
            for name, topics in (
                ("one", [(one, [0])]),
                ("again", [(one, [0])]),
                ("more", [(one, [0, 2]), (two, [0])]),
                ("a partition twice", [(one, [1, 1])]),
                ("a topic twice", [(one, [0]), (one, [1])]),
                ("topic without partitions", [(one, [])]),
                ("nothing", []),
            ):
                yield f"v{version} {name}", writer.client.ask(add(*writer.who, topics), version)
                yield f"v{version} {name}, then", writer.described()
            writer.end()
            for name, answer in seen(writer.client, one, 1):
                yield f"v{version} {name}", answer


@scenario
def a_transaction_begins_without_partitions(side):
    for version in CLIENT_VERSIONS:
        for commit in (True, False):
            with Writer(side, f"{version}-{commit}") as writer:
                yield f"v{version} {commit}", writer.client.ask(add(*writer.who, []), version)
                yield f"v{version} {commit} begun", writer.described()
                yield f"v{version} {commit} ends", writer.end(commit=commit, version=version)
                yield f"v{version} {commit} ended", writer.described()


@scenario
def partitions_while_markers_are_missing(side):
    topic = side.create_topic("one")
    for commit in (True, False):
        with Writer(side, f"{commit}") as writer, Stuck(writer, commit=commit) as stuck:
            for version in CLIENT_VERSIONS:
                cases = {
                    "another": add(*writer.who, {topic: [0]}),
                    "the same": add(*writer.who, {stuck.topic: [0]}),
                    "none": add(*writer.who, {}),
                    "higher epoch": add(writer.name, writer.producer, 5, {topic: [0]}),
                    "other producer": add(writer.name, NEVER_GIVEN, 0, {topic: [0]}),
                    "unknown partition": add(*writer.who, {topic: [9]}),
                }
                for name, request in cases.items():
                    yield f"{commit} v{version} {name}", writer.client.ask(request, version)
            for version in BROKER_VERSIONS:
                cases = {
                    "added": add_several((*writer.who, {topic: [0]})),
                    "verified": verify((*writer.who, {stuck.topic: [0]})),
                    "verified, not in": verify((*writer.who, {topic: [0]})),
                    "verified, epoch": verify((writer.name, writer.producer, 5, {stuck.topic: [0]})),
                    "verified, producer": verify((writer.name, NEVER_GIVEN, 0, {stuck.topic: [0]})),
                }
                for name, request in cases.items():
                    yield f"{commit} v{version} {name}", writer.client.ask(request, version)


@scenario
def partitions_of_the_next_transaction(side):
    one, two = side.create_topic("one"), side.create_topic("two")
    for commit in (True, False):
        with Writer(side, f"{commit}") as writer:
            writer.transaction(one, b"a", commit=commit)
            yield f"{commit} ended", writer.described()
            yield f"{commit} next", writer.add(two)
            yield f"{commit} begun", writer.described()


@scenario
def partitions_that_brokers_add(side):
    topic = side.create_topic("one", 2)
    side.await_coordinator()
    for version in BROKER_VERSIONS:
        with Writer(side, str(version)) as writer:
            cases = {
                "one": add_several((*writer.who, {topic: [0]})),
                "groups": add_several((*writer.who, {"__consumer_offsets": [0]})),
                "unknown partition": add_several((*writer.who, {topic: [1, 5]})),
                "unknown topic": add_several((*writer.who, {"no-such-topic": [0], topic: [1]})),
                "empty id": add_several(("", *writer.who[1:], {topic: [0]})),
                "unknown id": add_several(("unknown", *writer.who[1:], {topic: [0]})),
                "other producer": add_several((writer.name, NEVER_GIVEN, 0, {topic: [0]})),
                "higher epoch": add_several((writer.name, writer.producer, 1, {topic: [0]})),
                "no topics": add_several((*writer.who, {})),
                "no partitions": add_several((*writer.who, {topic: []})),
                "a partition twice": add_several((*writer.who, [(topic, [1, 1])])),
            }
            yield from writer.client.ask_all(version, cases)
            yield f"v{version} then", writer.described()


@scenario
def several_transactions_in_one_request(side):
    topic = side.create_topic("one", 3)
    for version in BROKER_VERSIONS:
        with Writer(side, f"{version}") as one:
            good, bad = (*one.who, {topic: [0]}), ("unknown", 1, 0, {topic: [1]})
            cases = {
                "good and bad": add_several(good, bad),
                "verified": verify(good, bad),
                "one id twice": verify((*one.who, {topic: [0]}), (*one.who, {topic: [2]})),
            }
            yield from one.client.ask_all(version, cases)
            yield f"v{version} then", one.described()


@scenario
def a_request_for_no_transaction(side):
    await_transactions(side)
    for version in BROKER_VERSIONS:
        yield f"v{version}", side.ask(m.AddPartitionsToTxnRequest(transactions=[]), version, seconds=1)


@scenario
def partitions_are_verified_in_every_state(side):
    topic = side.create_topic("one", 2)
    for version in BROKER_VERSIONS:
        with Writer(side, f"{version}") as writer:
            asked = verify((*writer.who, {topic: [0, 1]}))
            yield f"v{version} Empty", writer.client.ask(asked, version)
            writer.add(topic)
            yield f"v{version} Ongoing", writer.client.ask(asked, version)
            writer.end()
            yield f"v{version} CompleteCommit", writer.client.ask(asked, version)
            writer.transaction(topic, b"a", commit=False)
            yield f"v{version} CompleteAbort", writer.client.ask(asked, version)


@scenario
def partitions_that_cannot_be_verified(side):
    topic = side.create_topic("one", 2)
    side.await_coordinator()
    for version in BROKER_VERSIONS:
        with Writer(side, f"{version}") as writer:
            writer.init()
            writer.add(topic)
            name, producer, epoch = writer.who
            cases = {
                "empty id": verify(("", producer, epoch, {topic: [0]})),
                "unknown id": verify(("unknown", producer, epoch, {topic: [0]})),
                "other producer": verify((name, NEVER_GIVEN, epoch, {topic: [0]})),
                "former epoch": verify((name, producer, 0, {topic: [0]})),
                "higher epoch": verify((name, producer, 9, {topic: [0]})),
                "no topics": verify((name, producer, epoch, {})),
                "no partitions": verify((name, producer, epoch, {topic: []})),
                "groups": verify((name, producer, epoch, {"__consumer_offsets": [0]})),
                "unknown partition": verify((name, producer, epoch, {topic: [5]})),
                "unknown partition beside others": verify((name, producer, epoch, {topic: [0, 1, 5]})),
            }
            yield from writer.client.ask_all(version, cases)


@scenario
def offsets_are_added(side):
    side.await_coordinator()
    for version in range(5):
        with Writer(side, str(version)) as writer:
            writer.init()
            name, producer, epoch = writer.who
            cases = {
                "empty id": add_offsets("", producer, epoch, "g"),
                "unknown id": add_offsets("unknown", producer, epoch, "g"),
                "other producer": add_offsets(name, NEVER_GIVEN, epoch, "g"),
                "former epoch": add_offsets(name, producer, 0, "g"),
                "higher epoch": add_offsets(name, producer, 7, "g"),
                "good": add_offsets(name, producer, epoch, "g"),
                "again": add_offsets(name, producer, epoch, "g"),
                "another group": add_offsets(name, producer, epoch, "h"),
                "empty group": add_offsets(name, producer, epoch, ""),
            }
            for case, request in cases.items():
                yield f"v{version} {case}", writer.client.ask(request, version)
            yield f"v{version} then", writer.described()
            yield f"v{version} end", writer.end(version=min(version, 4))
            yield f"v{version} ended", writer.described()


@scenario
def offsets_while_markers_are_missing(side):
    with Writer(side) as writer, Stuck(writer):
        for version in range(5):
            yield f"v{version}", writer.client.ask(add_offsets(*writer.who, "g"), version)
            other = add_offsets(writer.name, writer.producer, 9, "g")
            yield f"v{version} higher epoch", writer.client.ask(other, version)


@scenario
def a_topic_is_deleted_in_a_transaction(side):
    kept, gone = side.create_topic("kept"), side.create_topic("gone")
    for commit in (True, False):
        with Writer(side, str(commit)) as writer:
            if not commit:
                gone = side.create_topic("gone")
            writer.add(kept, gone)
            writer.write(kept, b"a")
            writer.write(gone, b"b")
            side.delete_topic(gone)
            yield f"{commit} deleted", writer.described()
            yield f"{commit} end", writer.end(commit=commit)
            yield f"{commit} ended", writer.described()
