"""Verification: before a partition leader lets a producer begin a transaction, it asks the transaction coordinator
whether the transaction has the partition (KIP-890; reference transactions, T.12).

Without it, a Produce that arrives after the end of its transaction would open one that never ends. The LSO of the
partition would stay there for ever, and every reader of committed records would wait for it.

Questions about the same producer are shared while they wait. One request at a time is under way to a coordinator; the
next one carries what was asked meanwhile: of each transactional id one producer, because the response has one row for
each id. Others wait for their turn. In Kafka they fail, so anyone who knows an id can keep its owner from writing.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable

import trio

from barnabas.controller.channels import Peer
from barnabas.coordinators.transactions.events import Answer, VerifyPartitions
from barnabas.coordinators.transactions.senders import Senders
from barnabas.coordinators.transactions.state import Producer
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, PeerLost, PeerTooOld, error_of
from barnabas.wire.topics import TopicPartition
from barnabas.world.pacing import portions
from barnabas.world.resting import resting

logger = logging.getLogger(__name__)

VERIFYING_VERSION = 4  # of AddPartitionsToTxn
PARTITIONS_AT_A_TIME = 500  # in one question, and in one request before its last question is added

AskOwn = Callable[[str, VerifyPartitions], Answer | None]
Errors = dict[TopicPartition, ErrorCode]
Transaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class _Question:
    """What is asked about one producer; several requests may wait for the answer."""

    __slots__ = ("answered", "errors", "partitions", "producer")

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.partitions: dict[TopicPartition, None] = {}
        self.errors: Errors = {}
        self.answered = trio.Event()

    def answer(self, errors: Errors) -> None:
        self.errors = errors
        self.answered.set()

    def answer_all(self, error: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.partitions, error))


class Verification:
    """The questions of this broker to all coordinators.

    `coordinator_of(transactional_id)` is the broker to ask, `open_peer(broker_id)` the connection to it. If that is
    this broker, `own_id`, `ask_own` answers in one step, or has no answer yet (None): then it is asked as any other.
    """

    def __init__(
        self,
        coordinator_of: Callable[[str], int | None],
        open_peer: Callable[[int], Peer],
        timeout_ms: Callable[[], int],
        own_id: int,
        ask_own: AskOwn,
    ) -> None:
        self._own_id = own_id
        self._ask_own = ask_own
        self._coordinator_of = coordinator_of
        self._open_peer = open_peer
        self._timeout_ms = timeout_ms
        self._peers: dict[int, Peer] = {}
        # Coordinator -> transactional id -> what is asked about it, in order.
        self._waiting: dict[int, dict[str, deque[_Question]]] = {}
        self._senders = Senders("questions about transactions", self._ask_waiting)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask, until cancelled."""
        await self._senders.run(task_status)

    async def verify(self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]) -> Errors:
        """NONE for each partition that belongs to the transaction, or the error as the coordinator gives it.

        Also: COORDINATOR_NOT_AVAILABLE, NETWORK_EXCEPTION.
        """
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        asked: dict[TopicPartition, None] = dict.fromkeys(partitions)
        if coordinator == self._own_id:
            answer = self._ask_own(transactional_id, VerifyPartitions(producer, asked))
            if answer is not None:
                return {**dict.fromkeys(asked, answer.error), **(answer.partition_errors or {})}

        errors: Errors = {}
        for some in portions(list(asked), PARTITIONS_AT_A_TIME):
            question = self._question_for(coordinator, transactional_id, producer)
            question.partitions.update(dict.fromkeys(some))
            self._senders.wake(coordinator)
            with resting():
                await question.answered.wait()
            errors |= {each: question.errors.get(each, ErrorCode.NETWORK_EXCEPTION) for each in some}

        return errors

    def _question_for(self, coordinator: int, transactional_id: str, producer: Producer) -> _Question:
        """A question that waits, or a new one."""
        waiting = self._waiting.setdefault(coordinator, {}).setdefault(transactional_id, deque())
        for question in waiting:
            if question.producer == producer and len(question.partitions) < PARTITIONS_AT_A_TIME:
                return question
        waiting.append(_Question(producer))
        return waiting[-1]

    def _take(self, coordinator: int) -> dict[str, _Question]:
        """The questions of the next request."""
        waiting = self._waiting.get(coordinator, {})
        taken: dict[str, _Question] = {}
        count = 0
        for name in list(waiting):
            if count >= PARTITIONS_AT_A_TIME:
                break
            queue = waiting.pop(name)
            question = taken[name] = queue.popleft()
            count += len(question.partitions)
            # The id goes behind the other ones, so that none waits for all questions of another.
            if queue:
                waiting[name] = queue
        return taken

    async def _ask_waiting(self, coordinator: int) -> bool:
        questions = self._take(coordinator)
        if not questions:
            return False
        try:
            await self._ask(coordinator, questions)
        finally:
            # The questions are answered even after a bug or a cancellation: a request that waits
            # for ever would hold its connection.
            for question in questions.values():
                if not question.answered.is_set():
                    question.answer_all(ErrorCode.NETWORK_EXCEPTION)
        return True

    async def _ask(self, coordinator: int, questions: dict[str, _Question]) -> None:
        peer = self._peers.get(coordinator)
        if peer is None:
            peer = self._peers[coordinator] = self._open_peer(coordinator)
        request = m.AddPartitionsToTxnRequest(transactions=[_row(name, each) for name, each in questions.items()])
        try:
            response = await peer.ask(request, self._timeout_ms(), version_min=VERIFYING_VERSION)
        # An older coordinator cannot be asked, so its transactions are not verified, as in Kafka.
        except PeerTooOld:
            for question in questions.values():
                question.answer_all(ErrorCode.NONE)
            return
        except PeerLost as lost:
            logger.info("no answer about transactions from broker %d: %s", coordinator, lost)
            return

        if not isinstance(response, m.AddPartitionsToTxnResponse):
            raise InvariantBroken(f"{response!r} answers AddPartitionsToTxn")
        if response.error_code:
            code = error_of(response.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE
            for question in questions.values():
                question.answer_all(code)
            return

        for result in response.results_by_transaction:
            asked = questions.get(result.transactional_id)
            if asked is not None:
                asked.answer(
                    {
                        TopicPartition(topic.name, row.partition_index): error_of(row.partition_error_code)
                        for topic in result.topic_results
                        for row in topic.results_by_partition
                    }
                )


def _row(name: str, question: _Question) -> Transaction:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    return Transaction(
        transactional_id=name,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.producer_epoch,
        verify_only=True,
        topics=[Topic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def code_for(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """What a producer hears, or the group coordinator, for an error of the verification."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
