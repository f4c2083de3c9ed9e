"""Coordinators, and members that join, sync, beat and leave: every version and its errors."""

from barnabas.wire import messages as m
from compat_tests.differential.asking_groups import (
    beat,
    become_member,
    become_stable,
    commit,
    describe,
    join,
    leave,
    sync,
)
from compat_tests.differential.scenario import scenario

OTHER = (("range", b"other"),)


@scenario
def find_coordinators(side):
    side.await_coordinator()
    group = side.name("one")
    for version in range(7):
        keys = {"group": group, "empty": ""}
        cases = {name: m.FindCoordinatorRequest(key=key, coordinator_keys=[key]) for name, key in keys.items()}
        for key_type in (2, 3, 7, -1):
            key = f"{group}:AAAAAAAAAAAAAAAAAAAAAA:0" if key_type == 2 else "a"
            cases[f"type {key_type}"] = m.FindCoordinatorRequest(key=key, coordinator_keys=[key], key_type=key_type)
        cases["type 2, bad key"] = m.FindCoordinatorRequest(key="a", coordinator_keys=["a"], key_type=2)
        if version >= 4:
            cases |= {
                "no keys": m.FindCoordinatorRequest(coordinator_keys=[]),
                "several": m.FindCoordinatorRequest(coordinator_keys=["a", "b", "a", ""]),
                "several of type 9": m.FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=9),
            }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def joins_that_are_refused(side):
    side.await_coordinator()
    for version in range(10):
        group = side.name(str(version))
        cases = {
            "empty group": join(""),
            "unknown member": join(group, "unknown"),
            "unknown member, short session": join(group, "unknown", session_ms=1),
            "no protocols": join(group, protocols=()),
            "no type": join(group, protocol_type=""),
            "no type and no protocols": join(group, protocol_type="", protocols=()),
        }
        cases |= {f"session {time}": join(group, session_ms=time) for time in (10, 999, -1, 1_800_001, 10**9)}
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def joins_in_every_state(side):
    side.await_coordinator()
    for version in range(10):
        group = side.name(str(version))
        with side.connect() as client:
            joined = client.ask(join(group), version)
            yield f"v{version} first", joined
            if joined.error_code:  # it must come again under the id that it was given
                yield f"v{version} unknown beside a pending one", client.ask(join(group, "unknown"), version)
                joined = client.ask(join(group, joined.member_id), version)
                yield f"v{version} second", joined
            member = joined.member_id
            completing = {"again": join(group, member), "again, otherwise": join(group, member, protocols=OTHER)}
            for name, request in completing.items():
                yield f"v{version} completing: {name}", client.ask(request, version)
            generation = describe_generation(client, group, member)
            yield f"v{version} sync", client.ask(sync(group, generation, member, {member: b"share"}), 3)
            stable = {
                "leader again": join(group, member, protocols=OTHER),
                "other type": join(group, protocol_type="connect"),
                "no common protocol": join(group, protocols=(("sticky", b""),)),
                "no protocols": join(group, protocols=()),
                "member of another type": join(group, member, protocol_type="connect"),
                "member without a common protocol": join(group, member, protocols=(("sticky", b""),)),
                "unknown member": join(group, "unknown"),
                "member with a short session": join(group, member, session_ms=1),
            }
            if version >= 5:
                stable |= {
                    "unknown member with an instance": join(group, "unknown", group_instance_id="i1"),
                    "member with an instance": join(group, member, group_instance_id="i1"),
                }
            for name, request in stable.items():
                yield f"v{version} stable: {name}", client.ask(request, version)
        with side.connect(client_id=None) as client:
            yield f"v{version} without client id", client.ask(join(side.name(f"{version}-null")), version)


@scenario
def a_protocol_twice(side):
    side.await_coordinator()
    for version in (3, 9):
        request = join(side.name(str(version)), protocols=(("range", b"1"), ("range", b"2")))
        yield f"v{version}", side.ask(request, version, seconds=1)


def describe_generation(client, group, member):
    """The generation that the member is in, found by heartbeats."""
    for generation in range(1, 9):
        if client.ask(beat(group, generation, member), 3).error_code != 22:
            return generation
    raise AssertionError(f"{member} of {group} is in no generation")


@scenario
def a_round_of_two(side):
    """Two members through a whole rebalance, in every version that tells a member its id before it is admitted."""
    side.await_coordinator()
    for version in range(4, 10):
        group = side.name(str(version))
        first_protocols, second_protocols = (("rr", b"1r"), ("range", b"1")), (("rr", b"2r"), ("range", b"2"))
        with side.connect("one") as first, side.connect("two") as second:
            one = first.ask(join(group, protocols=first_protocols), version).member_id
            joined = first.ask(join(group, one, protocols=first_protocols), version)
            yield f"v{version} one joins", joined
            chosen = {"protocol_name": joined.protocol_name or "rr"}
            yield f"v{version} one syncs", first.ask(sync(group, 1, one, {one: b"all"}, **chosen), min(version, 5))
            two = second.ask(join(group, protocols=second_protocols), version).member_id
            yield f"v{version} one beats beside a pending one", first.ask(beat(group, 1, one), min(version, 4))
            second.send(join(group, two, protocols=second_protocols), version)
            side.wait(lambda: first.ask(beat(group, 1, one), 3).error_code)  # noqa: B023  # called at once
            yield f"v{version} one must join again", first.ask(beat(group, 1, one), min(version, 4))
            yield f"v{version} one syncs too late", first.ask(sync(group, 1, one, **chosen), min(version, 5))
            yield f"v{version} preparing", describe(side, group)
            first.send(join(group, one, protocols=first_protocols), version)
            joined = first.receive()
            yield f"v{version} one has joined", joined
            yield f"v{version} two has joined", second.receive()
            yield f"v{version} completing", describe(side, group)
            yield f"v{version} beat while completing", first.ask(beat(group, 2, one), min(version, 4))
            second.send(sync(group, 2, two, **chosen), min(version, 5))
            shares = {one: b"A", two: b"B", "ghost": b"X"}
            yield f"v{version} the leader syncs", first.ask(sync(group, 2, one, shares, **chosen), min(version, 5))
            yield f"v{version} the follower syncs", second.receive()
            yield f"v{version} stable", describe(side, group)
            cases = {
                "syncs again": (sync(group, 2, two, **chosen), min(version, 5)),
                "joins again": (join(group, two, protocols=second_protocols), version),
                "beats in an old generation": (beat(group, 1, two), min(version, 4)),
                "syncs in an old generation": (sync(group, 1, two, **chosen), min(version, 5)),
                "leaves": (leave(group, two), min(version, 5)),
                "beats after it left": (beat(group, 2, two), min(version, 4)),
            }
            for name, (request, of_version) in cases.items():
                yield f"v{version} the follower {name}", second.ask(request, of_version)
            yield f"v{version} the leader must join again", first.ask(beat(group, 2, one), min(version, 4))
            yield f"v{version} alone", first.ask(join(group, one, protocols=first_protocols), version)
            yield f"v{version} leaves before it synced", first.ask(leave(group, one), 1)
            yield f"v{version} empty", describe(side, group)


@scenario
def strangers(side):
    """Sync, Heartbeat and LeaveGroup of unknown members and groups."""
    side.await_coordinator()
    unknown = side.name("none")
    with side.connect() as client:
        for version in range(6):
            cases = {"empty group": sync("", 1, "x"), "unknown group": sync(unknown, 1, "x")}
            if version == 5:
                cases["null type"] = sync(unknown, 1, "x", protocol_type=None)
                cases["null name"] = sync(unknown, 1, "x", protocol_name=None)
            yield from client.ask_all(version, {f"sync, {name}": request for name, request in cases.items()})
        for version in range(5):
            cases = {"empty group": beat("", 1, "x"), "unknown group": beat(unknown, 1, "x")}
            cases |= {"empty member": beat(unknown, 1, ""), "generation -1": beat(unknown, -1, "")}
            yield from client.ask_all(version, {f"beat, {name}": request for name, request in cases.items()})
        for version in range(6):
            cases = {"empty group": leave("", "x"), "unknown group": leave(unknown, "x")}
            cases |= {"empty member": leave(unknown, ""), "two": leave(unknown, "x", ("y", "i"))}
            if version >= 3:
                cases |= {"no member": leave(unknown), "no member of an empty group": leave("")}
            yield from client.ask_all(version, {f"leave, {name}": request for name, request in cases.items()})


@scenario
def members_that_err(side):
    """The same requests in a group that exists, from its member and from others."""
    side.await_coordinator()
    group = side.name("one")
    with side.connect() as client:
        member = become_member(client, group).member_id
        for version in range(6):
            cases = {
                "unknown member": sync(group, 1, "x"),
                "wrong generation": sync(group, 7, member),
                "generation -1": sync(group, -1, member),
            }
            if version >= 3:
                cases["unknown instance"] = sync(group, 1, member, group_instance_id="i")
            if version == 5:
                cases |= {
                    "other type": sync(group, 1, member, protocol_type="connect"),
                    "other protocol": sync(group, 1, member, protocol_name="sticky"),
                    "null type": sync(group, 1, member, protocol_type=None),
                }
            yield from client.ask_all(version, {f"sync, {name}": request for name, request in cases.items()})
        yield "the leader forgets itself", client.ask(sync(group, 1, member, {"ghost": b"x"}), 3)
        yield "described", describe(side, group)
        for version in range(5):
            cases = {
                "good": beat(group, 1, member),
                "generation": beat(group, 2, member),
                "member": beat(group, 1, "x"),
            }
            if version >= 3:
                cases["instance"] = beat(group, 1, member, "i")
            yield from client.ask_all(version, {f"beat, {name}": request for name, request in cases.items()})
        for version in range(3, 6):
            cases = {
                "with an instance": leave(group, (member, "i")),
                "unknown": leave(group, "x", "", ("", "i")),
            }
            yield from client.ask_all(version, {f"leave, {name}": request for name, request in cases.items()})
        yield "leave twice in one request", client.ask(leave(group, member, member), 3)
        yield "left already", client.ask(leave(group, member), 1)
        yield "described after that", describe(side, group)
        yield "beat in the empty group", client.ask(beat(group, 1, member), 3)
        yield "sync in the empty group", client.ask(sync(group, 1, member), 3)
        yield "join with the old id", client.ask(join(group, member), 5)
        yield "join with the old id, v0", client.ask(join(group, member), 0)


@scenario
def groups_are_listed_and_described(side):
    side.await_coordinator()
    stable, other, unknown = side.name("stable"), side.name("other"), side.name("none")
    with side.connect() as client, side.connect() as second:
        become_stable(client, stable, 5, group_instance_id="I")
        become_member(second, other, protocol_type="connect", protocols=(("p", b"x"),))
        # The group without a name is there, whichever scenarios ran before.
        client.ask(commit("", [(side.create_topic("one"), [(0, 5)])]), 7)
        for version in range(6):
            yield f"describe v{version}", describe(side, stable, other, unknown, "", stable, version=version)
            yield f"describe v{version} none", describe(side, version=version)
            asked = m.DescribeGroupsRequest(groups=[stable, unknown, ""], include_authorized_operations=True)
            if version >= 3:
                yield f"describe v{version} authorized operations", side.ask(asked, version)
            for name, answer in client.ask_all(version, _lists(version)):
                answer.groups = [group for group in answer.groups if group.group_id in (stable, other)]
                yield f"list {name}", answer


def _lists(version):
    states = [["Stable"], ["stable"], ["Empty", "Stable"], ["Nope"], ["Nope", "Stable"], [""], ["CompletingRebalance"]]
    states += [["completingrebalance"], ["PreparingRebalance"], ["Dead"], ["Assigning"], ["Unknown"], ["STABLE"]]
    types = [["classic"], ["Classic"], ["consumer"], ["Consumer", "classic"], ["nope"], ["unknown"], ["share"], [""]]
    cases = {"all": m.ListGroupsRequest()}
    if version >= 4:
        cases |= {f"states {wanted}": m.ListGroupsRequest(states_filter=wanted) for wanted in states}
    if version >= 5:
        cases |= {f"types {wanted}": m.ListGroupsRequest(types_filter=wanted) for wanted in types}
        cases["both"] = m.ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"])
    return cases
