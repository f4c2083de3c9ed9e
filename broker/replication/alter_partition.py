"""How a leader changes its in-sync replicas: it asks the controller, by AlterPartition (KIP-497; reference C.6).

Theory of operation. A `Partition` judges its followers, notes what it wants (`asked_isr`) and registers here. One
request is on its way at a time, with everything that was registered until then; what is registered meanwhile waits for
the next one. So a broker that dies under a thousand partitions costs its leaders a request or two. What becomes of an
answer, a partition:

    agreed                                   the ISR and the partition epoch are what the answer says
    OPERATION_NOT_ATTEMPTED (55),            certainly not done: the partition goes on with the ISR that it had, and
    INELIGIBLE_REPLICA (107)                 asks again when there is reason to
    FENCED_LEADER_EPOCH (74) and others      the leader is not, or does not know, what it thought: it keeps counting
    that say that the state is another one   both ISRs, and asks nothing, until LeaderAndIsr tells it more
    anything else                            asked again after a moment

Where no LeaderAndIsr comes (the topic was gone, or the controller died before it sent one), the leader asks again after
`ROLE_WAIT_SECONDS`: a change that is waited for counts in the high watermark, and must not do so for ever. Asking again
is safe, for the controller compares epochs, and agrees to what is written already.

The same for all of them if the request as a whole is refused, most often because this broker registered again
(STALE_BROKER_EPOCH). A role that came while the answer was on its way makes the answer worthless: the partition has
dropped what it had asked.

Members of the ISR go with the broker epoch of the fetch that it was decided on (KIP-903), however often it is asked
again: a controller that compares them does not take in a broker which has lost its log since. A Java controller in
ZooKeeper mode does not look at them, and before `inter.broker.protocol.version` 3.5 no broker sends them.

From version 2 on AlterPartition names topics by their ids alone. Topics have ids from `inter.broker.protocol.version`
2.8 on, and not before the controller has reached that level too: while a cluster is upgraded, a leader of the new level
leads topics without one. These are asked for in a request of their own, in version 1.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.pacing import paced
from barnabas.broker.replication.isr import LagLimits
from barnabas.broker.replication.partition import RECOVERED, AskedIsr, Partition
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, PeerLost, error_name
from barnabas.wire.sentinels import UNKNOWN_BROKER_EPOCH
from barnabas.wire.topics import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from barnabas.broker.config.live import BrokerConfig
    from barnabas.broker.metadata import ClusterMetadata

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05  # as Kafka
ROLE_WAIT_SECONDS = 30.0  # a controller that has just been elected may need so long to tell all roles
BY_NAME_VERSION_MAX = 1  # of AlterPartition; later versions name topics by id only
SHORTEST_INTERVAL_SECONDS = 0.01  # between two looks at followers, whatever is configured

# What is certainly not done.
NOT_DONE = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)

# What says that the controller's state is not the one that was to be changed.
WAIT_FOR_ROLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)

Key = tuple[str | bytes, int]  # topic name (AlterPartition 0 and 1) or topic id, and partition index


class Ask(Protocol):
    """Changes ISRs: the controller, or this broker itself before 2.7-IV2."""

    def __call__(self, request: m.Message, *, version_max: int | None = None) -> Awaitable[m.Message]: ...


class Settled(Enum):
    """What is left to do about a change of an ISR that was answered."""

    DONE = auto()
    ASK_AGAIN = auto()
    AWAIT_ROLE = auto()


class AlterPartition:
    """The partitions that want another ISR, and the broker's eyes on followers (`partition.FollowerWatch`)."""

    def __init__(
        self,
        broker_id: int,
        config: "BrokerConfig",
        metadata: "ClusterMetadata",
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._asking: dict[Partition, None] = {}
        self._awaiting_role: dict[Partition, tuple[AskedIsr, float]] = {}  # what was asked, and when to ask again
        self._wake = trio.Event()

    @property
    def limits(self) -> LagLimits:
        """How far behind a follower in sync may be."""
        return LagLimits(self._config.replica_lag_time_max_ms, self._config.replica_lag_max_messages)

    def now_ms(self) -> float:
        """The time by which followers are measured."""
        return self._clock() * 1000

    def is_alive(self, broker_id: int) -> bool:
        """Whether the controller takes this broker for alive."""
        return broker_id in self._metadata.brokers

    def ask(self, partition: Partition) -> None:
        """Ask the controller for what is in `partition.asked_isr`."""
        asked = partition.asked_isr
        if asked is not None:
            logger.info("%s: asking for the ISR %s", partition.topic_partition, asked.in_sync_replicas)
        self._asking[partition] = None
        self._wake.set()

    async def watch(self, partitions: Iterable[Partition]) -> None:
        """Look twice in `replica.lag.time.max.ms` who is stuck or slow, and which role did not come."""
        while True:
            await trio.sleep(max(self._config.replica_lag_time_max_ms / 2000, SHORTEST_INTERVAL_SECONDS))
            async for partition in paced(list(partitions)):
                partition.shrink()
            self._stop_awaiting_roles()

    def _stop_awaiting_roles(self) -> None:
        now = self._clock()
        for partition, (asked, due) in list(self._awaiting_role.items()):
            if partition.asked_isr is not asked or due <= now:
                del self._awaiting_role[partition]
                if partition.asked_isr is asked:
                    self.ask(partition)

    async def run(self, ask: Ask, broker_epoch: Callable[[], int]) -> None:
        """Ask for whatever is registered, one request at a time."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            partitions, self._asking = self._asking, {}
            asked = {each: each.asked_isr for each in partitions if each.asked_isr is not None and each.log is not None}
            try:
                settled = [await self._ask(part, version_max, ask, broker_epoch) for part, version_max in _split(asked)]
            except BaseException:
                self._asking.update(dict.fromkeys(partitions))
                self._wake.set()
                raise
            if not all(settled):
                await trio.sleep(RETRY_SECONDS)
            if self._asking:
                self._wake.set()

    async def _ask(
        self, asked: dict[Partition, AskedIsr], version_max: int | None, ask: Ask, broker_epoch: Callable[[], int]
    ) -> bool:
        """Whether nothing must be asked again; what must, is registered again."""
        request = alter_partition_request(self._broker_id, broker_epoch(), asked)
        try:
            response = await ask(request, version_max=version_max)
        except PeerLost as error:
            logger.warning("the ISRs of %d partitions are not changed yet: %s", len(asked), error)
            self._asking.update(dict.fromkeys(asked))
            return False
        if not isinstance(response, m.AlterPartitionResponse):
            raise InvariantBroken(f"{response!r} answers AlterPartition")
        if response.error_code:
            logger.warning("AlterPartition is refused: %s", error_name(response.error_code))
            self._asking.update(dict.fromkeys(asked))
            return False
        rows = _rows(response)
        settled = {each: _settle(each, isr, _row_of(each, rows)) for each, isr in asked.items()}
        due = self._clock() + ROLE_WAIT_SECONDS
        self._awaiting_role |= {each: (asked[each], due) for each in settled if settled[each] is Settled.AWAIT_ROLE}
        unsettled = [each for each in settled if settled[each] is Settled.ASK_AGAIN]
        self._asking.update(dict.fromkeys(unsettled))
        return not unsettled


def _split(asked: Mapping[Partition, AskedIsr]) -> Iterator[tuple[dict[Partition, AskedIsr], int | None]]:
    """What goes into one request, and the highest version of it: topics without an id can only be named."""
    for have_ids, version_max in ((True, None), (False, BY_NAME_VERSION_MAX)):
        part = {each: isr for each, isr in asked.items() if (_topic_id(each) != ZERO_TOPIC_ID) is have_ids}
        if part:
            yield part, version_max


def _topic_id(partition: Partition) -> bytes:
    return ZERO_TOPIC_ID if partition.log is None else partition.log.topic_id or ZERO_TOPIC_ID


def alter_partition_request(
    broker_id: int, broker_epoch: int, asked: Mapping[Partition, AskedIsr]
) -> m.AlterPartitionRequest:
    """One request for all of these, in whichever version it will be sent, if it can name these topics."""
    topics: dict[str, list[m.AlterPartitionRequest.PartitionData]] = {}
    topic_ids: dict[str, bytes] = {}
    for partition, isr in asked.items():
        name, index = partition.topic_partition
        topic_ids[name] = _topic_id(partition)
        members = [
            m.AlterPartitionRequest.BrokerState(
                broker_id=each, broker_epoch=isr.broker_epochs.get(each, UNKNOWN_BROKER_EPOCH)
            )
            for each in isr.in_sync_replicas
        ]
        row = m.AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=isr.leader_epoch,
            new_isr=isr.in_sync_replicas,
            new_isr_with_epochs=members,
            leader_recovery_state=RECOVERED,
            partition_epoch=isr.partition_epoch,
        )
        topics.setdefault(name, []).append(row)
    return m.AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[
            m.AlterPartitionRequest.TopicData(topic_name=name, topic_id=topic_ids[name], partitions=rows)
            for name, rows in topics.items()
        ],
    )


def _rows(response: m.AlterPartitionResponse) -> dict[Key, m.AlterPartitionResponse.PartitionData]:
    return {
        (topic.topic_name if topic.topic_id == ZERO_TOPIC_ID else topic.topic_id, row.partition_index): row
        for topic in response.topics
        for row in topic.partitions
    }


def _row_of(
    partition: Partition, rows: Mapping[Key, m.AlterPartitionResponse.PartitionData]
) -> m.AlterPartitionResponse.PartitionData | None:
    name, index = partition.topic_partition
    return rows.get((name, index)) or rows.get((_topic_id(partition), index))


def _settle(partition: Partition, asked: AskedIsr, row: m.AlterPartitionResponse.PartitionData | None) -> Settled:
    """Do what the answer means."""
    if partition.asked_isr is not asked:
        return Settled.DONE  # another role came
    if row is None:
        logger.warning("%s: the answer about its ISR does not name it", partition.topic_partition)
        return Settled.AWAIT_ROLE
    if row.error_code == ErrorCode.NONE:
        if row.leader_epoch == partition.leader_epoch:
            partition.isr_changed(asked, list(row.isr), row.partition_epoch, row.leader_recovery_state)
            logger.info("%s: the ISR is %s", partition.topic_partition, partition.in_sync_replicas)
        return Settled.DONE
    logger.warning("%s: the ISR is not changed: %s", partition.topic_partition, error_name(row.error_code))
    if row.error_code in NOT_DONE:
        partition.isr_refused(asked)
        return Settled.DONE
    return Settled.AWAIT_ROLE if row.error_code in WAIT_FOR_ROLE else Settled.ASK_AGAIN
