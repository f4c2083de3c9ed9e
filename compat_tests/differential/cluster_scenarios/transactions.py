"""Transactions where brokers are not responsible: wrong coordinators and leaders, partitions in several places."""

from barnabas.wire import messages as m
from compat_tests.differential.asking_transactions import (
    Writer,
    add,
    add_offsets,
    add_several,
    await_transactions,
    commit_in,
    end,
    init,
    marker,
    markers,
    read,
    verify,
)
from compat_tests.differential.cluster_side import BROKERS, coordinator_of, transaction_coordinator_of
from compat_tests.differential.scenario import cluster_scenario


@cluster_scenario
def requests_to_those_who_do_not_coordinate_the_transaction(side):
    topic = side.create_topic("one")
    with Writer(side) as writer:
        stranger = next(broker for broker in BROKERS if broker != transaction_coordinator_of(writer.name))
        cases = {
            "init": (range(6), init(writer.name)),
            "init, empty id": (range(6), init("")),
            "init, no time": (range(6), init(writer.name, 0)),
            "add": (range(4), add(*writer.who, {topic: [0]})),
            "add, unknown partition": (range(4), add(*writer.who, {topic: [9]})),
            "add several": (range(4, 6), add_several((*writer.who, {topic: [0]}))),
            "verify": (range(4, 6), verify((*writer.who, {topic: [0]}))),
            "add offsets": (range(5), add_offsets(*writer.who, "g")),
            "end": (range(5), end(*writer.who)),
            "end, of another": (range(5), end(writer.name, 2**50, 0)),
            "describe": (range(1), m.DescribeTransactionsRequest(transactional_ids=[writer.name])),
        }
        with side.at(stranger) as client:
            for name, (versions, request) in cases.items():
                for version in versions:
                    yield f"{name} v{version}", client.ask(request, version)


@cluster_scenario
def transactional_offsets_to_those_who_do_not_coordinate_the_group(side):
    topic = side.create_topic("one")
    group = side.name("group")
    with Writer(side) as writer:
        yield "added", writer.add_offsets(group)
        request = commit_in(writer.name, group, writer.producer, writer.epoch, [(topic, [(0, 1)])])
        for broker in BROKERS:
            if broker != coordinator_of(group):
                for version in range(5):
                    yield f"broker {broker} v{version}", side.ask_at(broker, request, version)


@cluster_scenario
def markers_to_those_who_do_not_lead(side):
    await_transactions(side)
    placed = side.create_placed("one", [[1, 2], [2, 3], [3, 1]])
    for broker in BROKERS:
        for version in (0, 1):
            request = markers(marker(1, 0, {placed: [0, 1, 2]}))
            yield f"broker {broker} v{version}", side.ask_at(broker, request, version)


@cluster_scenario
def a_transaction_in_partitions_of_every_broker(side):
    leaders = (1, 2, 3)
    placed = side.create_placed("one", [[leader, *[each for each in BROKERS if each != leader]] for leader in leaders])
    group = side.name("group")
    for commit in (True, False):
        with Writer(side, str(commit)) as writer:
            yield f"{commit} added", writer.add(placed, partitions=range(3))
            yield f"{commit} offsets added", writer.add_offsets(group)
            for partition, leader in enumerate(leaders):
                with side.at(leader) as client:
                    request = writer.producing(placed, writer.records(0, b"a"), partition)
                    yield f"{commit} produce {partition}", client.ask(request, 11)
            yield f"{commit} commit", writer.commit_offsets(group, (placed, [(0, 1)]))
            yield f"{commit} end", writer.end(commit=commit)
            yield f"{commit} ended", writer.described()
            for partition, leader in enumerate(leaders):
                yield f"{commit} read {partition}", side.ask_at(leader, read(placed, partition=partition), 12)
