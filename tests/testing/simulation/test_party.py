"""What a simulated client believes of the cluster."""

from barnabas.testing.simulation.party import View
from barnabas.wire import messages as m
from barnabas.wire.topics import ZERO_TOPIC_ID

TOPIC_ID = bytes(15) + b"\1"


def answer(name="t", topic_id=TOPIC_ID, **leader_epochs):
    """Metadata of one topic, its partitions in the epochs given as p0=..., p1=..."""
    rows = [
        m.MetadataResponse.MetadataResponsePartition(partition_index=int(name[1:]), leader_id=1, leader_epoch=epoch)
        for name, epoch in leader_epochs.items()
    ]
    topic = m.MetadataResponse.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=rows)
    return m.MetadataResponse(topics=[topic])


def test_of_an_older_answer_nothing_is_believed_so_that_a_known_topic_is_known_whole():
    view = View()
    view.take(answer(p0=2, p1=0))
    view.forget("t")
    view.take(answer(p0=1, p1=0))
    assert "t" not in view.topic_ids, "it will be asked again"
    view.take(answer(p0=2, p1=0))
    assert view.partitions_of("t") == [0, 1]


def test_without_topic_ids_each_topic_has_epochs_of_its_own():
    view = View()
    view.take(answer("often", ZERO_TOPIC_ID, p0=10))
    view.take(answer("seldom", ZERO_TOPIC_ID, p0=3))
    assert view.partitions_of("seldom") == [0]
    view.take(answer("seldom", ZERO_TOPIC_ID, p0=2))
    view.take(answer("often", ZERO_TOPIC_ID, p0=9))
    assert [place.leader_epoch for place in view.places.values()] == [10, 3]
