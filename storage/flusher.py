"""Group commit: callers that want a flush at about the same time share one sync.

A log directory is one device, which executes one sync after the other. So each directory has at most one running round
of syncs and one filling round. A request during a running round joins the filling one, because the running round may
have begun before the caller's bytes were written. So a caller waits for at most two rounds, however many callers there
are, and a round syncs each of its logs once:

    want(a) want(b)   |  round 1: a, b running   |  round 2: a, c, d running  |
                         want(a) want(c) want(d)

For each log of a round the event loop makes a plan (`flush_plan`: which files, up to which offset), a worker thread
syncs it, and the event loop notes the result (`flushed`).

A failed sync is final for its directory: the failure is reported, and nothing in that directory is flushed any more.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from barnabas.storage.disk import SHORTAGE_PAUSE_SECONDS, InThread, StorageError, parent_of

if TYPE_CHECKING:
    from barnabas.storage.flush_plan import FlushPlan
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition


@dataclass(eq=False, slots=True)
class _Round:
    """Logs that are synced together; `done` is set when the round has ended, successfully or not."""

    logs: "dict[PartitionLog, None]" = field(default_factory=dict)  # an ordered set
    dropped: "dict[TopicPartition, None]" = field(default_factory=dict)  # were in `logs`; a thread may still sync them
    done: trio.Event = field(default_factory=trio.Event)


@dataclass(eq=False, slots=True)
class _Directory:
    """The rounds of one log directory: `running` is under way, `filling` comes next."""

    filling: _Round = field(default_factory=_Round)
    running: _Round | None = None
    has_task: bool = False
    failure: StorageError | None = None


class Flusher:
    """Flushes logs in rounds, one round at a time per log directory."""

    def __init__(self, in_thread: InThread) -> None:
        self.on_synced: Callable[[float], None] | None = None  # gets the seconds that a round of syncs took
        self._in_thread = in_thread
        self._directories: dict[str, _Directory] = {}  # never removed: there are as many as log.dirs has entries
        self._held: dict[PartitionLog, trio.Event] = {}  # set by `release`
        self._wake = trio.Event()

    def want(self, log: "PartitionLog") -> None:
        """Flush this log in the next round, then call `on_flushed`. Does nothing if its log directory has failed."""
        directory = self._directory_of(log)
        if directory.failure is None:
            self._join(directory, log)

    async def flush(self, logs: "Iterable[PartitionLog]") -> None:
        """Return when everything that these logs hold now is durable; StorageError if a log directory failed.

        Returns only while a task is inside `run`.
        """
        rounds: dict[_Round, _Directory] = {}
        for log in logs:
            # A held log makes no plan, so a round with it would end without a sync. `while`: it may be held again.
            while (held := self._held.get(log)) is not None:
                await held.wait()
            directory = self._directory_of(log)
            if directory.failure is not None:
                raise directory.failure
            rounds[self._join(directory, log)] = directory
        # All logs have joined their rounds by now, so the directories sync at the same time.
        for joined in rounds:
            await joined.done.wait()
        # `done` is set after a failure as well.
        for directory in rounds.values():
            if directory.failure is not None:
                raise directory.failure

    async def forget(self, log: "PartitionLog") -> None:
        """Stop flushing a log that is truncated; returns when no sync of it is under way."""
        self.drop(log)
        await self.dropped_ended(log.topic_partition)

    def drop(self, log: "PartitionLog") -> None:
        """Stop flushing a log that is deleted. A sync of it that is under way ends by itself, without effect."""
        directory = self._directory_of(log)
        directory.filling.logs.pop(log, None)
        # An empty round never runs, so callers that wait for it would wait for ever.
        if not directory.filling.logs:
            self._empty_filling(directory)
        if directory.running is not None and log in directory.running.logs:
            # The round sees that the log is missing, and releases its plan without moving the recovery point.
            del directory.running.logs[log]
            directory.running.dropped[log.topic_partition] = None

    async def dropped_ended(self, key: "TopicPartition") -> None:
        """Return when no sync of a dropped log of this partition is under way: it would write files by their names."""
        for directory in list(self._directories.values()):
            if directory.running is not None and key in directory.running.dropped:
                await directory.running.done.wait()

    async def hold(self, log: "PartitionLog") -> None:
        """Return when no sync of this log is under way; none begins before `release`, and `flush` of it waits."""
        log.is_being_renamed = True  # `flush_plan` then returns None, also if the log is already in the filling round
        # Holds may overlap, and `flush` may wait for the event of an earlier one, so that event is kept.
        self._held.setdefault(log, trio.Event())
        running = self._directory_of(log).running
        if running is not None and log in running.logs:
            await running.done.wait()

    def release(self, log: "PartitionLog", *, is_gone: bool = False) -> None:
        """End `hold`, if the log is held. A log that `is_gone` is never flushed again."""
        log.is_being_renamed = is_gone
        held = self._held.pop(log, None)
        if held is not None:
            held.set()
        # A round in between got no plan from the log, so its demand has to be repeated.
        if log.flush_demanded and not is_gone:
            self.want(log)

    def give_up(self, directory_path: str, error: StorageError) -> None:
        """Flush nothing more in a log directory that failed in another operation."""
        directory = self._directories.setdefault(directory_path, _Directory())
        # The first error stays: it is the cause of those that follow.
        if directory.failure is None:
            directory.failure = error
            self._empty_filling(directory)

    async def run(
        self,
        on_flushed: "Callable[[PartitionLog], None]",
        on_failed: "Callable[[PartitionLog, StorageError], None]",
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Flush until cancelled. Calls `on_flushed` for each flushed log, and `on_failed` for each failed sync."""
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                await self._wake.wait()
                # The event is replaced before the directories are looked at: a log that joins from
                # now on wakes the task again.
                self._wake = trio.Event()
                # A directory with a task is skipped: `_run_rounds` takes the filling round itself before it ends.
                for directory in self._directories.values():
                    if directory.filling.logs and not directory.has_task:
                        directory.has_task = True
                        nursery.start_soon(self._run_rounds, directory)

    def _directory_of(self, log: "PartitionLog") -> _Directory:
        return self._directories.setdefault(parent_of(log.directory), _Directory())

    def _join(self, directory: _Directory, log: "PartitionLog") -> _Round:
        directory.filling.logs[log] = None
        self._wake.set()
        return directory.filling

    async def _run_rounds(self, directory: _Directory) -> None:
        try:
            while directory.filling.logs:
                current = directory.running = directory.filling
                directory.filling = _Round()  # before the plans are made: a later request needs a later sync
                try:
                    await self._flush_round(directory, current)
                finally:
                    # The event is set even after an error or a cancellation: `flush` and `forget`
                    # in other tasks wait for it.
                    directory.running = None
                    current.done.set()
        finally:
            directory.has_task = False

    async def _flush_round(self, directory: _Directory, current: _Round) -> None:
        planned: list[tuple[PartitionLog, FlushPlan]] = []
        failed = _plan(current, planned)

        # One thread serves the whole round: the device would execute parallel syncs one after the
        # other anyway.
        if planned and failed is None:
            began = trio.current_time()
            try:
                failed = await self._in_thread(_sync, planned)
                if self.on_synced is not None:
                    self.on_synced(trio.current_time() - began)
            # The broker ends, perhaps before the thread has begun; the plans have to be released in any case.
            except trio.Cancelled:
                for _, plan in planned:
                    plan.release()
                raise

        if failed is not None and _is_passing(current, *failed):
            await self._begin_again(directory, current, planned, failed[1])
            return
        if failed is not None:
            self._fail(directory, *failed)

        # During the sync the directory may have failed elsewhere, and `forget` may have removed a log from the round.
        # Neither may move a recovery point.
        for log, plan in planned:
            if directory.failure is not None or log not in current.logs:
                plan.release()
                continue
            log.flushed(plan)

            # Appends during the sync may have reached flush.messages again, or sealed a segment.
            if log.flush_demanded:
                self._join(directory, log)
            self._on_flushed(log)

    async def _begin_again(
        self,
        directory: _Directory,
        current: _Round,
        planned: "Sequence[tuple[PartitionLog, FlushPlan]]",
        why: StorageError,
    ) -> None:
        """Repeat a round that ended early although no disk failed: a log was deleted, or descriptors ran out."""
        for _, plan in planned:
            plan.release()
        if directory.failure is not None:  # it failed meanwhile, and its logs have been abandoned
            return
        # A forgotten log is not in the round any more; the other logs get new plans.
        for log in current.logs:
            self._join(directory, log)
        # A pause, or the rounds would spin until another task closes a file.
        if why.is_shortage:
            await trio.sleep(SHORTAGE_PAUSE_SECONDS)

    def _fail(self, directory: _Directory, log: "PartitionLog", error: StorageError) -> None:
        # The kernel may have dropped the dirty pages, so a second sync that succeeds would prove nothing.
        if directory.failure is None:
            directory.failure = error
            self._empty_filling(directory)
        self._on_failed(log, error)

    def _empty_filling(self, directory: _Directory) -> None:
        """End a round that will not run; `flush` in waiting tasks then returns, or raises the failure."""
        directory.filling.done.set()
        directory.filling = _Round()


def _is_passing(current: _Round, log: "PartitionLog", error: StorageError) -> bool:
    """Whether an error leaves the directory usable: a shortage, or missing files of a deleted log."""
    # `forget` also precedes a truncation, after which the log goes on. So a failed sync counts even for a forgotten
    # log.
    return error.is_shortage or (log not in current.logs and not error.is_failed_sync)


def _plan(
    current: _Round, planned: "list[tuple[PartitionLog, FlushPlan]]"
) -> "tuple[PartitionLog, StorageError] | None":
    """Add the plans of a round to `planned`. Stops at the first failure, and returns it with its log."""
    # There is no await between the plans: all of them describe the same moment, and belong to one
    # round.
    for log in current.logs:
        try:
            plan = log.flush_plan()
        except StorageError as error:
            return log, error
        if plan is not None:
            planned.append((log, plan))
    return None


def _sync(planned: "Sequence[tuple[PartitionLog, FlushPlan]]") -> "tuple[PartitionLog, StorageError] | None":
    """Sync one plan after the other, in a worker thread. Stops at the first failure, and returns it with its log."""
    for log, plan in planned:
        try:
            plan.sync()
        except StorageError as error:
            return log, error
    return None
