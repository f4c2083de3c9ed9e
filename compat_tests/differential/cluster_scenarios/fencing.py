"""Requests to the wrong broker, or with another leader epoch than the current one."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, fetch, list_offsets, metadata, new_topic, produce_one
from compat_tests.differential.asking_clusters import (
    create,
    delete,
    delete_records,
    describe_producers,
    elect,
    end_of_epoch,
    more_partitions,
    reassign,
    reassignments,
)
from compat_tests.differential.asking_groups import beat, commit, join, leave, offsets_of, sync
from compat_tests.differential.cluster_side import coordinator_of
from compat_tests.differential.clusters import BROKERS, CONTROLLER
from compat_tests.differential.scenario import cluster_scenario


def _filled(side, of, replicas, records=3):
    topic = side.create_placed(of, [replicas])
    with side.at(replicas[0]) as leader:
        for number in range(records):
            leader.ask(produce_one(topic, batch(b"%d" % number, at=PAST_MS + number)), 9)
    return topic


@cluster_scenario
def requests_to_those_who_do_not_lead(side):
    """Broker 2 follows, broker 3 has no replica."""
    topic = _filled(side, "one", [1, 2])
    topic_id = side.topic_id(topic)
    for broker in (2, 3):
        with side.at(broker) as client:
            for version in range(3, 12):
                for acks in (-1, 1):
                    request = produce_one(topic, batch(), acks=acks)
                    yield f"broker {broker} produce v{version} acks {acks}", client.ask(request, version)
            for version in range(18):
                name = topic if version < 13 else topic_id
                if version < 11 or broker == 3:  # from 11 on a follower serves consumers: see `reads_from_followers`
                    request = fetch([(name, [(0, 0)])], wait_ms=0)
                    yield f"broker {broker} fetch v{version}", client.ask(request, version)
            for version in range(10):
                for name, time in {"end": -1, "start": -2, "time": PAST_MS}.items():
                    request = list_offsets({topic: [(0, time)]})
                    yield f"broker {broker} list offsets v{version} {name}", client.ask(request, version)
                request = list_offsets({topic: [(0, -1)]}, replica=-2)
                yield f"broker {broker} list offsets v{version} for debugging", client.ask(request, version)
            for version in range(5):
                yield f"broker {broker} end of epoch v{version}", client.ask(end_of_epoch(topic), version)
            for version in range(3):
                yield f"broker {broker} delete records v{version}", client.ask(delete_records(topic, 1), version)
            yield f"broker {broker} producers", client.ask(describe_producers(topic, 0, 1), 0)


@cluster_scenario
def leader_epochs_of_the_past_and_of_the_future(side):
    """The leader moves from 1 to 2, epoch by epoch."""
    topic = _filled(side, "one", [1, 2, 3])
    yield "turned round", side.ask(reassign({topic: {0: [2, 1, 3]}}), 0)
    yield "elected", side.ask(elect({topic: [0]}), 2)
    side.await_isr(topic, BROKERS, leader=2)
    epoch = side.topic_seen_by(2, topic).partitions[0].leader_epoch
    yield "epoch", epoch
    yield "produced", side.ask_at(2, produce_one(topic, batch(b"later", at=PAST_MS)), 9)
    topic_id = side.topic_id(topic)
    for broker in BROKERS:
        with side.at(broker) as client:
            for asked in (*range(epoch + 3), -1):
                for version in (9, 11, 12, 13, 17):
                    if broker == 2 or asked > epoch or 0 <= asked < epoch:
                        name = topic if version < 13 else topic_id
                        request = fetch([(name, [(0, 0, asked)])], wait_ms=0)
                        yield f"broker {broker} fetch v{version} epoch {asked}", client.ask(request, version)
                for version in (4, 7, 9):
                    request = list_offsets({topic: [(0, -1)]}, leader_epoch=asked)
                    yield f"broker {broker} list offsets v{version} epoch {asked}", client.ask(request, version)
                for version in (2, 4):
                    for of in range(epoch + 2):
                        request = end_of_epoch(topic, of, asked)
                        yield f"broker {broker} end of {of} v{version} epoch {asked}", client.ask(request, version)
    for fetched in range(epoch + 2):
        for offset in (0, 3, 4, 9):
            request = fetch([(topic, [(0, offset, epoch, fetched)])], wait_ms=0)
            yield f"fetched epoch {fetched} at {offset}", side.ask_at(2, request, 12)


@cluster_scenario
def requests_to_those_who_do_not_coordinate(side):
    group = side.name("group")
    stranger = next(broker for broker in BROKERS if broker != coordinator_of(group))
    topic = side.create_topic("one")
    Request = m.OffsetDeleteRequest
    rows = [Request.OffsetDeleteRequestTopic(name=topic, partitions=[Request.OffsetDeleteRequestPartition()])]
    cases = {
        "join": (range(10), join(group)),
        "join as a member": (range(10), join(group, "member")),
        "sync": (range(6), sync(group, 1, "member")),
        "beat": (range(5), beat(group, 1, "member")),
        "leave": (range(6), leave(group, "member")),
        "commit": (range(1, 10), commit(group, [(topic, [(0, 1)])])),
        "offsets": (range(1, 10), offsets_of(group, [(topic, [0])])),
        "all offsets": (range(2, 10), offsets_of(group, None)),
        "describe": (range(6), m.DescribeGroupsRequest(groups=[group])),
        "delete": (range(3), m.DeleteGroupsRequest(groups_names=[group])),
        "delete offsets": (range(1), Request(group_id=group, topics=rows)),
    }
    with side.at(stranger) as client:
        for name, (versions, request) in cases.items():
            for version in versions:
                yield f"{name} v{version}", client.ask(request, version)


@cluster_scenario
def requests_to_those_who_do_not_control(side):
    topic = side.create_topic("one")
    Update = m.UpdateFeaturesRequest.FeatureUpdateKey
    Changed, Partition = m.AlterPartitionRequest.TopicData, m.AlterPartitionRequest.PartitionData
    changed = Changed(
        topic_name=topic,
        topic_id=side.topic_id(topic),
        partitions=[Partition(partition_index=0, leader_epoch=0, new_isr=[1], partition_epoch=0)],
    )
    cases = {
        "create": (range(8), create(new_topic(side.name("new")), new_topic(""))),
        "create nothing": (range(8), create()),
        "delete": (range(7), delete(topic, side.name("unknown"))),
        "partitions": (range(4), more_partitions(topic, 5)),
        "elect": (range(3), elect({topic: [0, 9]})),
        "elect all": (range(3), elect(None)),
        "elect nothing": (range(3), elect({})),
        "reassign": (range(1), reassign({topic: {0: [1, 2], 7: None}})),
        "reassignments": (range(1), reassignments({topic: [0]})),
        "all reassignments": (range(1), reassignments(None)),
        "features": (range(2), m.UpdateFeaturesRequest(feature_updates=[Update(feature="x", max_version_level=1)])),
        "shut down": (range(4), m.ControlledShutdownRequest(broker_id=3, broker_epoch=-1)),
        "alter partition": (range(4), m.AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[changed])),
        "producer ids": (range(1), m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)),
    }
    for broker in BROKERS:
        if broker != CONTROLLER:
            with side.at(broker) as client:
                for name, (versions, request) in cases.items():
                    for version in versions:
                        yield f"broker {broker} {name} v{version}", client.ask(request, version)


@cluster_scenario
def every_broker_knows_the_cluster(side):
    topic = side.create_placed("one", [[1, 2], [2, 3], [3, 1]])
    topic_id = side.topic_id(topic)
    for version in range(13):
        cases = {"topic": metadata(topic, create=False)}
        if version >= 10:
            cases["topic by id"] = metadata(ids=[topic_id], create=False)
        yield from side.everywhere(version, cases)
    for version in range(2):
        yield from side.everywhere(version, {"cluster": m.DescribeClusterRequest()})
    groups = [side.name(str(number)) for number in range(6)]
    for version in range(4, 7):
        for kind in (0, 2, 9):  # transactions are not coordinated yet
            request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[*groups, groups[0], ""])
            yield from side.everywhere(version, {f"coordinators of kind {kind}": request})
    for version in range(4):
        requests = {f"coordinator {group}": m.FindCoordinatorRequest(key=group) for group in groups}
        yield from side.everywhere(version, requests)
