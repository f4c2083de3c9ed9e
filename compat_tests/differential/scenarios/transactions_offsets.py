"""TxnOffsetCommit: offsets of groups in transactions, and who reads them when."""

from barnabas.wire import messages as m
from compat_tests.differential.asking_groups import become_stable, commit, describe, offsets_of
from compat_tests.differential.asking_transactions import Stuck, Writer, commit_in, end
from compat_tests.differential.scenario import scenario

VERSIONS = range(5)
STRANGER = 2**50
STABLE_VERSIONS = range(7, 10)  # of OffsetFetch
TOO_LONG = "m" * 5000


def _offsets(writer, group, topic, *partitions, version=8, stable=True):
    asked = None if not partitions else [(topic, list(partitions))]
    return writer.client.ask(offsets_of(group, asked, require_stable=stable), version)


@scenario
def offsets_of_a_transaction(side):
    topic = side.create_topic("one", 3)
    side.await_coordinator()
    for version in VERSIONS:
        for commits in (True, False):
            with Writer(side, f"{version}-{commits}") as writer:
                group, name = side.name(f"g-{version}-{commits}"), f"v{version} {commits}"
                writer.client.ask(commit(group, [(topic, [(0, 5, "before"), (2, 1)])]), 5)
                yield f"{name} added", writer.add_offsets(group)
                rows = [(0, 10, "m", 3), (1, 7, None)]
                yield f"{name} committed", writer.commit_offsets(group, (topic, rows), version=version)
                for read in STABLE_VERSIONS:
                    for stable in (True, False):
                        answer = _offsets(writer, group, topic, 0, 1, 2, version=read, stable=stable)
                        yield f"{name} open v{read} {stable}", answer
                        answer = _offsets(writer, group, topic, version=read, stable=stable)
                        yield f"{name} open, all v{read} {stable}", answer
                yield f"{name} end", writer.end(commit=commits)
                for stable in (True, False):
                    yield f"{name} ended {stable}", _offsets(writer, group, topic, 0, 1, 2, stable=stable)
                    yield f"{name} ended, all {stable}", _offsets(writer, group, topic, stable=stable)
                yield f"{name} group", describe(side, group)


@scenario
def offsets_that_are_refused(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    for version in VERSIONS:
        with Writer(side, str(version)) as writer:
            writer.init()
            group = side.name(f"g-{version}")
            writer.add_offsets(group)
            name, producer, epoch = writer.who
            one = [(topic, [(0, 1)])]
            cases = {
                "empty group": commit_in(name, "", producer, epoch, one),
                "empty id": commit_in("", group, producer, epoch, one),
                "unknown id": commit_in("stranger", group, producer, epoch, one),
                "other producer": commit_in(name, group, STRANGER, epoch, one),
                "no producer": commit_in(name, group, -1, -1, one),
                "former epoch": commit_in(name, group, producer, 0, one),
                "higher epoch": commit_in(name, group, producer, 7, one),
                "unknown topic": commit_in(name, group, producer, epoch, [("no-such-topic", [(0, 1)])]),
                "unknown partition": commit_in(name, group, producer, epoch, [(topic, [(9, 1)])]),
                "unknown beside known": commit_in(name, group, producer, epoch, [(topic, [(0, 1), (9, 1)])]),
                "too long": commit_in(name, group, producer, epoch, [(topic, [(0, 2, TOO_LONG)])]),
                "nothing": commit_in(name, group, producer, epoch, []),
                "no partitions": commit_in(name, group, producer, epoch, [(topic, [])]),
                "negative offset": commit_in(name, group, producer, epoch, [(topic, [(0, -3)])]),
                "a partition twice": commit_in(name, group, producer, epoch, [(topic, [(0, 3), (0, 4)])]),
                "unknown topic, empty group": commit_in(name, "", producer, epoch, [("no-such-topic", [(0, 1)])]),
            }
            yield from writer.client.ask_all(version, cases)
            yield f"v{version} group", describe(side, group)
            yield f"v{version} end", writer.end()
            yield f"v{version} offsets", _offsets(writer, group, topic)


@scenario
def offsets_of_groups_that_were_not_added(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    for version in VERSIONS:
        with Writer(side, str(version)) as writer:
            group = side.name(f"g-{version}")
            offsets = (topic, [(0, 1)])
            yield f"v{version} Empty", writer.commit_offsets(group, offsets, version=version)
            writer.add(topic)
            yield f"v{version} Ongoing", writer.commit_offsets(group, offsets, version=version)
            writer.end()
            yield f"v{version} CompleteCommit", writer.commit_offsets(group, offsets, version=version)
            writer.add_offsets(group)
            writer.commit_offsets(group, offsets)
            writer.end()
            yield f"v{version} late", writer.commit_offsets(group, offsets, version=version)
            yield f"v{version} group", describe(side, group)
            yield f"v{version} offsets", _offsets(writer, group, topic)


@scenario
def offsets_of_members(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    for version in (3, 4):
        with Writer(side, str(version)) as writer, side.connect() as client:
            group = side.name(f"g-{version}")
            joined = become_stable(client, group, group_instance_id=None)
            member, generation = joined.member_id, joined.generation_id
            writer.add_offsets(group)
            name, producer, epoch = writer.who
            of = {
                "the member": (generation, member),
                "former generation": (generation - 1, member),
                "next generation": (generation + 1, member),
                "no generation": (-1, member),
                "unknown member": (generation, "unknown"),
                "generation alone": (generation, ""),
                "stranger": (-1, ""),
                "instance": (-1, "", "i1"),
                "instance of the member": (generation, member, "i1"),
            }
            for offset, (case, who) in enumerate(of.items()):
                request = commit_in(name, group, producer, epoch, [(topic, [(0, offset)])], *who)
                yield f"v{version} {case}", writer.client.ask(request, version)
            yield f"v{version} end", writer.end()
            yield f"v{version} offsets", _offsets(writer, group, topic)


@scenario
def offsets_of_static_members(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    with Writer(side) as writer, side.connect() as client:
        group = side.name("g")
        joined = become_stable(client, group, 5, group_instance_id="i1")
        member, generation = joined.member_id, joined.generation_id
        writer.add_offsets(group)
        name, producer, epoch = writer.who
        of = {
            "the member": (generation, member, "i1"),
            "without instance": (generation, member),
            "another's instance": (generation, "another", "i1"),
            "unknown instance": (generation, member, "i2"),
            "instance alone": (-1, "", "i1"),
        }
        for offset, (case, who) in enumerate(of.items()):
            request = commit_in(name, group, producer, epoch, [(topic, [(0, offset)])], *who)
            yield case, writer.client.ask(request, 3)
        yield "end", writer.end()
        yield "offsets", _offsets(writer, group, topic)


@scenario
def offsets_of_groups_without_members(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    with Writer(side) as writer:
        name, producer, epoch = writer.who
        for number, who in enumerate(((-1, ""), (5, ""), (0, ""), (-1, "m"), (5, "m"), (-1, "", "i"), (0, "m", "i"))):
            group = side.name(f"g-{number}")
            writer.add_offsets(group)
            request = commit_in(name, group, producer, epoch, [(topic, [(0, 1)])], *who)
            yield f"{who}", writer.client.ask(request, 3)
            yield f"{who} group", describe(side, group)
        yield "end", writer.end()


@scenario
def offsets_beside_those_of_a_transaction(side):
    topic = side.create_topic("one", 4)
    side.await_coordinator()
    with Writer(side) as writer:
        group = side.name("g")
        writer.add_offsets(group)
        yield "first", writer.commit_offsets(group, (topic, [(0, 1), (1, 1), (2, 1)]))
        yield "second", writer.commit_offsets(group, (topic, [(1, 2)]))
        yield "lower", writer.commit_offsets(group, (topic, [(2, 0)]))
        plain = commit(group, [(topic, [(0, 50), (3, 50)])])
        yield "plain", writer.client.ask(plain, 5)
        yield "open", _offsets(writer, group, topic, 0, 1, 2, 3, stable=False)
        yield "open, stable", _offsets(writer, group, topic, 0, 1, 2, 3)
        yield "end", writer.end()
        yield "ended", _offsets(writer, group, topic, 0, 1, 2, 3)


@scenario
def offsets_of_two_transactions(side):
    topic = side.create_topic("one", 2)
    side.await_coordinator()
    group = side.name("g")
    with Writer(side, "one") as one, Writer(side, "two") as two:
        for offset, writer in enumerate((one, two), 1):
            writer.add_offsets(group)
            yield f"committed {offset}", writer.commit_offsets(group, (topic, [(0, offset), (1, offset)]))
        yield "second ends", two.end()
        yield "second ended", _offsets(one, group, topic, 0, 1)
        yield "unstable", _offsets(one, group, topic, 0, 1, stable=False)
        yield "first ends", one.end()
        yield "first ended", _offsets(one, group, topic, 0, 1)


def _delete(side, group, topic, *partitions):
    Request = m.OffsetDeleteRequest
    rows = [Request.OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    topics = [Request.OffsetDeleteRequestTopic(name=topic, partitions=rows)]
    return side.ask(Request(group_id=group, topics=topics), 0)


@scenario
def offsets_are_deleted_in_a_transaction(side):
    topic = side.create_topic("one", 3)
    side.await_coordinator()
    for commits in (True, False):
        with Writer(side, str(commits)) as writer:
            group = side.name(f"g-{commits}")
            writer.client.ask(commit(group, [(topic, [(0, 5), (1, 5)])]), 5)
            writer.add_offsets(group)
            writer.commit_offsets(group, (topic, [(0, 10), (2, 10)]))
            yield f"{commits} deleted", _delete(side, group, topic, 0, 1, 2)
            yield f"{commits} open", _offsets(writer, group, topic, 0, 1, 2)
            yield f"{commits} end", writer.end(commit=commits)
            yield f"{commits} ended", _offsets(writer, group, topic, 0, 1, 2)
            yield f"{commits} group", describe(side, group)


@scenario
def groups_are_deleted_in_a_transaction(side):
    topic = side.create_topic("one", 2)
    side.await_coordinator()
    for commits in (True, False):
        with Writer(side, str(commits)) as writer:
            group = side.name(f"g-{commits}")
            writer.add_offsets(group)
            writer.commit_offsets(group, (topic, [(0, 10)]))
            yield f"{commits} described", describe(side, group)
            yield f"{commits} deleted", side.ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
            yield f"{commits} gone", describe(side, group)
            yield f"{commits} open", _offsets(writer, group, topic, 0)
            yield f"{commits} end", writer.end(commit=commits)
            yield f"{commits} ended", _offsets(writer, group, topic, 0)
            yield f"{commits} group", describe(side, group)


@scenario
def a_group_of_which_only_a_failed_commit_is_known(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    with Writer(side) as writer:
        group = side.name("g")
        yield "not added", writer.commit_offsets(group, (topic, [(0, 1)]))
        yield "described", describe(side, group)
        groups = side.ask(m.ListGroupsRequest(), 4)
        groups.groups = [each for each in groups.groups if each.group_id == group]
        yield "listed", groups


@scenario
def offsets_while_markers_are_missing_elsewhere(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    for commits in (True, False):
        with Writer(side, str(commits)) as writer:
            group = side.name(f"g-{commits}")
            writer.add_offsets(group)
            writer.commit_offsets(group, (topic, [(0, 4)]))
            with Stuck(writer, commit=commits):
                side.wait(lambda: len(writer.described().transaction_states[0].topics) == 1)
                yield f"{commits} read", _offsets(writer, group, topic, 0)
                for version in VERSIONS:
                    late = writer.commit_offsets(group, (topic, [(0, 5)]), version=version)
                    yield f"{commits} v{version} late", late


@scenario
def a_higher_epoch_in_a_transaction_of_offsets(side):
    topic = side.create_topic("one")
    side.await_coordinator()
    with Writer(side) as writer:
        writer.init()
        group = side.name("g")
        writer.add_offsets(group)
        writer.commit_offsets(group, (topic, [(0, 4)]))
        name, producer, epoch = writer.who
        for version in VERSIONS:
            lower = commit_in(name, group, producer, epoch - 1, [(topic, [(0, 5)])])
            yield f"v{version} lower", writer.client.ask(lower, version)
            other = commit_in("another", group, producer, epoch, [(topic, [(0, 6)])])
            yield f"v{version} another id", writer.client.ask(other, version)
        yield "end", writer.client.ask(end(*writer.who), 3)
        writer.settle()
        yield "ended", _offsets(writer, group, topic, 0)
