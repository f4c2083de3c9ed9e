"""InitProducerId with a transactional id: who gets which producer id and epoch, in every state of the id."""

from compat_tests.differential.asking_transactions import Stuck, Writer, await_transactions, described, end, init
from compat_tests.differential.scenario import scenario

VERSIONS = range(6)
RECOVERING_VERSIONS = range(3, 6)  # that name a producer id and epoch
LONGEST_MS = 900_000
EXHAUSTED = 32_766
AT_A_TIME = 500  # requests on their way


@scenario
def producer_ids_of_a_new_transactional_id(side):
    await_transactions(side)
    for version in VERSIONS:
        name = side.name(str(version))
        with side.connect() as client:
            yield from client.ask_all(version, {f"time {number}": init(name) for number in range(3)})
        yield f"v{version} then", described(side, name)


@scenario
def producer_ids_that_are_refused(side):
    await_transactions(side)
    for version in VERSIONS:
        times = (0, -1, 1, LONGEST_MS, LONGEST_MS + 1, 2**31 - 1)
        cases = {"empty id": init(""), "empty id, no time": init("", 0)}
        cases |= {f"{time} ms": init(side.name(f"{version}-{time}"), time) for time in times}
        if version in RECOVERING_VERSIONS:
            cases |= {
                "producer without epoch": init(side.name("a"), producer=5),
                "epoch without producer": init(side.name("a"), epoch=5),
                "epoch without producer, empty id": init("", epoch=5),
                "epoch without producer, no time": init(side.name("a"), 0, epoch=5),
                "negative epoch": init(side.name(f"{version}-negative"), producer=5, epoch=-2),
                "negative producer": init(side.name(f"{version}-negative too"), producer=-2, epoch=5),
            }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def a_client_that_comes_back_to_a_forgotten_id(side):
    await_transactions(side)
    for version in RECOVERING_VERSIONS:
        with side.connect() as client:
            known = {"of stranger": (2**50, 7), "exhausted": (2**50, EXHAUSTED), "largest epoch": (1, 32_767)}
            cases = {name: init(side.name(f"{version}-{name}"), 1000, *who) for name, who in known.items()}
            yield from client.ask_all(version, cases)


@scenario
def epochs_that_a_client_names(side):
    for version in RECOVERING_VERSIONS:
        with Writer(side, str(version)) as writer:
            client, producer = writer.client, writer.producer
            for name, epoch in (
                ("current", 0),
                ("current, again", 0),
                ("current, a third time", 0),
                ("the next", 1),
                ("the one before", 0),
                ("the current one", 2),
                ("never given", 9),
                ("below zero", -5),
                ("largest", 32_767),
            ):
                yield f"v{version} {name}", client.ask(init(writer.name, 1000, producer, epoch), version)
            yield f"v{version} another producer", client.ask(init(writer.name, 1000, 2**50, 3), version)
            yield f"v{version} another producer, exhausted", client.ask(init(writer.name, 1000, 2**50, 32_766), version)
            yield f"v{version} none", client.ask(init(writer.name, 1000), version)
            for epoch in (3, 4):
                yield f"v{version} after none: {epoch}", client.ask(init(writer.name, 1000, producer, epoch), version)
        yield f"v{version} then", writer.described()


def _in_transaction(writer, topic):
    writer.add(topic)
    writer.write(topic, b"a")


@scenario
def an_open_transaction_is_aborted_for_a_successor(side):
    topic = side.create_topic("one")
    for version in VERSIONS:
        with Writer(side, str(version)) as writer:
            _in_transaction(writer, topic)
            former = writer.who
            yield f"v{version} successor", writer.init(version=version)
            yield f"v{version} former", writer.client.ask(end(*former), 3)
            yield f"v{version} then", writer.described()


@scenario
def an_open_transaction_whose_abort_takes_long(side):
    for version in VERSIONS:
        with Writer(side, str(version)) as writer, Stuck(writer, commit=None):
            yield f"v{version} first", side.ask(init(writer.name), version)
            yield f"v{version} second", side.ask(init(writer.name), version)
            yield f"v{version} the former one", writer.client.ask(end(*writer.who), 3)
            yield f"v{version} then", writer.described()


@scenario
def an_open_transaction_whose_abort_takes_long_for_its_own_producer(side):
    for version in RECOVERING_VERSIONS:
        with Writer(side, str(version)) as writer, Stuck(writer, commit=None):
            for epoch in (0, 1):
                yield f"v{version} {epoch}", writer.client.ask(init(writer.name, 1000, writer.producer, epoch), version)
                yield f"v{version} {epoch} then", writer.described()


@scenario
def an_open_transaction_is_aborted_for_its_own_producer(side):
    topic = side.create_topic("one")
    for version in RECOVERING_VERSIONS:
        with Writer(side, str(version)) as writer:
            _in_transaction(writer, topic)
            client, producer = writer.client, writer.producer
            client.ask(init(writer.name, 1000, producer, 0), version)
            writer.settle()
            yield f"v{version} aborted", writer.described()
            yield f"v{version} former epoch", client.ask(init(writer.name, 1000, producer, 0), version)
            yield f"v{version} raised epoch", client.ask(init(writer.name, 1000, producer, 1), version)
            yield f"v{version} raised epoch, again", client.ask(init(writer.name, 1000, producer, 1), version)


@scenario
def an_open_transaction_and_a_client_that_was_fenced(side):
    topic = side.create_topic("one")
    for version in RECOVERING_VERSIONS:
        with Writer(side, str(version)) as writer:
            writer.init()
            _in_transaction(writer, topic)
            client, producer = writer.client, writer.producer
            yield f"v{version} another producer", client.ask(init(writer.name, 1000, 2**50, 1), version)
            yield f"v{version} outdated epoch", client.ask(init(writer.name, 1000, producer, 0), version)
            writer.settle()
            yield f"v{version} then", writer.described()


@scenario
def producer_ids_while_markers_are_missing(side):
    for commit in (True, False):
        with Writer(side, str(commit)) as writer, Stuck(writer, commit=commit):
            for version in VERSIONS:
                name = f"commit {commit} v{version}"
                yield f"{name} none", writer.client.ask(init(writer.name), version)
                if version in RECOVERING_VERSIONS:
                    for kind, who in {"current": writer.who[1:], "another": (2**50, 0)}.items():
                        yield f"{name} {kind}", writer.client.ask(init(writer.name, 1000, *who), version)
            yield f"commit {commit} then", writer.described()


@scenario
def producer_ids_after_a_transaction(side):
    topic = side.create_topic("one")
    for commit in (True, False):
        for version in VERSIONS:
            with Writer(side, f"{commit}-{version}") as writer:
                writer.transaction(topic, b"a", commit=commit)
                yield f"commit {commit} v{version} before", writer.described()
                yield f"commit {commit} v{version}", writer.client.ask(init(writer.name, 1234), version)
                yield f"commit {commit} v{version} then", writer.described()


@scenario
def producer_ids_of_two_transactional_ids(side):
    await_transactions(side)
    with Writer(side, "one") as one, Writer(side, "two") as two:
        yield "who is who", one.client.ask(init(one.name, 1000, *two.who[1:]), 4)
        yield "one", one.described()
        yield "two", two.described()


@scenario
def epochs_that_are_exhausted(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        client, name, producer = writer.client, writer.name, writer.producer
        left = EXHAUSTED - 2
        while left:
            portion = min(left, AT_A_TIME)
            for _ in range(portion):
                client.send(init(name), 4)
            for _ in range(portion):
                answer = client.receive()
            left -= portion
        yield "nearly", answer
        yield "last", client.ask(init(name, 1000, producer, EXHAUSTED - 2), 4)
        yield "last, in use", client.ask(init(name, 1000, producer, EXHAUSTED - 1), 4)
        yield "last, again", client.ask(init(name, 1000, producer, EXHAUSTED - 1), 4)
        writer.producer, writer.epoch = producer, EXHAUSTED
        _in_transaction(writer, topic)
        yield "a new producer id", writer.init(version=4)
        yield "the former one", client.ask(init(name, 1000, producer, EXHAUSTED), 4)
        yield "then", writer.described()
