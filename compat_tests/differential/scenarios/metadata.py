"""Metadata in all versions, creating topics or not; DescribeCluster."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import NO_ID, metadata
from compat_tests.differential.scenario import scenario

UNKNOWN_ID = b"\x11" * 16
Topic = m.MetadataRequest.MetadataRequestTopic


def _of_scenario(side, answer):
    """The answer without the topics of other scenarios."""
    if not isinstance(answer, str):
        mine = side.name("")
        answer.topics = [topic for topic in answer.topics if not topic.name or mine in topic.name or topic.error_code]
    return answer


@scenario
def metadata_by_name(side):
    known, unknown = side.create_topic("known", 3), side.name("unknown")
    for version in range(13):
        cases = {
            "known": metadata(known),
            "twice the same": metadata(known, known),
            "bad names": metadata("..", ".", "a/b", "", "x" * 250, "a b", "ü"),
            "twice the same bad name": metadata("..", ".."),
        }
        if version:
            cases |= {
                "no topics": m.MetadataRequest(topics=[]),
                "all topics": m.MetadataRequest(topics=None, allow_auto_topic_creation=True),
            }
        else:
            cases["no topics means all"] = m.MetadataRequest(topics=[])
        if version >= 4:
            cases |= {
                "unknown, not to be created": metadata(unknown, create=False),
                "bad names, not to be created": metadata("..", ".", "a/b", "a b", create=False),
                "unknown and known": metadata(unknown, known, "..", create=False),
                "internal, not there": metadata("__transaction_state", create=False),
            }
        with side.connect() as client:
            for name, answer in client.ask_all(version, cases):
                yield name, _of_scenario(side, answer)


@scenario
def metadata_creates_topics(side):
    for version in range(13):
        name = side.name(f"new-{version}")
        yield f"v{version} new", _of_scenario(side, side.ask(metadata(name, name), version))
        side.wait(lambda name=name: _leader(side, name) >= 0)
        yield f"v{version} there", _of_scenario(side, side.ask(metadata(name), version))
    side.create_topic("dotted.name")
    yield "collides with another", side.ask(metadata(side.name("dotted_name")), 12)
    yield "and others", side.ask(metadata(side.name("dotted_name"), "..", side.name("dotted.name")), 12)


def _leader(side, topic):
    partitions = side.ask(metadata(topic, create=False), 12).topics[0].partitions
    return partitions[0].leader_id if partitions else -1


@scenario
def metadata_by_id(side):
    known = side.create_topic("known", 2)
    known_id = side.topic_id(known)
    for version in (10, 11, 12):
        cases = {
            "known": metadata(ids=[known_id]),
            "unknown": metadata(ids=[UNKNOWN_ID]),
            "zero": metadata(ids=[NO_ID]),
            "id and name": m.MetadataRequest(topics=[Topic(name=known, topic_id=known_id)]),
            "id and another name": m.MetadataRequest(
                topics=[Topic(name=side.name("other"), topic_id=known_id)], allow_auto_topic_creation=False
            ),
            "unknown id and a name": m.MetadataRequest(topics=[Topic(name=known, topic_id=UNKNOWN_ID)]),
            "by id and by name": metadata(known, ids=[known_id]),
            "twice the same": metadata(ids=[known_id, known_id, UNKNOWN_ID]),
            "authorized operations": metadata(ids=[known_id], include_topic_authorized_operations=True),
            "authorized operations of an unknown id": metadata(
                ids=[UNKNOWN_ID], include_topic_authorized_operations=True
            ),
        }
        with side.connect() as client:
            for name, answer in client.ask_all(version, cases):
                yield name, _of_scenario(side, answer)


@scenario
def metadata_authorized_operations(side):
    known, unknown = side.create_topic("known"), side.name("unknown")
    for version in range(8, 13):
        cases = {
            "of a topic": metadata(known, include_topic_authorized_operations=True),
            "of an unknown topic": metadata(unknown, create=False, include_topic_authorized_operations=True),
        }
        if version <= 10:
            cases["of the cluster"] = metadata(known, include_cluster_authorized_operations=True)
        with side.connect() as client:
            yield from client.ask_all(version, cases)
