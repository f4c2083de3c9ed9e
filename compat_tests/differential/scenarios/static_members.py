"""Members with a group instance id (KIP-345): they come back, take each other's place, and are fenced."""

from compat_tests.differential.asking_groups import beat, commit, describe, join, leave, sync
from compat_tests.differential.scenario import scenario

VERSIONS = (5, 7, 9)


def _round(side, group, version, members):
    """Both instances join and sync: {instance: (client, member id)}, and their answers."""
    joined, answers = {}, []
    for instance, (client, member) in members.items():
        client.send(join(group, member, group_instance_id=instance), version)
    for instance, (client, _) in members.items():
        answer = client.receive()
        joined[instance] = (client, answer.member_id)
        answers.append((f"{instance} joins", answer))
    generation = answers[0][1].generation_id
    leads = answers[0][1].leader
    shares = {member: instance.encode() for instance, (_, member) in joined.items()}
    for instance, (client, member) in joined.items():
        given = shares if member == leads else {}
        client.send(sync(group, generation, member, given, group_instance_id=instance), 5)
    answers += [(f"{instance} syncs", client.receive()) for instance, (client, _) in joined.items()]
    return joined, answers, generation


@scenario
def a_static_member_comes_back(side):
    side.await_coordinator()
    for version in VERSIONS:
        group = side.name(str(version))
        with side.connect("one") as first, side.connect("two") as second:
            joined = first.ask(join(group, group_instance_id="I1"), version)
            yield f"v{version} joins", joined
            old = joined.member_id
            request = sync(group, 1, old, {old: b"S"}, group_instance_id="I1")
            yield f"v{version} syncs", first.ask(request, 5)
            back = second.ask(join(group, group_instance_id="I1"), version)
            yield f"v{version} comes back", back
            cases = {
                "beats": (beat(group, 1, old, "I1"), 3),
                "beats without its instance": (beat(group, 1, old), 3),
                "syncs": (sync(group, 1, old, group_instance_id="I1"), 5),
                "joins": (join(group, old, group_instance_id="I1"), version),
                "commits": (commit(group, [], 1, old, group_instance_id="I1"), 7),
                "leaves": (leave(group, (old, "I1")), 3),
            }
            for name, (request, of_version) in cases.items():
                yield f"v{version} the one before {name}", first.ask(request, of_version)
            new = back.member_id
            cases = {
                "beats": (beat(group, 1, new, "I1"), 3),
                "syncs": (sync(group, 1, new, group_instance_id="I1"), 5),
                "beats as an unknown instance": (beat(group, 1, new, "I9"), 3),
                "joins as an unknown instance": (join(group, new, group_instance_id="I9"), version),
            }
            for name, (request, of_version) in cases.items():
                yield f"v{version} the new one {name}", second.ask(request, of_version)


@scenario
def two_static_members(side):
    side.await_coordinator()
    for version in VERSIONS:
        group = side.name(str(version))
        with side.connect("one") as first, side.connect("two") as second, side.connect("three") as third:
            one = first.ask(join(group, group_instance_id="I1"), version).member_id
            first.ask(sync(group, 1, one, {one: b"S"}, group_instance_id="I1"), 5)
            second.send(join(group, group_instance_id="I2"), version)
            side.wait(lambda: first.ask(beat(group, 1, one, "I1"), 3).error_code)  # noqa: B023  # called at once
            first.send(join(group, one, group_instance_id="I1"), version)
            for name, client in {"I1": first, "I2": second}.items():
                joined = client.receive()
                yield f"v{version} {name} joins first", joined
            two = joined.member_id
            third.send(join(group, group_instance_id="I1"), version)
            side.wait(lambda: second.ask(beat(group, 2, two, "I2"), 3).error_code)  # noqa: B023  # called at once
            yield f"v{version} I2 beats while completing", second.ask(beat(group, 2, two, "I2"), 3)
            second.send(join(group, two, group_instance_id="I2"), version)
            back, joined = third.receive(), second.receive()
            yield f"v{version} I1 came back while completing", back
            yield f"v{version} I2 joined again", joined
            members = {"I1": (third, back.member_id), "I2": (second, joined.member_id)}
            members, answers, generation = _round(side, group, version, members)
            for name, answer in answers:
                yield f"v{version} {name}", answer
            for instance in members:
                answer = first.ask(join(group, group_instance_id=instance), version)
                yield f"v{version} {instance} comes back", answer
                request = sync(group, generation, answer.member_id, group_instance_id=instance)
                yield f"v{version} {instance} syncs again", first.ask(request, 5)
            yield f"v{version} described", describe(side, group)
            changed = join(group, group_instance_id="I2", protocols=(("range", b"changed"),))
            yield f"v{version} I2 comes back with other metadata", first.ask(changed, version, seconds=0.5)
            yield f"v{version} leave by instance", first.ask(leave(group, ("", "I2")), 5)
            yield (
                f"v{version} leave by instance and id",
                first.ask(leave(group, ("", "I9"), ("zz", "I1"), ("", "I1")), 5),
            )
            yield f"v{version} all left", describe(side, group)
