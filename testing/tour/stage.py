"""What the steps of a scene do to a cluster, and what is seen of it (edge: it asks over sockets, as clients do).

Everything is synchronous. A request whose answer is not awaited yet is a `Question`: `send` and `answer` are its two
ends, and between them other things happen. The fetches of followers are held back by faults, one by one.
"""

import select
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.blocking import BlockingConnection
from barnabas.testing.asking import ask
from barnabas.testing.cluster.cluster import LocalCluster
from barnabas.testing.errors import LocalBrokerError, TopicRefused
from barnabas.testing.faults.faults import Fault
from barnabas.testing.looking.live import wait_until
from barnabas.testing.looking.records import records_of
from barnabas.testing.tour.members import Member
from barnabas.testing.tour.picture import Cell, GroupPicture, PartitionPicture, ReplicaPicture
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_name
from barnabas.wire.records import build_batch, read_all_records

if TYPE_CHECKING:
    from barnabas.broker.call import Broker
    from barnabas.replication.partition import Partition

HOST = "127.0.0.1"
CLIENT_ID = "tour"
SECONDS = 10.0
CREATE_TOPICS_VERSION = 5
PRODUCE_VERSION = 7
INIT_PRODUCER_ID_VERSION = 1
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 600_000  # the reader of the tour may take long between two steps
LOST = "no answer"
WAITS = "waits"


class Topic(NamedTuple):
    """A topic of the scene: the replicas of each partition, the leader first."""

    name: str
    replicas: Sequence[int]
    config: Mapping[str, str] = {}
    partitions: int = 1


class Question:
    """A record that is being written, and what became of the request."""

    def __init__(self, topic: str, value: str, acks: int, producer_id: int) -> None:
        self.topic = topic
        self.value = value
        self.acks = acks
        self.producer_id = producer_id  # -1: it is not idempotent
        self.answer = WAITS  # then LOST, or the name of an error, or NONE
        self.connection: BlockingConnection | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether the producer may believe that the record is written."""
        return self.answer == ErrorCode.NONE.name


class Stage:
    """One cluster on which a scene is played."""

    def __init__(self, cluster: LocalCluster, topics: Sequence[Topic], bug: str = "") -> None:
        self.cluster = cluster
        self.topics = topics
        self.bug = bug  # that is planted
        self.notes: list[str] = []  # of the step that runs
        self.groups: dict[str, GroupPicture] = {}
        self.members: dict[tuple[str, str], Member] = {}  # (group, name)
        self.unread: dict[str, dict[int, None]] = {}  # group -> the partitions that had no reader at some moment
        self.questions: dict[tuple[str, str], Question] = {}  # (topic, value) -> its last attempt
        self.holds: dict[int, Fault] = {}  # follower -> what holds its fetches back
        self.passed: dict[int, int] = {}  # follower -> how many of its fetches were let through
        self.killed: dict[tuple[str, int], ReplicaPicture] = {}  # (topic, broker) -> what a broker that is down has
        self.moved_after: dict[int, int] = {}  # `passed` at the moment when the leader's high watermark moved

    @property
    def topic(self) -> str:
        """The first topic of the scene."""
        return self.topics[0].name

    def open(self) -> None:
        """Create the topics, and wait until all replicas are in sync."""
        for topic in self.topics:
            # The replicas are given, so that each run has the same leaders.
            port = self.cluster.brokers[self.cluster.look(_controller)].port
            (created,) = ask(port, _creation(topic), CREATE_TOPICS_VERSION, m.CreateTopicsResponse).topics
            if created.error_code:
                raise TopicRefused(topic.name, created.error_code, created.error_message)
            for index in range(topic.partitions):
                key = topic.name, index
                self.until(partial(self._is_known, *key), f"topic {topic.name!r} is not there")
                self.cluster.wait_for(isr={key: topic.replicas}, leader={key: topic.replicas[0]})

    def _is_known(self, topic: str, index: int) -> bool:
        return self.cluster.look(lambda brokers: _all_know(brokers, topic, index))

    def note(self, text: str) -> None:
        """Something that the reader should see beside the picture."""
        self.notes.append(text)

    def close(self) -> None:
        """Close what is left open."""
        # A scene that is not played to its end has questions without an answer.
        for question in self.questions.values():
            if question.connection is not None:
                question.connection.close()
        for member in self.members.values():
            member.close()

    # -- what is seen

    def partition(self, topic: str = "", index: int = 0) -> PartitionPicture:
        """A partition as all running brokers have it at one moment."""
        name = topic or self.topic
        (wanted,) = (each for each in self.topics if each.name == name)

        # Brokers that are down have what they had when they were killed.
        seen = self.cluster.look(lambda brokers: _picture(brokers, wanted, index))
        return seen._replace(
            replicas={each: seen.replicas.get(each) or self.killed[name, each] for each in wanted.replicas}
        )

    def pictures(self) -> list[PartitionPicture | GroupPicture]:
        """Everything that can be drawn. In a scene about groups that is who reads what."""
        return list(self.groups.values()) if self.groups else [self.partition(each.name) for each in self.topics]

    def show_group(self, picture: GroupPicture) -> None:
        """From now on this is who reads what."""
        self.groups[picture.name] = picture

    def ends(self, topic: str = "") -> dict[int, int]:
        """The log end offset of each running replica."""
        return {key: each.log_end_offset for key, each in self.partition(topic).running.items()}

    def high_watermarks(self, topic: str = "") -> dict[int, int]:
        """The high watermark that each running replica knows."""
        return {key: each.high_watermark for key, each in self.partition(topic).running.items()}

    def values(self, topic: str = "") -> list[str]:
        """What a consumer reads from the beginning; nothing without a leader."""
        leader = self.partition(topic).leader_id

        # A consumer would wait for a leader.
        if leader is None:
            return []
        records = records_of(self.cluster.brokers[leader].port, topic or self.topic)
        return [(each.value or b"").decode() for each in records]

    def until(self, is_so: Callable[[], bool], missing: str) -> None:
        """Wait until something is so. LocalBrokerError with what is missing."""
        wait_until(is_so, SECONDS, missing)

    def settle(self, topic: str = "") -> None:
        """Wait until every running replica has, and knows as committed, all that the leader has."""

        def is_even() -> bool:
            ends = self.ends(topic)
            return len({*ends.values(), *self.high_watermarks(topic).values()}) == 1

        self.until(is_even, f"the replicas of {topic or self.topic} are not even")

    # -- producers

    def send(
        self, value: str, *, topic: str = "", acks: int = ACKS_ALL, key: str | None = None, producer_id: int = -1
    ) -> Question:
        """Send a record to the leader, without waiting for its answer."""
        question = Question(topic or self.topic, value, acks, producer_id)
        self.questions[question.topic, value] = question
        question.connection = self._connect(question.topic)
        question.connection.request(self._produce(question, key), PRODUCE_VERSION)
        return question

    def answer(self, question: Question) -> None:
        """Wait for the answer, or for the end of the connection."""
        assert question.connection is not None
        # A refused record has no offset.
        offset = -1
        try:
            response = question.connection.response()
            assert isinstance(response, m.ProduceResponse)
            row = response.responses[0].partition_responses[0]
            offset = row.base_offset
            question.answer = ErrorCode(row.error_code).name
        except TimeoutError:
            raise LocalBrokerError(f"there is no answer to {_name(question)} within {SECONDS:g} s") from None
        # The record may be written or not: the producer cannot know.
        except ConnectionError:
            question.answer = LOST
        question.connection.close()
        self.note(f"{_name(question)}: {_answer(question, offset)}")

    def write(
        self, value: str, *, topic: str = "", acks: int = ACKS_ALL, key: str | None = None, producer_id: int = -1
    ) -> None:
        """Write a record, and wait for the answer."""
        self.answer(self.send(value, topic=topic, acks=acks, key=key, producer_id=producer_id))

    def look_for_answer(self, question: Question) -> None:
        """Take the answer if it is there; note that it is not if it is not."""
        assert question.connection is not None
        # An answer that has arrived can be read at once.
        readable, _, _ = select.select([question.connection.socket], [], [], 0)
        if readable:
            self.answer(question)
        else:
            self.note(f"{_name(question)}: no answer yet")

    def send_again(self, value: str, topic: str = "") -> None:
        """What a producer does with a record that was not acknowledged; nothing if it was."""
        # This is what `retries` of a real producer does.
        question = self.questions[topic or self.topic, value]
        if question.is_acknowledged:
            self.note(f"{_name(question)}: was acknowledged, so the producer does not send it again")
        else:
            self.write(value, topic=topic, acks=question.acks, producer_id=question.producer_id)

    def new_producer_id(self) -> int:
        """What an idempotent producer asks for first."""
        # Any broker has a block of producer ids.
        port = next(each for each in self.cluster.brokers.values() if each.is_running).port
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = ask(port, request, INIT_PRODUCER_ID_VERSION, m.InitProducerIdResponse)
        if response.error_code:
            raise LocalBrokerError(f"no producer id: {error_name(response.error_code)}")
        return response.producer_id

    def _connect(self, topic: str) -> BlockingConnection:
        """A connection to the leader; without one, to any broker that runs, which refuses what is for a leader."""
        # A real client asks for metadata; these clients know which broker leads.
        running = [each.id for each in self.cluster.brokers.values() if each.is_running]
        leader = self.partition(topic).leader_id
        port = self.cluster.brokers[running[0] if leader is None else leader].port
        return BlockingConnection(socket.create_connection((HOST, port), SECONDS), CLIENT_ID)

    def _produce(self, question: Question, key: str | None) -> m.ProduceRequest:
        # Without a producer id there are no sequence numbers.
        first = 0 if question.producer_id >= 0 else -1
        batch = build_batch(
            [(None if key is None else key.encode(), question.value.encode() or None)],
            timestamp_ms=self.cluster.clock.now_ms(),
            producer_id=question.producer_id,
            producer_epoch=first,
            base_sequence=first,
        )
        data = m.ProduceRequest.PartitionProduceData(index=0, records=memoryview(batch.data))
        rows = [m.ProduceRequest.TopicProduceData(name=question.topic, partition_data=[data])]
        return m.ProduceRequest(acks=question.acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=rows)

    # -- fetches of followers

    def hold(self, *followers: int) -> None:
        """Hold the next fetch of each of these brokers back at the leader, and wait until it is there."""
        for each in followers:
            self.holds[each] = self._hang(each)

        # A fetch that was under way is answered first; then the next one comes, and is held back.
        for each in followers:
            self.holds[each].wait(seconds=SECONDS)

    def let_one_pass(self, follower: int) -> None:
        """Let the fetch that is held back be answered, and hold back the next one."""
        # The older one of two faults hits a request. The new fault is set before the old one is
        # removed, so that no fetch passes between them.
        before = self.holds[follower]
        self.holds[follower] = self._hang(follower)
        before.remove()
        self.holds[follower].wait(seconds=SECONDS)
        self.passed[follower] = self.passed.get(follower, 0) + 1

    def hold_answers(self, *followers: int) -> None:
        """Let the fetches that are held back be answered. The leader sees the next ones, and no answer arrives."""
        for each in followers:
            before = self.holds[each]
            self.holds[each] = self._hang(each, after=True)
            before.remove()
        for each in followers:
            self.holds[each].wait(seconds=SECONDS)

    def release(self) -> None:
        """Hold nothing back any more."""
        for fault in self.holds.values():
            fault.remove()
        self.holds.clear()

    def _hang(self, follower: int, *, after: bool = False) -> Fault:
        # A follower has a connection to each leader. Only fetches of the topic of the scene are meant.
        return self.cluster.faults.hang(
            "Fetch", after=after, brokers=True, client_id=f"broker-{follower}-fetcher-*", topic=self.topic
        )

    # -- brokers

    def kill(self, broker_id: int) -> None:
        """End a broker as `kill -9` does, and remember its logs."""
        # The logs of a killed broker lose nothing, so the picture stays true.
        for topic in self.topics:
            replica = self.partition(topic.name).replicas[broker_id]
            self.killed[topic.name, broker_id] = replica._replace(is_running=False)
        self.cluster.kill(broker_id)

    def start(self, broker_id: int) -> None:
        """Start it again."""
        self.cluster.start(broker_id)

    def until_led(self, leader: int | None, in_sync: Sequence[int], topic: str = "") -> None:
        """Wait for this leader, or for none, with these in-sync replicas."""

        def is_so() -> bool:
            seen = self.partition(topic)
            return seen.leader_id == leader and list(seen.in_sync_replicas) == list(in_sync)

        self.until(is_so, f"{topic or self.topic}: leader {leader} and in sync {in_sync}")


def fates(stage: Stage) -> str:
    """What became of each record: what its producer was answered, and how often a consumer reads it."""
    found = []
    for question in stage.questions.values():
        count = stage.values(question.topic).count(question.value)
        if question.is_acknowledged:
            became = "is lost" if not count else "is there" if count == 1 else f"is there {count} times"
            found.append(f"{question.value} was acknowledged and {became}")
        else:
            answered = "got no answer" if question.answer in (LOST, WAITS) else f"was refused ({question.answer})"
            found.append(f"{question.value} {answered} and is {'there' if count else 'not there'}")
    return "; ".join(found)


def _name(question: Question) -> str:
    acks = "acks=all" if question.acks == ACKS_ALL else f"acks={question.acks}"
    return f"{question.value or 'a tombstone'} ({acks})"


def _answer(question: Question, offset: int) -> str:
    if question.is_acknowledged:
        return f"acknowledged at offset {offset}"
    return "the connection is lost, there was no answer" if question.answer == LOST else question.answer


def _creation(topic: Topic) -> m.CreateTopicsRequest:
    row = m.CreateTopicsRequest
    wanted = row.CreatableTopic(
        name=topic.name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            row.CreatableReplicaAssignment(partition_index=index, broker_ids=list(topic.replicas))
            for index in range(topic.partitions)
        ],
        configs=[row.CreatableTopicConfig(name=name, value=value) for name, value in topic.config.items()],
    )
    return m.CreateTopicsRequest(topics=[wanted], timeout_ms=round(SECONDS * 1000))


# -- on the loop of the brokers


def _controller(brokers: "Mapping[int, Broker]") -> int:
    return next(iter(brokers.values())).metadata.controller_id


def _all_know(brokers: "Mapping[int, Broker]", topic: str, index: int) -> bool:
    return all(each.metadata.partition(topic, index) is not None for each in brokers.values())


def _picture(brokers: "Mapping[int, Broker]", topic: Topic, index: int) -> PartitionPicture:
    # A broker has no replica while it does not know its role yet.
    found = {key: broker.replicas.get(topic.name, index) for key, broker in brokers.items()}
    hosted = {key: each for key, each in found.items() if not isinstance(each, ErrorCode) and each.log is not None}
    leaders = [key for key, each in hosted.items() if each.is_leader]

    # Two brokers may believe that they lead, for a moment; the newer epoch is right.
    leader = max(leaders, key=lambda key: hosted[key].leader_epoch, default=None)

    # A leader hears of a change of its ISR first; the other brokers have it from the controller.
    if leader is not None:
        epoch = hosted[leader].leader_epoch
        in_sync = sorted(hosted[leader].in_sync_replicas)
    else:
        infos = [broker.metadata.partition(topic.name, index) for broker in brokers.values()]
        known = [each for each in infos if each is not None]
        epoch = max((each.leader_epoch for each in known), default=-1)
        in_sync = sorted(known[0].in_sync_replicas) if known else []
    return PartitionPicture(
        f"{topic.name}-{index}",
        leader,
        epoch,
        in_sync,
        {each: _replica(hosted[each]) for each in topic.replicas if each in hosted},
    )


def _replica(replica: "Partition") -> ReplicaPicture:
    # All of the log, with what is above the high watermark: no consumer could read that.
    cells = []
    assert replica.log is not None
    for segment in replica.log.segments:
        with segment.store.private(segment.path) as file:
            data = file.read(0, segment.size_bytes)
        cells += [Cell(each.offset, _text(each.key, each.value)) for _, each in read_all_records(data)]
    return ReplicaPicture(True, cells, replica.high_watermark, replica.log.log_end_offset)


def _text(key: bytes | None, value: bytes | None) -> str:
    """A record without a key is its value; a tombstone has a cross."""
    shown = "†" if value is None else bytes(value).decode()
    return shown if key is None else f"{bytes(key).decode()}={shown}"
