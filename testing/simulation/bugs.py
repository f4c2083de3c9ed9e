"""Planted bugs, which show that the checks find bugs.

Each is a bug that a broker of this kind could have. It replaces a part of the production code, by name, for one run
(`planted`); the code itself has no hooks for it. If the name does not exist any more, planting fails, so that a change
of the code cannot make a bug harmless without notice.

    early_ack          acknowledge before the in-sync replicas have the record
    high_watermark_cut truncate to the high watermark only (before KIP-101)
    epoch_blind        ignore leader epochs on fetch
    forgotten_member   leave a member of the ISR out of the high watermark
    stale_producers    do not rebuild the producer state after a truncation
    stale_controller   let a replaced controller write
    undead_log         use the data of a deleted topic
    early_duplicate    answer a duplicate before its original is committed
    half_cut           continue with a log whose truncation failed
    topic_by_name      use the log of a deleted topic for a new topic of the same name
    duplicate_by_numbers
                       recognise the retry of a batch that the producer state does not have any more by its sequence
                       numbers, whatever its content
    empty_log          create an empty log in the place of one that was lost with its directory
    early_clean_marker treat every end of a broker as a clean stop
    forgotten_directory_sync
                       sync files, but not their directory entries
    distrusted_all     as a new controller, trust only one member of each ISR
    trusted_all        as a new controller, also trust brokers whose machine has lost records
    false_boot_mark    register as a broker that has lost nothing, also after a crash of the machine
    lonely_ack         acknowledge with fewer in-sync replicas than min.insync.replicas
    hasty_watermark    do not wait for a replica that the controller was asked to add to the ISR
    unchecked_recovery trust the lengths of batches in a recovery, whatever their content
    skipped_batch      leave out the first of several batches of a response
    gappy_follower     append a response of several batches without the first
    nervous_cut        give a log directory up after a truncation

Those of transactions are in `transaction_bugs.py`, those of logins and ACLs in `secured_bugs.py`, those
that a hostile client shows in `hostile_bugs.py`. Those in `log_bugs.py`, `offset_bugs.py` and `marker_bugs.py` are
caught by stories (`tests/testing/test_stories_moves.py` and its like), not by seeds.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import trio

from barnabas.broker.cluster import boot_mark
from barnabas.broker.fetching import plan
from barnabas.broker.handlers import produce
from barnabas.controller import candidate, context
from barnabas.controller.decide import leaders
from barnabas.controller.store import paths
from barnabas.controller.store.store import ANY_VERSION, Check, SessionExpired, StoreError
from barnabas.replication import fetcher, followed_partition, follower_state, partition, replicas, roles
from barnabas.replication.isr import decide_high_watermark
from barnabas.replication.logs import directory, partition_logs
from barnabas.replication.logs.directories import LogDirectories
from barnabas.replication.logs.truncation import Truncation
from barnabas.storage import log as storage_log
from barnabas.storage import recovery
from barnabas.storage.disk import FileSlice, StorageError, join
from barnabas.storage.entries import walk_buffer
from barnabas.storage.flush_plan import FlushPlan
from barnabas.storage.log import Appended
from barnabas.storage.producers import Duplicate
from barnabas.testing.simulation.hostile_bugs import HOSTILE_BUGS
from barnabas.testing.simulation.secured_bugs import SECURED_BUGS
from barnabas.testing.simulation.transaction_bugs import TRANSACTION_BUGS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import read_batch_header
from barnabas.wire.sentinels import ACKS_ALL

if TYPE_CHECKING:
    from barnabas.controller.candidate import Candidate
    from barnabas.controller.context import ControllerDeps, Term
    from barnabas.controller.events import Event
    from barnabas.controller.image.state import ClusterImage
    from barnabas.controller.store.store import MetadataStore
    from barnabas.replication.fetch_sessions import Wanted
    from barnabas.replication.isr import Follower
    from barnabas.replication.logs.directory import Prepared, StoredIdentity
    from barnabas.replication.logs.partition_logs import Logs
    from barnabas.replication.partition import Partition
    from barnabas.storage.disk import Disk
    from barnabas.storage.epochs import LeaderEpochs
    from barnabas.storage.log import PartitionLog
    from barnabas.storage.producers import Origin
    from barnabas.wire.records import Batch, BatchHeader, Steps
    from barnabas.wire.topics import TopicPartition

Replacement = tuple[object, str, object]  # whose attribute, its name, what to put there


def _early_ack() -> list[Replacement]:
    right = partition.Partition.outcome

    def outcome(self: "Partition", end_offset: int, leader_epoch: int, required_acks: int) -> ErrorCode | None:
        """acks=all is answered as acks=1 is."""
        return right(self, end_offset, leader_epoch, 1)

    return [(partition.Partition, "outcome", outcome)]


def _high_watermark_cut() -> list[Replacement]:
    def decide_cut(_: object, __: "LeaderEpochs", log_end_offset: int, high_watermark: int) -> "follower_state.Cut":
        """What is above our high watermark is not committed, is it?"""
        return follower_state.Cut(min(high_watermark, log_end_offset), True)

    right = followed_partition.Followed.__init__

    def truncating(self: "followed_partition.Followed", replica: "Partition", *, is_truncating: bool) -> None:
        """Every new follower cuts its log before it fetches."""
        right(self, replica, is_truncating=True)

    return [(fetcher, "decide_cut", decide_cut), (followed_partition.Followed, "__init__", truncating)]


def _epoch_blind() -> list[Replacement]:
    def check_leader_epoch(self: "Partition", current_leader_epoch: int) -> ErrorCode:
        """Any epoch will do."""
        return ErrorCode.NONE

    def diverges(*_: object) -> bool:
        """No log differs from ours."""
        return False

    return [
        (partition.Partition, "check_leader_epoch", check_leader_epoch),
        (plan.FetchPlan, "_diverges", diverges),
    ]


def _forgotten_member() -> list[Replacement]:
    def decide(
        current: int,
        acknowledgeable_offset: int,
        followers: "Iterable[Follower]",
        is_awaited: "Callable[[Follower], bool]",
    ) -> int:
        """The slowest follower is not waited for."""
        rising = sorted(followers, key=lambda follower: follower.log_end_offset)
        return decide_high_watermark(current, acknowledgeable_offset, rising[1:], is_awaited)

    return [(partition, "decide_high_watermark", decide)]


def _stale_producers() -> list[Replacement]:
    def load_producers(*_: object) -> None:
        """What the producers wrote last is known already."""

    return [(storage_log, "load_producers", load_producers)]


class _Stubborn:
    """A store whose user never hears that a session is over: it is asked again, in the next session."""

    def __init__(self, store: "MetadataStore") -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        ask: Callable[..., Awaitable[object]] = getattr(self._store, name)

        async def insist(*args: object, **kwargs: object) -> object:
            while True:
                try:
                    return await ask(*args, **kwargs)
                except SessionExpired:
                    await trio.sleep(0.1)

        return insist


def _stale_controller() -> list[Replacement]:
    right = context.ControllerContext.__init__

    def begin(
        self: "context.ControllerContext", deps: "ControllerDeps", term: "Term", put: "Callable[[Event], None]"
    ) -> None:
        """A term outlasts its session."""
        right(self, deps, term, put)
        self.store = _Stubborn(self.store)  # type: ignore[assignment]  # it does what a store does

    def check(path: str, version: int) -> Check:
        """Any controller may write."""
        return Check(path, ANY_VERSION if path == paths.CONTROLLER_EPOCH else version)

    def on_expired(self: "Candidate") -> None:
        """The session is over; what of it?"""
        self._session_is_over = True
        self._node_changed.set()

    async def watch_node(self: "Candidate", term: "Term") -> None:
        """Stay the controller, in another session if need be."""
        while True:
            self._node_changed = trio.Event()
            try:
                if self._session_is_over:
                    await self._begin_session()
            except StoreError:
                self._term_scope.cancel()
            await self._node_changed.wait()

    return [
        (context, "Check", check),
        (context.ControllerContext, "__init__", begin),
        (candidate.Candidate, "_on_expired", on_expired),
        (candidate.Candidate, "_watch_node", watch_node),
    ]


def _undead_log() -> list[Replacement]:
    async def delete(self: "Logs", key: "TopicPartition") -> None:
        """Forget the log, and leave its directory for the next topic of that name."""
        log = self.get(key)
        if log is None:
            return
        directory = self.directory_of(log)
        with trio.CancelScope(shield=True):
            del directory.logs[key]
            self.gate.deleted(log)
            await self.gate.earlier_ended(key)
            await self._world.in_thread(log.close, self._world.now_ms())

    return [(partition_logs.Logs, "delete", delete)]


def _early_duplicate() -> list[Replacement]:
    right = partition.Partition.append_as_leader

    def append(
        self: "Partition", batch: "Batch", origin: "Origin", required_acks: int = ACKS_ALL, **how: object
    ) -> Appended | ErrorCode:
        """What is in the log already needs no waiting for."""
        appended = right(self, batch, origin, required_acks, **how)  # type: ignore[arg-type]  # as they came
        if isinstance(appended, Appended) and appended.duplicate:
            appended.last_offset = -1
        return appended

    return [(partition.Partition, "append_as_leader", append)]


def _empty_log() -> list[Replacement]:
    judge = replicas.Replicas._judge

    def refuse_if_offline(self: LogDirectories, key: "TopicPartition", operation: str) -> None:
        """What is not in a directory that works is nowhere."""

    def take(self: replicas.Replicas, asked: "roles.AskedState") -> "roles.Verdict | ErrorCode":
        """A replica without a log has no role, so any is taken."""
        hosted = self._partitions.get(asked[0])
        without_log = hosted is not None and hosted.log is None and self.broker_id in asked[2].replicas
        return roles.Verdict.TAKE if without_log else judge(self, asked)

    return [(LogDirectories, "refuse_if_offline", refuse_if_offline), (replicas.Replicas, "_judge", take)]


def _early_clean_marker() -> list[Replacement]:
    right = directory.prepare

    def prepare(disk: "Disk", path: str, identity: "StoredIdentity | None") -> "Prepared":
        """The marker of a clean stop is there, however the broker ended."""
        return right(disk, path, identity)._replace(clean=True)

    return [(partition_logs, "prepare", prepare)]


def _forgotten_directory_sync() -> list[Replacement]:
    right = FlushPlan.sync

    def sync(self: FlushPlan) -> None:
        """Sync the files, but not the directory that has their names."""
        names = self.names_version
        self.names_version = None
        right(self)
        self.names_version = names

    return [(FlushPlan, "sync", sync)]


def _distrusted_all() -> list[Replacement]:
    def bounced_members(image: "ClusterImage", key: "TopicPartition", written_zxid: int) -> dict[int, None]:
        """After a change of the controller only one is believed, the last of the ISR."""
        leadership = image.partition(key).leadership
        return {} if leadership is None else dict.fromkeys(leadership.state.isr[:-1])

    return [(leaders, "bounced_members", bounced_members)]


def _trusted_all() -> list[Replacement]:
    def bounced_members(*_: object) -> dict[int, None]:
        """Who is registered has what it had."""
        return {}

    def leader_bounced(*_: object) -> bool:
        """So has the leader."""
        return False

    return [(leaders, "bounced_members", bounced_members), (leaders, "leader_bounced", leader_bounced)]


def _duplicate_by_numbers() -> list[Replacement]:
    def find_batch(log: "PartitionLog", wanted: "Batch") -> "Steps[Duplicate | None]":
        """A batch is known by its producer and its sequence numbers."""
        numbers = _numbers_of(wanted.header)

        def look() -> "Steps[Duplicate | None]":
            for segment in log.segments:
                with segment.store.private(segment.path) as file:
                    data = memoryview(file.read(0, segment.size_bytes))
                for _, batch in walk_buffer(data):
                    header = read_batch_header(batch)
                    if _numbers_of(header) == numbers:
                        return Duplicate(header.base_offset, header.last_offset, header.max_timestamp)
                yield None
            return None

        return log.segments.undisturbed(look)

    return [(produce, "find_batch", find_batch)]


def _half_cut() -> list[Replacement]:
    async def carry_out(
        self: Truncation, log: "PartitionLog", cut: "Callable[[int], object]", offset: int, on_cut: "Callable[[], None]"
    ) -> None:
        """What cannot be cut may stay."""
        with suppress(StorageError):
            await self._world.in_thread(cut, offset)
        on_cut()

    return [(Truncation, "_carry_out", carry_out)]


def _topic_by_name() -> list[Replacement]:
    def is_of_another(*_: object) -> bool:
        """A topic is known by its name."""
        return False

    return [(roles, "is_of_another", is_of_another)]


def _false_boot_mark() -> list[Replacement]:
    def read_mark(disk: "Disk", directory: str, _: str | None) -> "boot_mark.BootMark | boot_mark.Mark":
        """A boot mark holds whatever the boot id is."""
        path = join(directory, boot_mark.BOOT_MARK)
        mark = boot_mark.BootMark.decode(disk.read_file(path)) if disk.exists(path) else None
        return boot_mark.Mark.VOID if mark is None else mark

    return [(boot_mark, "read_mark", read_mark)]


def _lonely_ack() -> list[Replacement]:
    def lacks_replicas(*_: object) -> bool:
        """The leader has it."""
        return False

    return [(partition.Partition, "_lacks_replicas", lacks_replicas)]


def _hasty_watermark() -> list[Replacement]:
    def is_awaited(self: "Partition", follower: "Follower") -> bool:
        """Who is to become a member is none."""
        return self.is_in_sync(follower)

    return [(partition.Partition, "_is_awaited", is_awaited)]


def _unchecked_recovery() -> list[Replacement]:
    def is_intact(_: object) -> bool:
        """It has the length that it says."""
        return True

    return [(recovery, "is_intact", is_intact)]


def _skipped_batch() -> list[Replacement]:
    right = plan.FetchPlan._add_records

    def add_records(
        self: plan.FetchPlan, log: "PartitionLog", wanted: "Wanted", row: plan.Row, piece: FileSlice
    ) -> bool:
        """A reader of uncommitted records does not get the first of several batches."""
        first_bytes = read_batch_header(piece.read()).size_bytes
        if self.replica_id >= 0 or self.read_committed or first_bytes >= piece.size_bytes:
            return right(self, log, wanted, row, piece)
        rest = FileSlice(piece.file, piece.position + first_bytes, piece.size_bytes - first_bytes)
        piece.release()
        return right(self, log, wanted, row, rest)

    return [(plan.FetchPlan, "_add_records", add_records)]


def _gappy_follower() -> list[Replacement]:
    right = fetcher.Fetcher._append_piece

    def append_piece(self: fetcher.Fetcher, followed: "followed_partition.Followed", piece: memoryview) -> bool:
        """The first of several batches was there already."""
        first_bytes = read_batch_header(piece).size_bytes
        return right(self, followed, piece[first_bytes:] if first_bytes < len(piece) else piece)

    return [(fetcher.Fetcher, "_append_piece", append_piece)]


def _nervous_cut() -> list[Replacement]:
    right = partition.Partition.truncated

    def truncated(self: "Partition") -> None:
        """A directory with a log that had to be cut is not to be trusted."""
        right(self)
        if self.log is not None:
            self.fail_storage(StorageError(self.log.directory, "truncate", "EIO"))

    return [(partition.Partition, "truncated", truncated)]


def _numbers_of(header: "BatchHeader") -> tuple[int, int, int, int]:
    return header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence


BUGS: dict[str, Callable[[], list[Replacement]]] = {
    "early_ack": _early_ack,
    "high_watermark_cut": _high_watermark_cut,
    "epoch_blind": _epoch_blind,
    "forgotten_member": _forgotten_member,
    "stale_producers": _stale_producers,
    "stale_controller": _stale_controller,
    "undead_log": _undead_log,
    "early_duplicate": _early_duplicate,
    "empty_log": _empty_log,
    "early_clean_marker": _early_clean_marker,
    "forgotten_directory_sync": _forgotten_directory_sync,
    "distrusted_all": _distrusted_all,
    "trusted_all": _trusted_all,
    "false_boot_mark": _false_boot_mark,
    "half_cut": _half_cut,
    "topic_by_name": _topic_by_name,
    "duplicate_by_numbers": _duplicate_by_numbers,
    "lonely_ack": _lonely_ack,
    "hasty_watermark": _hasty_watermark,
    "unchecked_recovery": _unchecked_recovery,
    "skipped_batch": _skipped_batch,
    "gappy_follower": _gappy_follower,
    "nervous_cut": _nervous_cut,
    **TRANSACTION_BUGS,
    **SECURED_BUGS,
    **HOSTILE_BUGS,
}

# Bug -> the kind of the histories that show it, if no common kind does.
KIND_OF: dict[str, str] = {
    **dict.fromkeys(TRANSACTION_BUGS, "transactions"),
    **dict.fromkeys(SECURED_BUGS, "secured"),
    **dict.fromkeys(HOSTILE_BUGS, "hostile"),
    "outdated_offsets": "stranded",
    "empty_log": "directories",
    "distrusted_all": "crowds",
    "trusted_all": "moments",
    "false_boot_mark": "moments",
    "half_cut": "moments",
    "topic_by_name": "twice",
    "duplicate_by_numbers": "twice",
}


@contextmanager
def planted(names: Sequence[str], bugs: Mapping[str, Callable[[], list[Replacement]]] = BUGS) -> Iterator[None]:
    """Plant these bugs, and take them out at the end."""
    with ExitStack() as stack:
        for name in names:
            for owner, attribute, wrong in bugs[name]():
                right = getattr(owner, attribute)
                stack.callback(setattr, owner, attribute, right)
                setattr(owner, attribute, wrong)
        yield
