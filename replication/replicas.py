"""The partitions that this broker hosts, and the control requests that give them their roles (reference B.8, C.1).

LeaderAndIsr is handled in two halves. The first half creates missing logs in threads (`_prepare`). The second half
stops the fetchers of the partitions whose roles change, and takes each role in one synchronous step (`_take_roles`).
One control request at a time works on a partition (`turns`), so the second half may rely on what the first half
checked, except that a log directory may fail in between, and that a move may exchange the log for its copy. A request
whose partition waits for the disk holds up no request about other partitions.

A `StorageError` anywhere takes its whole log directory offline: its partitions stop leading and answer
KAFKA_STORAGE_ERROR; partitions in other directories go on.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from barnabas.controller.store.store import SessionExpired, StoreError
from barnabas.replication import roles
from barnabas.replication.partition import FollowerWatch, Partition
from barnabas.replication.refused_batches import RefusedBatches
from barnabas.replication.roles import AskedState, StoppedReplica, Verdict
from barnabas.replication.turns import Turns
from barnabas.storage.disk import StorageError, parent_of
from barnabas.storage.log import PartitionLog
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from barnabas.world.connection_order import LatestConnections, Source
from barnabas.world.containment import contained
from barnabas.world.metadata import partition_states
from barnabas.world.pacing import paced
from barnabas.world.tally import TopicTally

if TYPE_CHECKING:
    from barnabas.config.live import TopicConfig
    from barnabas.replication.fetcher_pool import FetcherPool
    from barnabas.replication.log_dir_moves import Moves
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.replication.logs.partition_logs import Logs
    from barnabas.replication.topic_configs import TopicConfigs
    from barnabas.storage.flusher import Flusher
    from barnabas.world.metadata import ClusterMetadata, TopicInfo

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    PartitionState = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState

THREADS_AT_A_TIME = 8  # of trio's 40: enough for the fsyncs of new logs to share the file system's commits
CONTROLLERS_MAX = 100  # client ids whose latest connection is known; a client may send any id
ROLES_A_SLICE = 100  # roles between two checkpoints of the event loop: about a millisecond

Item = TypeVar("Item")


class Coordinator(Protocol):
    """The runtime of the group or transaction coordinator, whose state lives in the partitions of an internal topic."""

    def on_elected(self, partition: Partition) -> None:
        """This broker leads the partition from now on, under `partition.leader_epoch`."""

    def on_resigned(self, partition_index: int, leader_epoch: int) -> None:
        """This broker no longer leads the partition."""

    def on_deleted(self, partition_index: int) -> None:
        """This broker's log of the partition is deleted. A later partition with this index starts empty."""

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions, of any topic, are being deleted: their committed offsets can be removed."""


class Replicas:
    """All partitions that this broker hosts. Handles the control requests one after the other."""

    def __init__(  # noqa: PLR0913  # what it works with, by keyword
        self,
        *,
        broker_id: int,
        logs: "Logs",
        flusher: "Flusher",
        fetchers: "FetcherPool",
        moves: "Moves",
        metadata: "ClusterMetadata",
        topic_configs: "TopicConfigs",
        now_ms: Callable[[], int],
        watch: FollowerWatch,
        existing_ids: Callable[[Collection[str]], Awaitable[Mapping[str, bytes | None]]],
    ) -> None:
        self.broker_id = broker_id
        self.controller_epoch = 0

        # The latest connections, by client id: if another client sends requests with the controller's epoch, those of
        # the controller must not count as overtaken by them.
        self._controllers = LatestConnections[str | None](CONTROLLERS_MAX)
        self.broker_epoch = -1
        self.coordinators: dict[str, Coordinator] = {}
        self.logs = logs
        self._flusher = flusher
        self._fetchers = fetchers
        self._moves = moves
        self._metadata = metadata
        self._topic_configs = topic_configs
        self._now_ms = now_ms
        self._watch = watch
        self._existing_ids = existing_ids  # topic names -> ids, read from the metadata store at each call
        self._partitions: dict[TopicPartition, Partition] = {}
        self.tallies: dict[str, TopicTally] = {}  # of topics with a partition here
        self.past_tally = TopicTally()  # of topics without one any more
        self._names: dict[bytes, str] = {}  # topic id -> name, of the hosted partitions
        self.refused_batches = RefusedBatches()

        # Set when a request was refused because this process lacked descriptors or memory, or the store was away. No
        # directory failed, so the controller has to be asked for the same request again (`serve.py`).
        self.lacked = trio.Event()

        # Control requests about one partition are handled in the order of their arrival: the controller relies on it.
        self.turns = Turns[TopicPartition]()

    # -- lookups

    def get(self, topic: str, partition: int) -> Partition | ErrorCode:
        """The hosted partition. Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the partition exists on
        other brokers), KAFKA_STORAGE_ERROR (its directory is offline)."""
        found = self._partitions.get((topic, partition))  # type: ignore[call-overload]  # a tuple equals its NamedTuple
        if found is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR if found.log is None else found
        if self._metadata.partition(topic, partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id; None when it is unknown."""
        # LeaderAndIsr of a new topic arrives before UpdateMetadata, and followers fetch by id at once.
        return self._metadata.topic_name(topic_id) or self._names.get(topic_id)

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def forget_tallies(self) -> None:
        """Add the counts of topics without a partition here to `past_tally`. The caller shows each topic's counts."""
        # Nothing is done when a partition leaves: a topic that comes back goes on with its counts, and
        # `past_tally` is needed only when the sums are read.
        gone = [topic for topic, tally in self.tallies.items() if not tally.partitions]
        for topic in gone:
            self.past_tally.add(self.tallies.pop(topic))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every partition that has a log; for replication-offset-checkpoint."""
        return {key: partition.high_watermark for key, partition in self._partitions.items() if partition.log}

    # -- control requests

    async def leader_and_isr(
        self, request: m.LeaderAndIsrRequest, states: list[AskedState], source: Source
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """Create logs and take roles. Returns an error code for each partition, or one for the whole request.

        Errors of the request: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH; UNKNOWN_SERVER_ERROR if the store is away.
        """
        refused = self._fence(request.controller_epoch, request.broker_epoch, source)
        if refused:
            return refused

        # Of a partition that is named twice the last role counts.
        asked = {each[0]: each for each in states}
        errors: dict[TopicPartition, ErrorCode] = {}
        try:
            with self.turns.of(asked) as turn:
                async for keys in turn:
                    refused = self._refuse_overtaken(request.controller_epoch, request.broker_epoch)
                    if refused:
                        return refused
                    errors |= await self._apply({key: asked[key] for key in keys})
        # This broker registers again after an expired session, and the controller then sends all
        # roles again.
        except SessionExpired:
            return ErrorCode.STALE_BROKER_EPOCH
        except StoreError as error:
            logger.warning("roles cannot be taken: %s", error, extra={"peer": "metadata store"})
            self.lacked.set()
            return ErrorCode.UNKNOWN_SERVER_ERROR

        return errors

    async def _apply(self, asked: Mapping[TopicPartition, AskedState]) -> dict[TopicPartition, ErrorCode]:
        """An error code for each partition, whose turns the caller has. StoreError: topic ids and topic configurations
        are read from the store."""
        # A topic may have been deleted and created again while this broker had no session.
        await self._dismiss_deleted(await self._deleted_before((key, topic_id) for key, topic_id, _ in asked.values()))
        verdicts = {key: self._judge(each) for key, each in asked.items()}
        prepared = await self._prepare([asked[key] for key, each in verdicts.items() if isinstance(each, Verdict)])
        # `_take_roles` does this for the roles that are taken.
        for key in [key for key, each in verdicts.items() if each is Verdict.KEEP]:
            self._note_id(asked[key])
        errors = {key: each if isinstance(each, ErrorCode) else ErrorCode.NONE for key, each in verdicts.items()}
        errors |= {key: log for key, log in prepared.items() if isinstance(log, ErrorCode)}
        taken = [asked[key] for key, each in verdicts.items() if each is Verdict.TAKE]
        return errors | await self._take_roles(taken, prepared)

    async def stop_replica(
        self, request: m.StopReplicaRequest, stopped: list[StoppedReplica], source: Source
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """Stop hosting partitions, and delete their logs where requested. Returns as `leader_and_isr`."""
        refused = self._fence(request.controller_epoch, request.broker_epoch, source)
        if refused:
            return refused
        asked = {each[0]: each for each in stopped}
        errors = dict.fromkeys(asked, ErrorCode.NONE)

        with self.turns.of(asked) as turn:

            async def stop(key: TopicPartition) -> None:
                # This code stays if `_stop` raises: an unexpected exception is contained to its partition.
                errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
                with contained(logger, "%s cannot be stopped", key):
                    errors[key] = await self._stop(*asked[key])
                turn.give_back(key)

            async for keys in turn:
                refused = self._refuse_overtaken(request.controller_epoch, request.broker_epoch)
                if refused:
                    return refused
                await _several_at_a_time(stop, keys)

        return errors

    async def update_metadata(self, request: m.UpdateMetadataRequest, source: Source) -> ErrorCode:
        """Update the metadata cache, and stop hosting partitions that were assigned to other brokers."""
        refused = self._fence(request.controller_epoch, request.broker_epoch, source)
        if refused:
            return refused
        deleted = self._metadata.apply(request)
        # The fetchers come after `apply`: a leader that this broker waits for may be alive now.
        self._fetchers.metadata_changed()
        self._tell_deleted(deleted)
        # The controller sends no StopReplica for a replica that was reassigned while this broker had no session. A
        # leader must stop, or clients go on writing to it. The log stays on disk.
        await self._in_their_turns(self._given_away(request), self._dismiss)
        named = ((TopicPartition(name, each.partition_index), id_) for name, id_, each in partition_states(request))
        # If a new topic has taken the name of a deleted one, the request need not name all partitions of the old one.
        # So the partitions in `deleted` are compared with the id of the new topic, too.
        ids = {each.topic_name: each.topic_id for each in request.topic_states} if deleted else {}
        overtaken = ((key, ids[key.topic]) for key in deleted if key.topic in ids)
        try:
            await self._in_their_turns(await self._deleted_before(chain(named, overtaken)), self._dismiss_deleted)
        except StoreError as error:  # the next request that names the topic finds the old partition again
            logger.warning("it is not known which topics were deleted: %s", error, extra={"peer": "metadata store"})
        return ErrorCode.NONE

    async def _in_their_turns(
        self, partitions: list[Partition], end: Callable[[list[Partition]], Awaitable[None]]
    ) -> None:
        """Call `end` for these partitions, each as it is now, except those that get another role before their turn."""
        before = {each.topic_partition: (each, each.leader_epoch) for each in partitions}
        with self.turns.of(before) as turn:
            async for keys in turn:
                unchanged = [before[key] for key in keys if self._partitions.get(key) is before[key][0]]
                await end([each for each, epoch in unchanged if each.log is not None and each.leader_epoch == epoch])

    def _given_away(self, request: m.UpdateMetadataRequest) -> list[Partition]:
        """The hosted partitions whose replicas in a newer leader epoch do not include this broker."""
        return [
            partition
            for name, topic_id, state in partition_states(request)
            if self.broker_id not in state.replicas
            and (partition := self._partitions.get(TopicPartition(name, state.partition_index))) is not None
            and partition.log is not None
            and partition.leader_epoch < state.leader_epoch
            and (partition.log.topic_id or ZERO_TOPIC_ID) == topic_id
        ]

    async def _deleted_before(self, named: Iterable[tuple[TopicPartition, bytes]]) -> list[Partition]:
        """The hosted partitions whose topic was deleted without a StopReplica: the controller names a new topic."""
        others = {
            partition: topic_id
            for key, topic_id in named
            if (partition := self._partitions.get(key)) is not None
            and partition.log is not None
            and roles.is_of_another(partition.log, topic_id)
        }
        if not others:
            return []
        # A deposed controller may send the id of a topic that no longer exists, so the store decides which id is valid.
        existing = await self._existing_ids({each.topic_partition.topic: None for each in others})
        return [each for each, topic_id in others.items() if existing.get(each.topic_partition.topic) == topic_id]

    async def _dismiss_deleted(self, partitions: list[Partition]) -> None:
        await self._dismiss(partitions)
        for partition in partitions:
            self._forget_coordinated(partition.topic_partition)

    async def _dismiss(self, partitions: list[Partition]) -> None:
        """Stop hosting these partitions, whose turns the caller has. Their logs stay on disk."""
        keys = [each.topic_partition for each in partitions]
        await self._leave(keys)
        for partition in partitions:
            logger.info("%s is not on this broker any more", partition.topic_partition)
            if partition.log is not None and partition.log.topic_id is not None:
                self._names.pop(partition.log.topic_id, None)
            self._resign(partition)
            self._unhost(partition)

    async def forget_topics(self, topics: Iterable["TopicInfo"], hosted: Mapping[Partition, PartitionLog]) -> None:
        """Remove topics that were deleted while this broker had no session: no request reports them."""
        self._tell_deleted(self._metadata.forget(topics))
        # A partition that has another log by now belongs to a new topic and stays.
        await self._in_their_turns([each for each, log in hosted.items() if each.log is log], self._dismiss_deleted)

    def _tell_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        for coordinator in self.coordinators.values() if deleted else ():
            coordinator.on_partitions_deleted(deleted)

    # -- places

    async def place(self, key: TopicPartition, directory: "LogDirectory") -> ErrorCode:
        """AlterReplicaLogDirs: move a replica to this log directory, or remember the directory for its creation.

        Errors: KAFKA_STORAGE_ERROR. For a replica that is not hosted the request is remembered and the error of `get`
        is returned, as in Kafka.
        """
        async with self.turns.alone(key):
            partition = self.get(*key)
            if partition == ErrorCode.KAFKA_STORAGE_ERROR:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if not isinstance(partition, ErrorCode):
                refused = await self._moves.stop_unless_to(key, directory)
                if refused:
                    return refused
            log = self.logs.get(key)
            # There is nothing to move yet: LeaderAndIsr will create the log in this directory.
            if log is None:
                self.logs.placement.request(key, directory)
            if isinstance(partition, ErrorCode) or log is None:
                return partition if isinstance(partition, ErrorCode) else ErrorCode.NONE
            return await self._moves.move(partition, log, directory)

    # -- failures, flushes, configuration

    def directory_failed(self, directory: str, error: StorageError) -> None:
        """A log directory went offline: end the roles of its partitions. `LogDirectories` has logged the reason."""
        lost = [each for each in self if each.log is not None and each.log.directory.startswith(directory + "/")]
        # An exception affects one partition only: the others must not remain leaders without a log.
        for partition in lost:
            with contained(logger, "%s cannot be given up", partition.topic_partition):
                self._resign(partition)
        self._moves.directory_failed(directory)
        logger.error("%d partitions are offline with %s: %s", len(lost), directory, error)

    def file_failed(self, error: StorageError) -> None:
        """A file could not be read while it was being sent: fail the directory of its log."""
        for partition in self:
            if partition.log is not None and partition.log.directory == parent_of(error.path):
                partition.fail_storage(error)

    def flushed(self, log: PartitionLog) -> None:
        """A flush of this log ended: its partition may acknowledge records that waited for the flush."""
        partition = self._partitions.get(log.topic_partition)
        # A move to another directory may have replaced the log while the flush ran.
        if partition is not None and partition.log is log:
            with contained(logger, "%s does not go on after a flush", log):
                partition.look_again()

    async def reconfigured(self, topic: str | None) -> None:
        """The configuration of a topic changed, or the broker's (None)."""
        async for partition in paced(self):
            if topic in (None, partition.topic_partition.topic):
                partition.look_again()
        if topic is None:
            self._fetchers.reconfigured()

    # -- the parts of LeaderAndIsr

    def _fence(self, controller_epoch: int, broker_epoch: int, source: Source) -> ErrorCode:
        """Refuse requests of a deposed controller, requests for an earlier session of this broker (KIP-380), and those
        that were overtaken."""
        refused = self._refuse_overtaken(controller_epoch, broker_epoch)
        if refused:
            return refused
        # A controller that gets no response repeats the request on a new connection, and continues when the repetition
        # is answered. If the first request arrives after that, it must not replace newer metadata.
        if self._controllers.is_overtaken(*source):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._controllers.note(*source)
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _refuse_overtaken(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """The part of `_fence` that is asked again after each wait for a turn: a newer controller may have asked, or
        this broker may have registered again."""
        # Request versions from before KIP-380 carry no broker epoch: -1.
        if broker_epoch != -1 and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.STALE_CONTROLLER_EPOCH if controller_epoch < self.controller_epoch else ErrorCode.NONE

    def _judge(self, asked: AskedState) -> Verdict | ErrorCode:
        partition = self._partitions.get(asked[0])
        log = self.logs.get(asked[0])
        return roles.judge(partition, log, asked, self.broker_id, is_any_offline=bool(self.logs.offline_directories))

    async def _leave(self, keys: Collection[TopicPartition]) -> None:
        """Stop the fetching of these partitions and their moves between directories. Returns when both have stopped."""
        await self._fetchers.leave(keys)
        await self._moves.leave(keys)

    async def _prepare(self, wanted: list[AskedState]) -> dict[TopicPartition, PartitionLog | ErrorCode]:
        """The first half: the logs of these partitions, created where missing. KAFKA_STORAGE_ERROR where that fails."""
        # A log needs its topic's configuration when it is created. Known partitions cost no read of the store.
        topics = {
            key.topic: None
            for key, topic_id, _ in wanted
            if (log := self.logs.get(key)) is None or roles.is_of_another(log, topic_id)
        }
        configs = await self._topic_configs.load(topics)
        prepared: dict[TopicPartition, PartitionLog | ErrorCode] = {}

        # A log that cannot be created is the error of its own partition only.
        async def prepare(each: AskedState) -> None:
            prepared[each[0]] = ErrorCode.KAFKA_STORAGE_ERROR
            with contained(logger, "the log of %s cannot be made", each[0]):
                try:
                    prepared[each[0]] = await self._prepare_log(each, configs)
                except StorageError as error:
                    prepared[each[0]] = self._refuse(error)

        await _several_at_a_time(prepare, wanted)
        return prepared

    async def _prepare_log(self, asked: AskedState, configs: "Mapping[str, TopicConfig]") -> PartitionLog:
        key, topic_id, state = asked
        log = self.logs.get(key)
        # The log belongs to a deleted topic of the same name. Kafka refuses the new topic until an administrator
        # removes the directory; this broker renames the old log and deletes it later.
        if log is not None and roles.is_of_another(log, topic_id):
            await self.logs.futures.delete(key)
            await self.logs.put_aside(log)
            log = None
        if log is None:
            return await self.logs.create(key, topic_id, configs[key.topic], is_new=state.is_new)
        # The topic is older than topic ids, and an upgraded controller has given it an id (KIP-516).
        if topic_id != ZERO_TOPIC_ID and log.topic_id is None:
            await self.logs.assign_topic_id(log, topic_id)
        return log

    async def _take_roles(
        self, taken: list[AskedState], prepared: "Mapping[TopicPartition, PartitionLog | ErrorCode]"
    ) -> dict[TopicPartition, ErrorCode]:
        """The second half: take these roles one after the other. An error affects its own partition only."""
        errors = {}
        # Fetchers stop before the roles change: a fetcher of the old role must not append to the new role's log.
        await self._leave([key for key, _, _ in taken])
        # Leaders come first, because clients wait for them.
        taken.sort(key=lambda asked: asked[2].leader != self.broker_id)
        for number, (key, topic_id, state) in enumerate(taken, 1):
            errors[key] = self._try_role(key, state, prepared.get(key))
            self._note_id((key, topic_id, state))
            if number % ROLES_A_SLICE == 0:
                await trio.lowlevel.checkpoint()
        return errors

    def _note_id(self, asked: AskedState) -> None:
        """Remember whether a Fetch to the leader may use the topic id."""
        # A controller older than 2.8 sends no ids, so the leader may know none. This replica's log may have an id from
        # a newer controller, but Fetch must use the name, as in Kafka.
        key, topic_id, _ = asked
        if key in self._partitions:
            self._partitions[key].fetched_by_id = topic_id != ZERO_TOPIC_ID

    def _try_role(
        self, key: TopicPartition, state: "PartitionState", log: PartitionLog | ErrorCode | None
    ) -> ErrorCode:
        """Take a role. After an unexpected exception the replica has no role until the next LeaderAndIsr."""
        with contained(logger, "%s cannot take its role", key):
            return self._take_role(key, state, log)
        # KAFKA_STORAGE_ERROR makes the controller treat the replica as offline and elect another leader, so this
        # replica must not keep half of a role.
        with contained(logger, "%s cannot give up the role that it took half", key):
            self._resign(self._partitions[key])
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _take_role(
        self, key: TopicPartition, state: "PartitionState", log: PartitionLog | ErrorCode | None
    ) -> ErrorCode:
        """Take one role, in one synchronous step."""
        partition = self._partitions.get(key)

        # The partition is hosted even without a log, so that clients get KAFKA_STORAGE_ERROR.
        if partition is None:
            partition = self._host(key)

        # Since the first half the directory may have failed, or a move may have exchanged the log for its copy in
        # another directory.
        if isinstance(log, PartitionLog):
            log = self.logs.get(key)
        if not isinstance(log, PartitionLog):
            return ErrorCode.KAFKA_STORAGE_ERROR
        led = partition.is_leader
        partition.become(log, roles.role_of(state))
        if log.topic_id is not None:
            self._names[log.topic_id] = key.topic

        # The calls below come after `become`, because they use the partition's new leader epoch.
        if not partition.is_leader:
            self._fetchers.follow(partition)
        self._moves.begin(partition)
        self._tell_coordinator(partition, led)
        return ErrorCode.NONE

    def _host(self, key: TopicPartition) -> Partition:
        """Add a partition that is new to this broker, with its checkpointed high watermark."""
        partition = self._partitions[key] = Partition(
            key,
            self._topic_configs.get(key.topic),
            self.broker_id,
            self._now_ms,
            self._flusher,
            self._storage_failed,
            self._watch,
            self.tallies.setdefault(key.topic, TopicTally()),
        )
        partition.tally.partitions += 1
        partition.high_watermark = self.logs.checkpoints.loaded_high_watermark(key)
        return partition

    def _unhost(self, partition: Partition) -> None:
        """Remove a partition that is hosted."""
        del self._partitions[partition.topic_partition]
        partition.tally.partitions -= 1

    def _tell_coordinator(self, partition: Partition, led: bool) -> None:
        coordinator = self.coordinators.get(partition.topic_partition.topic)
        if coordinator is None:
            return
        if partition.is_leader:
            coordinator.on_elected(partition)
        # Only a former leader has coordinator state to unload.
        elif led:
            coordinator.on_resigned(partition.topic_partition.partition, partition.leader_epoch)

    # -- the parts of StopReplica

    async def _stop(self, key: TopicPartition, leader_epoch: int, delete: bool) -> ErrorCode:
        partition = self._partitions.get(key)

        # An offline log cannot be deleted. The partition stays, so clients still get this error. If all directories are
        # online, the log was never created for a lack of descriptors or memory, and there is nothing to delete.
        if partition is not None and partition.log is None and self.logs.offline_directories:
            return ErrorCode.KAFKA_STORAGE_ERROR

        # Negative epochs are not compared: -1 in versions without a leader epoch, -2 for a topic's deletion.
        if partition is not None and 0 <= leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        await self._leave([key])

        # The log is looked up only now, because the directory may have failed during the await.
        log = self.logs.get(key)

        # A follower that stops without deletion stays in the table: its leader epoch fences delayed requests. A leader
        # is removed, or clients would go on using it.
        if partition is not None and (delete or partition.is_leader):
            self._resign(partition)
            self._unhost(partition)
        if delete and log is not None and log.topic_id is not None:
            self._names.pop(log.topic_id, None)
        if delete:
            try:
                await self.logs.futures.delete(key)
                await self.logs.delete(key)
            except StorageError as error:
                return self._refuse(error)
            self._forget_coordinated(key)

        return ErrorCode.NONE

    def _forget_coordinated(self, deleted: TopicPartition) -> None:
        coordinator = self.coordinators.get(deleted.topic)
        if coordinator is not None:
            coordinator.on_deleted(deleted.partition)

    def _resign(self, partition: Partition) -> None:
        led = partition.is_leader
        epoch = partition.leader_epoch
        # A running truncation is not waited for: callers that go on using the log have called
        # `_leave` before, and the log of a failed directory is not used any more.
        self._fetchers.forget(partition.topic_partition)
        self._moves.forget(partition.topic_partition)
        partition.resign()
        coordinator = self.coordinators.get(partition.topic_partition.topic)
        if led and coordinator is not None:
            coordinator.on_resigned(partition.topic_partition.partition, epoch)

    def _refuse(self, error: StorageError) -> ErrorCode:
        """The response to a request for which the storage failed."""
        # While a directory is offline, no log is created that may already lie in it, so a repetition would be refused.
        if error.is_shortage and not self.logs.offline_directories:
            self.lacked.set()
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _storage_failed(self, partition: Partition, error: StorageError) -> None:
        if partition.log is not None:
            self.logs.fail_directory_of(partition.log, error)


async def _several_at_a_time(work: Callable[[Item], Awaitable[None]], items: Iterable[Item]) -> None:
    """Run `work` for every item, THREADS_AT_A_TIME at once."""
    # All workers share the iterator, so each item is taken by one worker.
    todo = iter(list(items))

    async def work_off() -> None:
        # `paced` gives way between items, because `work` returns without an await for many of them.
        async for item in paced(todo):
            await work(item)

    async with trio.open_nursery() as nursery:
        for _ in range(THREADS_AT_A_TIME):
            nursery.start_soon(work_off)
