"""OffsetCommit and OffsetFetch in all versions, from members, non-members and impostors."""

from barnabas.wire import messages as m
from compat_tests.differential.asking_groups import become_member, commit, leave, offsets_of, sync
from compat_tests.differential.scenario import scenario


def _simple_commits(group, topic, unknown):
    """What a client without a group may commit."""
    return {
        "two": commit(group, [(topic, [(0, 5, "meta"), (1, 6)])]),
        "unknown topic": commit(group, [(unknown, [(0, 5)])]),
        "unknown partition": commit(group, [(topic, [(9, 5)])]),
        "negative partition": commit(group, [(topic, [(-1, 5)])]),
        "bad name": commit(group, [("..", [(0, 5)])]),
        "good and bad": commit(group, [(topic, [(0, 7), (9, 5)]), (unknown, [(0, 5)])]),
        "null metadata": commit(group, [(topic, [(2, 5, None)])]),
        "metadata of 4096": commit(group, [(topic, [(2, 5, "x" * 4096)])]),
        "metadata of 4097": commit(group, [(topic, [(2, 6, "x" * 4097)])]),
        "metadata too large beside a good one": commit(group, [(topic, [(2, 6, "x" * 5000), (1, 9)])]),
        "metadata of 4096 letters and more bytes": commit(group, [(topic, [(2, 5, "é" * 4096)])]),
        "negative offset": commit(group, [(topic, [(0, -5)])]),
        "offset -1": commit(group, [(topic, [(1, -1)])]),
        "nothing": commit(group, []),
        "no partitions": commit(group, [(topic, [])]),
        "no partitions of an unknown topic": commit(group, [(unknown, [])]),
        "no partitions, in an empty group": commit("", [(topic, []), (unknown, [])]),
        "partition twice": commit(group, [(topic, [(0, 1), (0, 2)])]),
        "topic twice": commit(group, [(topic, [(0, 1)]), (topic, [(0, 3), (1, 3)])]),
        "empty group": commit("", [(topic, [(0, 5)])]),
        "unknown topic in an empty group": commit("", [(unknown, [(0, 5)])]),
        "leader epochs": commit(group, [(topic, [(0, 5, "", 3), (1, 5, "", -1), (2, 5, "", -7)])]),
        "own time": commit(group, [(topic, [(0, 44, "m", -1, 5)])]),
        "retention": commit(group, [(topic, [(0, 55)])], retention_time_ms=100_000),
        "no retention": commit(group, [(topic, [(1, 55)])], retention_time_ms=0),
    }


def _strange_commits(group, topic, unknown):
    """Of members that are none, with generations that are none."""
    absent, good = f"{group}-none", [(topic, [(0, 5)])]
    return {
        "a generation of no group": commit(absent, good, 3, "x"),
        "generation 0": commit(absent, good, 0, ""),
        "generation -1 and a member": commit(f"{group}-x", good, -1, "x"),
        "a generation of an empty group": commit(group, good, 3, "x"),
        "generation -5": commit(group, good, -5, ""),
        "a generation and an unknown topic": commit(absent, [(unknown, [(0, 5)])], 3, "x"),
        "a generation and nothing": commit(absent, [], 3, "x"),
        "an instance of no group": commit(absent, good, 1, "x", group_instance_id="i"),
        "an instance alone": commit(group, good, group_instance_id="i"),
    }


@scenario
def commits(side):
    side.await_coordinator()
    topic, unknown = side.create_topic("one", 3), side.name("unknown")
    for version in range(10):
        group = side.name(str(version))
        cases = _simple_commits(group, topic, unknown)
        if version >= 1:
            cases |= _strange_commits(group, topic, unknown)
        with side.connect() as client:
            yield from client.ask_all(version, cases)
            for fetch_version in (0, 1, 5, 7):
                read = client.ask(offsets_of(group, [(topic, [0, 1, 2])]), fetch_version)
                yield f"v{version} read in v{fetch_version}", read


@scenario
def commits_of_members(side):
    side.await_coordinator()
    topic, unknown = side.create_topic("one", 3), side.name("unknown")
    good, large = [(topic, [(0, 5)])], [(topic, [(0, 5, "x" * 5000)])]
    for version in range(1, 10):
        group = side.name(str(version))
        with side.connect() as client:
            member = become_member(client, group).member_id
            cases = {"completing": commit(group, good, 1, member), "completing, no member": commit(group, good)}
            yield from client.ask_all(version, cases)
            client.ask(sync(group, 1, member, {member: b"x"}), 3)
            cases = {
                "good": commit(group, good, 1, member),
                "unknown topic": commit(group, [(unknown, [(0, 5)])], 1, member),
                "wrong generation": commit(group, good, 9, member),
                "wrong member": commit(group, good, 1, "x"),
                "no member": commit(group, good),
                "generation -1": commit(group, good, -1, member),
                "wrong generation, unknown topic": commit(group, [(unknown, [(0, 5)])], 9, member),
                "wrong generation, both topics": commit(group, [(unknown, [(0, 5)]), (topic, [(0, 5)])], 9, member),
                "too large": commit(group, large, 1, member),
                "too large, wrong generation": commit(group, large, 9, member),
                "a generation, no member": commit(group, good, 1, ""),
                "an instance": commit(group, good, 1, member, group_instance_id="i"),
            }
            yield from client.ask_all(version, cases)
            client.ask(leave(group, member), 1)
            cases = {"left": commit(group, good, 1, member), "left, no member": commit(group, good)}
            yield from client.ask_all(version, cases)


@scenario
def committed_offsets_are_read(side):
    side.await_coordinator()
    topic, other = side.create_topic("one", 3), side.create_topic("two")
    group, second, absent, unknown = map(side.name, ("group", "second", "none", "unknown"))
    with side.connect() as client:
        client.ask(commit(group, [(topic, [(0, 5, "meta", 2), (1, 6, "ü")]), (other, [(0, 1)])]), 7)
        client.ask(commit(second, [(other, [(0, 9)])]), 7)
        for version in range(10):
            cases = {
                "known": offsets_of(group, [(topic, [0, 1, 2])]),
                "unknown topic": offsets_of(group, [(unknown, [0])]),
                "unknown partitions": offsets_of(group, [(topic, [9, -1])]),
                "bad name": offsets_of(group, [("..", [0])]),
                "unknown group": offsets_of(absent, [(topic, [0])]),
                "empty group": offsets_of("", [(topic, [0])]),
                "partition twice": offsets_of(group, [(topic, [0, 0])]),
                "topic twice": offsets_of(group, [(topic, [0]), (topic, [1])]),
                "nothing": offsets_of(group, []),
                "no partitions": offsets_of(group, [(topic, [])]),
            }
            if version >= 2:
                groups = {"": group, " of an unknown group": absent, " of an empty group": ""}
                cases |= {f"all{name}": offsets_of(asked, None) for name, asked in groups.items()}
            if version >= 7:
                for stable in (True, False):
                    cases[f"stable {stable}"] = offsets_of(group, [(topic, [0, 2])], require_stable=stable)
                    cases[f"all, stable {stable}"] = offsets_of(group, None, require_stable=stable)
            if version >= 8:
                cases |= _several_groups(group, second, absent, topic, other)
            if version >= 9:
                for name, (member, epoch) in {"member": ("m", 3), "no member": (None, -1), "empty": ("", 0)}.items():
                    cases[name] = offsets_of(group, [(topic, [0])], member_id=member, member_epoch=epoch)
            for name, answer in client.ask_all(version, cases):
                yield name, _of_scenario(side, answer)

            if version >= 8:
                yield f"v{version} no groups", side.ask(m.OffsetFetchRequest(groups=[]), version, seconds=1)


def _of_scenario(side, answer):
    """The answer without what other scenarios have committed for the group without a name."""
    if not isinstance(answer, str):
        for group in (answer, *answer.groups):
            group.topics = [topic for topic in group.topics if side.name("") in topic.name or topic.name == ".."]
    return answer


def _several_groups(group, second, absent, topic, other):
    asked = [offsets_of(group, None), offsets_of(second, [(other, [0])]), offsets_of(absent, [(topic, [1])])]
    asked.append(offsets_of("", None))
    twice = [offsets_of(group, [(topic, [0])]), offsets_of(group, [(topic, [1])])]
    return {
        "several groups": m.OffsetFetchRequest(groups=[request.groups[0] for request in asked]),
        "a group twice": m.OffsetFetchRequest(groups=[request.groups[0] for request in twice]),
    }
