"""A follower's requests from a template are those that the codec would write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.replication.follower_state import (
    EPOCH_IN_FETCH_VERSION,
    FetchLimits,
    FetchSession,
    Position,
    fetch_request,
)
from barnabas.replication.repeated_fetch import PARTITIONS_MAX, FetchRequests
from barnabas.wire import messages as m
from barnabas.wire.topics import TopicPartition

LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=10_000, partition_max_bytes=1_000)
ME = 2, 77  # broker id and epoch
VERSIONS = [11, 12, 13, 17]


def position_at(offset: int, *, leader_epoch: int = 4, topic: int = 1) -> Position:
    return Position(bytes([topic]) * 16, leader_epoch, offset, leader_epoch, 0)


def answer_to(asked, *, session_id: int = 9) -> m.FetchResponse:
    """A response with a row for each partition of a full request, and with none otherwise."""
    rows = asked.positions if asked.is_full else {}
    topics = [
        m.FetchResponse.FetchableTopicResponse(
            topic=key.topic,
            topic_id=position.topic_id,
            partitions=[m.FetchResponse.PartitionData(partition_index=key.partition)],
        )
        for key, position in rows.items()
    ]
    return m.FetchResponse(session_id=session_id, responses=topics)


class Follower:
    """The session of a fetcher, whose requests are compared with those of the codec."""

    def __init__(self, version: int = 17) -> None:
        self.version = version
        self.session = FetchSession()
        self.requests = FetchRequests()

    def ask(self, changes: dict[TopicPartition, Position | None], limits=LIMITS, me=ME) -> bool:
        """Whether the request came from a template."""
        for key, position in changes.items():
            if position is None:
                self.session.forget(key)
            else:
                # Before KIP-595 a follower says nothing of its last epoch.
                epoch = position.last_fetched_epoch if self.version >= EPOCH_IN_FETCH_VERSION else -1
                self.session.want(key, position._replace(last_fetched_epoch=epoch))
        asked = self.session.ask(by_id=self.version >= 13)
        request, body = self.requests.next(asked, limits, self.version, *me)
        due = fetch_request(asked, limits, self.version, *me)
        assert m.encode(request, self.version) == m.encode(due, self.version)
        assert body in (None, m.encode(due, self.version))
        assert not isinstance(self.session.take(asked, answer_to(asked)), str)
        return body is not None


FIRST, SECOND = TopicPartition("t", 0), TopicPartition("u", 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_third_request_that_names_the_same_partitions_is_from_a_template(version):
    follower = Follower(version)
    asked = [follower.ask({FIRST: position_at(offset), SECOND: position_at(offset, topic=2)}) for offset in range(5)]
    assert asked == [False, False, False, True, True]  # the first one begins the session
    assert [follower.ask({}) for _ in range(3)] == [False, False, True]
    assert follower.ask({SECOND: position_at(90, topic=2), FIRST: position_at(90)}) is False  # another order


def test_a_request_that_says_more_than_other_offsets_is_not_from_the_template():
    follower = Follower()
    for offset in range(3):
        follower.ask({FIRST: position_at(offset)})
    assert follower.ask({FIRST: position_at(10)})
    assert not follower.ask({FIRST: position_at(11, leader_epoch=5)})
    assert follower.ask({FIRST: position_at(12, leader_epoch=5)})
    assert not follower.ask({FIRST: position_at(13, leader_epoch=5)}, me=(2, 78))
    assert not follower.ask({FIRST: position_at(14, leader_epoch=5)}, LIMITS._replace(max_wait_ms=7), me=(2, 78))
    assert not follower.ask({FIRST: None, SECOND: position_at(0)})


def test_a_request_for_many_partitions_is_encoded():
    follower = Follower()
    many = [TopicPartition("t", partition) for partition in range(PARTITIONS_MAX + 1)]
    assert not any(follower.ask({key: position_at(offset) for key in many}) for offset in range(5))


changes = st.dictionaries(
    st.sampled_from([FIRST, SECOND, TopicPartition("t", 1)]),
    st.none() | st.builds(position_at, st.integers(0, 1 << 40), leader_epoch=st.sampled_from([4, 4, 4, 5])),
)


@given(st.sampled_from(VERSIONS), st.lists(changes, max_size=30))
def test_every_request_is_what_the_codec_writes(version, rounds):
    follower = Follower(version)
    for changed in rounds:
        follower.ask(changed)
