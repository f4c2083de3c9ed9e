"""How a leader changes its ISR: it sends AlterPartition to the controller (KIP-497; reference C.6).

A `Partition` decides which ISR it wants, stores it in `asked_isr` and registers here (`ask`). One request is in flight
at a time, with all partitions that were registered before; later ones wait for the next request. So a broker failure
costs the leaders of a thousand partitions a request or two. The response has a result for each partition:

    accepted                                 the partition takes over the ISR and partition epoch of the response
    OPERATION_NOT_ATTEMPTED (55),            the change was certainly not made: the partition keeps its ISR and may
    INELIGIBLE_REPLICA (107)                 request another one
    FENCED_LEADER_EPOCH (74) and the others  the controller has another state: the high watermark keeps waiting for
    in `WAIT_FOR_ROLE`                       the maximal ISR, and nothing is requested, until LeaderAndIsr arrives
    any other error                          the request is repeated after `RETRY_SECONDS`

An error of the whole request repeats it for all its partitions.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import count
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.replication.isr import AskedIsr, LagLimits
from barnabas.replication.partition import RECOVERED, Partition
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, PeerLost, error_name
from barnabas.wire.sentinels import UNKNOWN_BROKER_EPOCH
from barnabas.wire.topics import ZERO_TOPIC_ID
from barnabas.world.pacing import paced, portions

if TYPE_CHECKING:
    from barnabas.config.live import BrokerConfig
    from barnabas.world.metadata import ClusterMetadata

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05  # as in Kafka
ROLE_WAIT_SECONDS = 30.0  # a newly elected controller may need so long to send all roles
BY_NAME_VERSION_MAX = 1  # of AlterPartition; later versions name topics by id only
ASKED_AT_A_TIME = 300  # partitions in a request: to carry out the response for one takes 10 µs
SHORTEST_INTERVAL_SECONDS = 0.01  # between two checks of the followers, whatever replica.lag.time.max.ms is

# With these errors the change was certainly not made, so the high watermark need not wait for the requested members.
# After any other error the controller may have made it, and may elect one of them.
NOT_DONE = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)

# With these errors the controller's state is not the one that the change was based on.
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
    """Carries out an AlterPartition request: the controller, or `AlterPartitionZk` before 2.7-IV2. Raises PeerLost."""

    def __call__(self, request: m.Message, *, version_max: int | None = None) -> Awaitable[m.Message]: ...


class Settled(Enum):
    """What remains to be done after the response about one ISR change."""

    DONE = auto()
    ASK_AGAIN = auto()
    AWAIT_ROLE = auto()


class AlterPartition:
    """The pending ISR changes of this broker. Implements `partition.FollowerWatch`."""

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
        # The partitions for the next request. The change itself is in the partition (`asked_isr`): a partition that is
        # registered twice is named once, with its latest change.
        self._asking: dict[Partition, None] = {}
        self._awaiting_role: dict[Partition, tuple[AskedIsr, float]] = {}  # requested ISR, time of the repetition (s)
        self._wake = trio.Event()
        self._marks = count(1)

    @property
    def limits(self) -> LagLimits:
        """How far behind an in-sync follower may be, by the current configuration."""
        return LagLimits(self._config.replica_lag_time_max_ms, self._config.replica_lag_max_messages)

    def now_ms(self) -> float:
        """The monotonic time for the lag of followers."""
        return self._clock() * 1000

    def mark(self) -> int:
        """A number above all that were given before."""
        return next(self._marks)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the controller's metadata lists this broker as alive."""
        return broker_id in self._metadata.brokers

    def ask(self, partition: Partition) -> None:
        """Register `partition.asked_isr` for the next request."""
        asked = partition.asked_isr
        if asked is not None:
            logger.info("%s: asking for the ISR %s", partition.topic_partition, asked.in_sync_replicas)
        self._asking[partition] = None
        self._wake.set()

    async def watch(self, partitions: Iterable[Partition]) -> None:
        """Check for stuck and slow followers, and for overdue roles, every `replica.lag.time.max.ms` / 2; for ever."""
        # Half of the limit, as in Kafka: a stuck follower delays acks=all for about one and a half times the limit.
        while True:
            # The property is read each time: it can change at run time.
            await trio.sleep(max(self._config.replica_lag_time_max_ms / 2000, SHORTEST_INTERVAL_SECONDS))
            async for partition in paced(list(partitions)):
                partition.shrink()
            self._stop_awaiting_roles()

    def _stop_awaiting_roles(self) -> None:
        # LeaderAndIsr may never come: the topic was missing, or the controller died before it sent one. A pending
        # change holds back the high watermark, which must not last for ever. To ask again is safe: the controller
        # compares epochs, and accepts a state that is written already.
        now = self._clock()
        for partition, (asked, due) in list(self._awaiting_role.items()):
            if partition.asked_isr is not asked or due <= now:
                del self._awaiting_role[partition]
                if partition.asked_isr is asked:
                    self.ask(partition)

    async def run(self, ask: Ask, broker_epoch: Callable[[], int]) -> None:
        """Send the registered changes, one request at a time; for ever."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()

            # The table is emptied before the request: changes that are registered meanwhile wait
            # for the next one.
            partitions = self._asking
            self._asking = {}

            # A partition that got another role since its registration has dropped its change.
            asked = {each: each.asked_isr for each in partitions if each.asked_isr is not None and each.log is not None}
            try:
                settled = [await self._ask(part, version_max, ask, broker_epoch) for part, version_max in _split(asked)]
            except BaseException:
                # After an unexpected exception the task begins again and must not lose these partitions.
                self._asking.update(dict.fromkeys(partitions))
                self._wake.set()
                raise
            if not all(settled):
                await trio.sleep(RETRY_SECONDS)

            # Partitions to repeat are registered without a call of `ask`, which would set the event.
            if self._asking:
                self._wake.set()

    async def _ask(
        self, asked: dict[Partition, AskedIsr], version_max: int | None, ask: Ask, broker_epoch: Callable[[], int]
    ) -> bool:
        """Send one request and carry out its response. False if a partition was registered again."""
        # The broker epoch is read for each attempt: this broker may have registered again since the last one.
        request = alter_partition_request(self._broker_id, broker_epoch(), asked)
        try:
            response = await ask(request, version_max=version_max)
        # The controller may have made the changes. It compares epochs and finds its state as asked, so a repetition
        # succeeds.
        except PeerLost as error:
            logger.warning("the ISRs of %d partitions are not changed yet: %s", len(asked), error)
            self._asking.update(dict.fromkeys(asked))
            return False

        if not isinstance(response, m.AlterPartitionResponse):
            raise InvariantBroken(f"{response!r} answers AlterPartition")

        # The most frequent error is STALE_BROKER_EPOCH: this broker has registered again.
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
    """The requests to send, as (partitions, highest version): for topics with an id, and for those without."""
    # From version 2 on AlterPartition has topic ids only. During an upgrade a leader of `inter.broker.protocol.version`
    # 2.8 or later leads topics without ids, until the controller has reached that level and has given them ids. Their
    # changes go in a request of version 1.
    for have_ids, version_max in ((True, None), (False, BY_NAME_VERSION_MAX)):
        part = [(each, isr) for each, isr in asked.items() if (_topic_id(each) != ZERO_TOPIC_ID) is have_ids]
        for some in portions(part, ASKED_AT_A_TIME):
            yield dict(some), version_max


def _topic_id(partition: Partition) -> bytes:
    return ZERO_TOPIC_ID if partition.log is None else partition.log.topic_id or ZERO_TOPIC_ID


def alter_partition_request(
    broker_id: int, broker_epoch: int, asked: Mapping[Partition, AskedIsr]
) -> m.AlterPartitionRequest:
    """One request for all these partitions. It has names and ids, so it fits every version that can name them."""
    topics: dict[str, list[m.AlterPartitionRequest.PartitionData]] = {}
    topic_ids: dict[str, bytes] = {}
    for partition, isr in asked.items():
        name, index = partition.topic_partition
        topic_ids[name] = _topic_id(partition)

        # KIP-903: the broker epoch is that of the follower's Fetch on which the change was based, also in repetitions.
        # The controller then refuses a broker that has restarted since, perhaps without its log. A Java controller in
        # ZooKeeper mode ignores the epochs, and before `inter.broker.protocol.version` 3.5 brokers do not send them.
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
    # The response has names or ids by its version, which is negotiated with the controller and not known here.
    name, index = partition.topic_partition
    return rows.get((name, index)) or rows.get((_topic_id(partition), index))


def _settle(partition: Partition, asked: AskedIsr, row: m.AlterPartitionResponse.PartitionData | None) -> Settled:
    """Carry out the response for one partition."""
    # A role that arrived meanwhile has replaced the state, and the partition has dropped the change.
    if partition.asked_isr is not asked:
        return Settled.DONE

    # Whether the change was made is unknown, so the high watermark must go on waiting for the maximal ISR.
    if row is None:
        logger.warning("%s: the answer about its ISR does not name it", partition.topic_partition)
        return Settled.AWAIT_ROLE
    if row.error_code == ErrorCode.NONE:
        # A state of another leader epoch is ignored, as in Kafka: LeaderAndIsr brings that epoch.
        if row.leader_epoch != partition.leader_epoch:
            return Settled.AWAIT_ROLE
        partition.isr_changed(asked, list(row.isr), row.partition_epoch, row.leader_recovery_state)
        logger.info("%s: the ISR is %s", partition.topic_partition, partition.in_sync_replicas)
        return Settled.DONE

    logger.warning("%s: the ISR is not changed: %s", partition.topic_partition, error_name(row.error_code))
    if row.error_code in NOT_DONE:
        partition.isr_refused(asked)
        return Settled.DONE
    return Settled.AWAIT_ROLE if row.error_code in WAIT_FOR_ROLE else Settled.ASK_AGAIN
