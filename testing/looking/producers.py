"""The producers that a broker knows, as a test disturbs them."""

from typing import TYPE_CHECKING

from barnabas.testing.asking import ask
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.looking.live import SECONDS, Live, wait_until
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.call import Broker

INIT_PRODUCER_ID_VERSION = 1
LIST_TRANSACTIONS_VERSION = 0
FOR_NOW = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
FAR_FUTURE_MS = 1 << 62


class Producers:
    """The producers of one broker, which listens at this port."""

    def __init__(self, live: Live, port: int) -> None:
        self._live = live
        self._port = port

    def ids(self, topic: str | None = None) -> list[int]:
        """The producer ids whose batches the replicas of this broker remember, of one topic or of all."""
        return sorted(
            self._live.look(
                lambda broker: {
                    producer_id
                    for partition in broker.replicas
                    if partition.log is not None and topic in (None, partition.topic_partition.topic)
                    for producer_id in partition.log.producers.ids()
                }
            )
        )

    def fence(self, producer: str | int, *, seconds: float = SECONDS) -> None:
        """Let a newer producer have this transactional id, or that of this producer id.

        Its open transaction is aborted, and the older producer is fenced. LocalBrokerError if another broker
        coordinates the id, or no producer has it; also for a producer id without a transactional id.
        """
        transactional_id = producer if isinstance(producer, str) else self._transactional_id_of(producer)
        known = self._live.ask(lambda broker: broker.transactions.describe(transactional_id))
        if isinstance(known, ErrorCode):
            raise LocalBrokerError(f"transactional id {transactional_id!r}: {known.name}")
        # The timeout is the one that the id has: the broker allows that one
        # (transaction.max.timeout.ms).
        request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=known.timeout_ms)
        answers = [ErrorCode.NONE]

        def fence() -> bool:
            answer = ask(self._port, request, INIT_PRODUCER_ID_VERSION, m.InitProducerIdResponse)
            answers[0] = ErrorCode(answer.error_code)
            return answers[0] not in FOR_NOW

        wait_until(fence, seconds, lambda: f"transactional id {transactional_id!r}: {answers[0].name}")
        if answers[0]:
            raise LocalBrokerError(f"transactional id {transactional_id!r}: {answers[0].name}")

    def _transactional_id_of(self, producer_id: int) -> str:
        request = m.ListTransactionsRequest(producer_id_filters=[producer_id])
        listed = ask(self._port, request, LIST_TRANSACTIONS_VERSION, m.ListTransactionsResponse).transaction_states
        if not listed:
            raise LocalBrokerError(f"producer {producer_id!r} has no transactional id here, so it cannot be fenced")
        return listed[0].transactional_id

    def forget(self, producer_id: int) -> None:
        """Forget the batches of a producer in all replicas of this broker, as after `producer.id.expiration.ms`.

        LocalBrokerError if it is unknown, or has an open transaction.
        """

        def forget(broker: "Broker") -> int:
            logs = [each.log for each in broker.replicas if each.log is not None]
            known = [log for log in logs if log.producers.get(producer_id) is not None]
            if not known:
                raise LocalBrokerError(f"no producer {producer_id!r} is known, only {self.ids()}")
            for log in known:
                log.producers.expire(FAR_FUTURE_MS, 0, [producer_id])
            return sum(log.producers.get(producer_id) is not None for log in known)

        if self._live.look(forget):
            raise LocalBrokerError(f"producer {producer_id!r} has an open transaction")
