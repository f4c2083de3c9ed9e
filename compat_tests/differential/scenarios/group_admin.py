"""DeleteGroups and OffsetDelete: groups in every state."""

from barnabas.wire import messages as m
from compat_tests.differential.asking_groups import become_member, become_stable, commit, describe, leave, offsets_of
from compat_tests.differential.scenario import scenario


@scenario
def delete_groups(side):
    side.await_coordinator()
    topic, absent = side.create_topic("one"), side.name("none")
    for version in range(3):
        stable, joining, left, offsets = (
            side.name(f"{version}-{of}") for of in ("stable", "joining", "left", "offsets")
        )
        with side.connect() as client:
            become_stable(client, stable)
            become_member(client, joining)
            member = become_stable(client, left).member_id
            client.ask(leave(left, member), 1)
            client.ask(commit(offsets, [(topic, [(0, 5)])]), 7)
            groups = {
                "stable": [stable],
                "completing": [joining],
                "left by its member": [left],
                "offsets alone": [offsets],
                "again": [offsets],
                "unknown": [absent],
                "empty name": [""],
                "twice": [absent, absent],
                "nothing": [],
                "several": [stable, absent, "", left],
            }
            cases = {name: m.DeleteGroupsRequest(groups_names=names) for name, names in groups.items()}
            yield from client.ask_all(version, cases)
            yield f"v{version} offsets of the deleted", client.ask(offsets_of(offsets, None), 7)
            yield f"v{version} the stable one", describe(side, stable)


def _delete(group, topics):
    """[(topic, [partition])]"""
    Topic, Partition = (
        m.OffsetDeleteRequest.OffsetDeleteRequestTopic,
        m.OffsetDeleteRequest.OffsetDeleteRequestPartition,
    )
    return m.OffsetDeleteRequest(
        group_id=group,
        topics=[
            Topic(name=name, partitions=[Partition(partition_index=index) for index in indexes])
            for name, indexes in topics
        ],
    )


def _subscribed(*topics):
    """A subscription of the consumer protocol, version 1."""
    return m.encode(m.ConsumerProtocolSubscription(topics=list(topics)), 1)


@scenario
def delete_offsets(side):
    side.await_coordinator()
    topic, other, unknown = side.create_topic("one", 3), side.create_topic("two"), side.name("unknown")
    empty, stable, connect, absent = map(side.name, ("empty", "stable", "connect", "none"))
    committed = [(topic, [(0, 1), (1, 2)]), (other, [(0, 3)])]
    with side.connect() as client:
        client.ask(commit(empty, committed), 7)
        subscribed = b"\x00\x01" + _subscribed(topic)
        member = become_stable(client, stable, protocols=(("range", subscribed),)).member_id
        client.ask(commit(stable, committed, 1, member), 7)
        member = become_stable(client, connect, protocol_type="connect").member_id
        client.ask(commit(connect, committed, 1, member), 7)
        cases = {
            "one": _delete(empty, [(topic, [0])]),
            "again": _delete(empty, [(topic, [0])]),
            "never committed": _delete(empty, [(topic, [2])]),
            "unknown topic": _delete(empty, [(unknown, [0])]),
            "unknown partition": _delete(empty, [(topic, [9, -1])]),
            "bad name": _delete(empty, [("..", [0])]),
            "unknown group": _delete(absent, [(topic, [0])]),
            "empty group name": _delete("", [(topic, [0])]),
            "nothing": _delete(empty, []),
            "no partitions": _delete(empty, [(topic, [])]),
            "partition twice": _delete(empty, [(topic, [1, 1])]),
            "topic twice": _delete(empty, [(other, [0]), (other, [0])]),
            "subscribed": _delete(stable, [(topic, [0])]),
            "subscribed and not": _delete(stable, [(topic, [0]), (other, [0])]),
            "of members of another type": _delete(connect, [(topic, [0])]),
            "nothing of an unknown group": _delete(absent, []),
        }
        for name, request in cases.items():
            yield name, client.ask(request, 0)
        for group in (empty, stable, connect):
            yield f"left in {group}", client.ask(offsets_of(group, None), 7)
