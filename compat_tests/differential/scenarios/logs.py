"""What administrators ask of logs: DeleteRecords, OffsetForLeaderEpoch, log directories, producers."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, fetch, list_offsets, new_topic, produce_one
from compat_tests.differential.scenario import scenario


def _filled(side, of, records=10, **configs):
    """A topic of two partitions; the first holds this many batches of one record."""
    topic = side.create_topic(of, 2, **configs)
    with side.connect() as client:
        for number in range(records):
            client.ask(produce_one(topic, batch(b"%d" % number, at=PAST_MS + number)), 9)
    return topic


def _delete_records(topics, timeout_ms=5000):
    """[(topic, [(partition, offset)])]"""
    Topic, Partition = m.DeleteRecordsRequest.DeleteRecordsTopic, m.DeleteRecordsRequest.DeleteRecordsPartition
    return m.DeleteRecordsRequest(
        timeout_ms=timeout_ms,
        topics=[
            Topic(name=name, partitions=[Partition(partition_index=index, offset=offset) for index, offset in asked])
            for name, asked in topics
        ],
    )


@scenario
def delete_records(side):
    unknown, compacted = side.name("unknown"), _filled(side, "compacted", 0, cleanup_policy="compact")
    both = _filled(side, "both", cleanup_policy="compact,delete")
    for version in range(3):
        topic, alone = _filled(side, str(version)), side.create_alone(f"{version}-alone")
        cases = {
            "some": _delete_records([(topic, [(0, 3)])]),
            "fewer": _delete_records([(topic, [(0, 2)])]),
            "the same": _delete_records([(topic, [(0, 3)])]),
            "beyond the end": _delete_records([(topic, [(0, 11)])]),
            "-2": _delete_records([(topic, [(0, -2)])]),
            "the smallest": _delete_records([(topic, [(0, -(2**63))])]),
            "of an empty one": _delete_records([(topic, [(1, 0)])]),
            "all of an empty one": _delete_records([(topic, [(1, -1)])]),
            "unknown topic": _delete_records([(unknown, [(0, 0)])]),
            "unknown partition": _delete_records([(topic, [(9, 0)])]),
            "negative partition": _delete_records([(topic, [(-1, 0)])]),
            "bad name": _delete_records([("..", [(0, 0)])]),
            "compacted": _delete_records([(compacted, [(0, 0)])]),
            "compacted and deleted": _delete_records([(both, [(0, version)])]),
            "internal": _delete_records([("__consumer_offsets", [(0, 0)])]),
            "nothing": _delete_records([]),
            "no partitions": _delete_records([(topic, [])]),
            "partition twice": _delete_records([(topic, [(0, 4), (0, 5)])]),
            "topic twice": _delete_records([(topic, [(0, 5)]), (topic, [(0, 6)])]),
            "good and bad": _delete_records([(topic, [(0, 6), (7, 0)]), (unknown, [(0, 0)])]),
            "timeout 0": _delete_records([(alone, [(0, 1)])], timeout_ms=0),
            "all": _delete_records([(topic, [(0, -1)])]),
        }
        with side.connect() as client:
            client.ask(m.FindCoordinatorRequest(key="warm"), 0)
            client.ask(produce_one(alone, batch(at=PAST_MS)), 9)
            yield from client.ask_all(version, cases)
            yield f"v{version} earliest", client.ask(list_offsets({topic: [(0, -2), (1, -2)]}), 7)
            for offset in (0, 9, 10, 11):
                yield f"v{version} fetch at {offset}", client.ask(fetch([(topic, [(0, offset)])]), 11)


def _end_of_epoch(topics, epoch=0, leader_epoch=-1, replica=-2):
    """[(topic, [partition])]"""
    Request = m.OffsetForLeaderEpochRequest
    return Request(
        replica_id=replica,
        topics=[
            Request.OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    Request.OffsetForLeaderPartition(
                        partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
    )


@scenario
def ends_of_leader_epochs(side):
    topic, unknown = _filled(side, "one"), side.name("unknown")
    one = [(topic, [0])]
    for version in range(5):
        cases = {f"epoch {epoch}": _end_of_epoch(one, epoch) for epoch in (0, 1, 9, -1, -2)}
        cases |= {f"leader epoch {epoch}": _end_of_epoch(one, 0, epoch) for epoch in (0, 1, -2)}
        cases |= {f"replica {replica}": _end_of_epoch(one, 0, -1, replica) for replica in (-1, 0, 1)}
        cases |= {
            "empty partition": _end_of_epoch([(topic, [1])]),
            "unknown topic": _end_of_epoch([(unknown, [0])]),
            "unknown partition": _end_of_epoch([(topic, [9, -1])]),
            "bad name": _end_of_epoch([("..", [0])]),
            "nothing": _end_of_epoch([]),
            "no partitions": _end_of_epoch([(topic, [])]),
            "partition twice": _end_of_epoch([(topic, [0, 0])]),
            "topic twice": _end_of_epoch([(topic, [0]), (topic, [0])]),
            "good and bad": _end_of_epoch([(topic, [0, 1, 9]), (unknown, [0])]),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def producers_are_described(side):
    topic, unknown = side.create_topic("one", 2), side.name("unknown")
    with side.connect() as client:
        for _ in range(2):
            producer = side.new_producer()
            for sequence in (0, 1):
                records = batch(producer_id=producer, producer_epoch=0, base_sequence=sequence, at=PAST_MS)
                client.ask(produce_one(topic, records), 9)
        Topic = m.DescribeProducersRequest.TopicRequest
        asked = {
            "active": [(topic, [0])],
            "none": [(topic, [1])],
            "unknown topic": [(unknown, [0])],
            "unknown partition": [(topic, [9, -1])],
            "bad name": [("..", [0])],
            "empty name": [("", [0])],
            "nothing": [],
            "no partitions": [(topic, [])],
            "partition twice": [(topic, [0, 0])],
            "topic twice": [(topic, [0]), (topic, [1])],
        }
        for name, topics in asked.items():
            rows = [Topic(name=of, partition_indexes=indexes) for of, indexes in topics]
            yield name, client.ask(m.DescribeProducersRequest(topics=rows), 0)


def _log_dirs(topics):
    Topic = m.DescribeLogDirsRequest.DescribableLogDirTopic
    if topics is None:
        return m.DescribeLogDirsRequest(topics=None)
    return m.DescribeLogDirsRequest(topics=[Topic(topic=name, partitions=indexes) for name, indexes in topics])


def _place(path, topics):
    Dir, Topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir, m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    return Dir(path=str(path), topics=[Topic(name=name, partitions=indexes) for name, indexes in topics])


@scenario
def log_directories(side):
    """Partitions that do not exist yet are given their directory, so that it is the same on both sides."""
    one, two = side.directory / "data", side.directory / "data-2"
    topic, other, unknown = map(side.name, ("one", "two", "unknown"))
    with side.connect() as client:
        for version in range(3):
            cases = {
                "for later": [_place(one, [(topic, [0])]), _place(two, [(topic, [1]), (other, [0])])],
                "unknown directory": [_place("/nowhere", [(topic, [0])])],
                "unknown directory, twice": [_place("/nowhere", [(topic, [0, 0])])],
                "relative": [_place("data", [(topic, [0])])],
                "two directories": [_place(one, [(unknown, [0])]), _place(two, [(unknown, [0])])],
                "bad name": [_place(one, [("..", [0])])],
                "negative partition": [_place(one, [(unknown, [-1])])],
                "nothing": [],
                "no topics": [_place(one, [])],
                "no partitions": [_place(one, [(topic, [])])],
            }
            requests = {name: m.AlterReplicaLogDirsRequest(dirs=dirs) for name, dirs in cases.items()}
            yield from client.ask_all(version, {f"place, {name}": request for name, request in requests.items()})
        wanted = [new_topic(topic, 2), new_topic(other, 1)]
        yield "created", client.ask(m.CreateTopicsRequest(topics=wanted, timeout_ms=15_000), 4)
        side.wait(lambda: side.ask(produce_one(topic, batch(at=PAST_MS), partition=1), 9).responses)
        for version in range(5):
            asked = {
                "both": [(topic, [0, 1]), (other, [0])],
                "one": [(topic, [1])],
                "unknown": [(unknown, [0]), (topic, [7])],
                "negative": [(topic, [-1])],
                "no partitions": [(topic, [])],
                "nothing": [],
                "partition twice": [(topic, [1, 1])],
                "topic twice": [(topic, [1]), (topic, [0])],
            }
            requests = {f"describe, {name}": _log_dirs(topics) for name, topics in asked.items()}
            yield from client.ask_all(version, requests)
            everything = client.ask(_log_dirs(None), version)
            if not isinstance(everything, str):
                for directory in everything.results:
                    directory.topics = [row for row in directory.topics if row.name in (topic, other)]
            yield f"v{version} describe, all", everything
