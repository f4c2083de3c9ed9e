"""A leader's questions to the transaction coordinator: what is asked together, and who hears what."""

import trio

from barnabas.coordinators.transactions.events import Answer
from barnabas.coordinators.transactions.state import Producer
from barnabas.coordinators.transactions.verification import PARTITIONS_AT_A_TIME, Verification
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost, PeerTooOld
from barnabas.wire.topics import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
OWNER, ZOMBIE, STRANGER = Producer(7, 3), Producer(7, 2), Producer(9, 32_767)
OWN_ID = 5
FENCED = ErrorCode.PRODUCER_FENCED
Result = m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = m.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


class FakeCoordinator:
    """Answers each question after a second, as the owner's coordinator."""

    def __init__(self) -> None:
        self.requests: list[list[tuple[str, Producer, int]]] = []
        self.failure: Exception | None = None

    async def ask(self, request, deadline_ms, version_max=None, version_min=0):
        asked = [
            (each.transactional_id, Producer(each.producer_id, each.producer_epoch), sum(map(_size, each.topics)))
            for each in request.transactions
        ]
        self.requests.append(asked)
        await trio.sleep(1)
        if self.failure is not None:
            raise self.failure
        return m.AddPartitionsToTxnResponse(results_by_transaction=[_answered(each) for each in request.transactions])


def _size(topic) -> int:
    return len(topic.partitions)


def _answered(asked) -> Result:
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if asked.producer_id == OWNER.producer_id:
        code = ErrorCode.NONE if asked.producer_epoch == OWNER.producer_epoch else ErrorCode.PRODUCER_FENCED
    topics = [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    return Result(transactional_id=asked.transactional_id, topic_results=topics)


async def verification(
    nursery, coordinator: int | None = 1, ask_own=lambda name, event: None
) -> tuple[Verification, FakeCoordinator]:
    peer = FakeCoordinator()
    made = Verification(lambda name: coordinator, lambda broker_id: peer, lambda: 30_000, OWN_ID, ask_own)
    await nursery.start(made.run)
    return made, peer


async def asked_at_once(made: Verification, *questions) -> list[dict]:
    """The answers to questions that all wait while another request is under way."""
    answers: list[dict] = [{} for _ in questions]

    async def ask(number: int, name: str, producer: Producer, *partitions: TopicPartition) -> None:
        answers[number] = await made.verify(name, producer, partitions)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.verify, "first", OWNER, [A0])
        await trio.sleep(0.5)
        for number, question in enumerate(questions):
            nursery.start_soon(ask, number, *question)
            await trio.sleep(0.01)
    return answers


async def test_questions_that_wait_are_asked_together(nursery, autojump_clock):
    made, peer = await verification(nursery)
    answers = await asked_at_once(made, ("one", OWNER, A0), ("two", OWNER, A1), ("one", OWNER, A0, A1))
    assert answers == [{A0: 0}, {A1: 0}, {A0: 0, A1: 0}]
    assert peer.requests[1:] == [[("one", OWNER, 2), ("two", OWNER, 1)]]


async def test_a_question_in_the_name_of_an_id_does_not_refuse_its_owner(nursery, autojump_clock):
    # In Kafka the lower epoch hears INVALID_PRODUCER_EPOCH, with which a producer gives up, and an equal one
    # NETWORK_EXCEPTION. The higher epoch may be anybody's claim.
    made, peer = await verification(nursery)
    answers = await asked_at_once(
        made, ("id", OWNER, A0), ("id", STRANGER, A0), ("id", ZOMBIE, A0), ("other", OWNER, A0), ("id", OWNER, A1)
    )
    fenced, unknown = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert answers == [{A0: 0}, {A0: unknown}, {A0: fenced}, {A0: 0}, {A1: 0}]
    # Of an id one producer in each request, since the response has one row for an id. Other ids do not wait for it.
    assert peer.requests[1:] == [
        [("id", OWNER, 2), ("other", OWNER, 1)],
        [("id", STRANGER, 1)],
        [("id", ZOMBIE, 1)],
    ]


async def test_many_partitions_are_asked_about_in_several_requests(nursery, autojump_clock):
    made, peer = await verification(nursery)
    many = [TopicPartition("a", index) for index in range(3 * PARTITIONS_AT_A_TIME + 1)]
    answers = await asked_at_once(made, ("wide", OWNER, *many), ("narrow", OWNER, A0))
    assert answers == [dict.fromkeys(many, ErrorCode.NONE), {A0: ErrorCode.NONE}]
    sizes = [sum(count for _, _, count in request) for request in peer.requests[1:]]
    assert max(sizes) <= 2 * PARTITIONS_AT_A_TIME
    assert sum(sizes) == len(many) + 1


async def test_every_question_is_answered_whatever_happens_to_its_request(nursery, autojump_clock):
    made, peer = await verification(nursery)
    peer.failure = PeerLost("gone")
    assert await made.verify("id", OWNER, [A0]) == {A0: ErrorCode.NETWORK_EXCEPTION}
    # A coordinator of an older release cannot be asked: as in Kafka nothing is verified then.
    peer.failure = PeerTooOld("3 is the highest version")
    assert await made.verify("id", OWNER, [A0]) == {A0: ErrorCode.NONE}
    nowhere, _ = await verification(nursery, coordinator=None)
    assert await nowhere.verify("id", OWNER, [A0]) == {A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_a_client_that_goes_away_takes_no_answer_with_it(nursery, autojump_clock):
    made, _ = await verification(nursery)
    answers = []

    async def ask() -> None:
        answers.append(await made.verify("id", OWNER, [A1]))

    with trio.move_on_after(0.5):
        nursery.start_soon(ask)
        await made.verify("id", OWNER, [A0])
    await trio.sleep(2)
    assert answers == [{A1: ErrorCode.NONE}]


async def test_this_broker_as_the_coordinator_answers_in_the_same_step(nursery, autojump_clock):
    asked = []

    def ask_own(name, event):
        asked.append((name, event.producer, list(event.partitions)))
        errors = {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}
        return Answer(ErrorCode.NONE, partition_errors=errors) if event.producer == OWNER else Answer(FENCED)

    made, peer = await verification(nursery, OWN_ID, ask_own)
    began = trio.current_time()
    assert await made.verify("id", OWNER, [A0, A1]) == {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}
    assert await made.verify("id", ZOMBIE, [A1]) == {A1: FENCED}
    assert trio.current_time() == began
    assert asked == [("id", OWNER, [A0, A1]), ("id", ZOMBIE, [A1])]
    assert peer.requests == []


async def test_this_broker_is_asked_as_any_other_while_it_has_no_answer(nursery, autojump_clock):
    made, peer = await verification(nursery, OWN_ID)
    assert await made.verify("id", OWNER, [A0]) == {A0: ErrorCode.NONE}
    assert peer.requests == [[("id", OWNER, 1)]]


async def test_another_coordinator_is_asked_although_this_broker_would_answer(nursery, autojump_clock):
    made, peer = await verification(nursery, 1, lambda name, event: Answer(FENCED))
    assert await made.verify("id", OWNER, [A0]) == {A0: ErrorCode.NONE}
    assert len(peer.requests) == 1
