"""Group commit (edge): who wants a log flushed shares one sync with everybody who wants the same at that time.

A log directory is one device, which makes one sync after the other whatever we ask. So each directory has at most one
round of syncs under way, and one round that is filling; requests that come meanwhile join the filling one, since the
running one may have begun before their bytes were written. However many producers wait, each waits for at most two
rounds, and a round syncs each of its logs once:

    want(a) want(b)   |  round 1: a, b running   |  round 2: a, c, d running  |
                         want(a) want(c) want(d)

A log hands out a plan on the event loop (`flush_plan`: which files, up to which offset), the plan is synced in a worker
thread, and the log takes note of it on the loop (`flushed`).

A failed sync is final for its directory: the kernel may have thrown the pages away, so that trying again would only
pretend. It is reported, and nothing in that directory is flushed any more.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from barnabas.storage.disk import SHORTAGE_PAUSE_SECONDS, InThread, StorageError, parent_of

if TYPE_CHECKING:
    from barnabas.storage.flush_plan import FlushPlan
    from barnabas.storage.log import PartitionLog


@dataclass(eq=False, slots=True)
class _Round:
    """Logs that are synced together."""

    logs: "dict[PartitionLog, None]" = field(default_factory=dict)
    done: trio.Event = field(default_factory=trio.Event)


@dataclass(eq=False, slots=True)
class _Directory:
    """One log directory: the round under way, and the one that fills."""

    filling: _Round = field(default_factory=_Round)
    running: _Round | None = None
    has_task: bool = False
    failure: StorageError | None = None


class Flusher:
    """Flushes logs in rounds, one at a time in each log directory."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._directories: dict[str, _Directory] = {}
        self._held: dict[PartitionLog, trio.Event] = {}
        self._wake = trio.Event()

    def want(self, log: "PartitionLog") -> None:
        """Have this log flushed soon; `on_flushed` is called when it is. Nothing happens in a directory that failed."""
        directory = self._directory_of(log)
        if directory.failure is None:
            self._join(directory, log)

    async def flush(self, logs: "Iterable[PartitionLog]") -> None:
        """Return when all that these logs hold now is durable; StorageError if a directory failed.

        Someone must be inside `run`.
        """
        rounds: dict[_Round, _Directory] = {}
        for log in logs:
            while (held := self._held.get(log)) is not None:
                await held.wait()
            directory = self._directory_of(log)
            if directory.failure is not None:
                raise directory.failure
            rounds[self._join(directory, log)] = directory
        for joined in rounds:
            await joined.done.wait()
        for directory in rounds.values():
            if directory.failure is not None:
                raise directory.failure

    async def forget(self, log: "PartitionLog") -> None:
        """The log goes away: flush it no more, and return when no sync of it is under way."""
        directory = self._directory_of(log)
        directory.filling.logs.pop(log, None)
        if not directory.filling.logs:
            self._empty_filling(directory)
        if directory.running is not None and log in directory.running.logs:
            del directory.running.logs[log]  # its plan is under way: the round gives it back, and asks for no more
            await directory.running.done.wait()

    async def hold(self, log: "PartitionLog") -> None:
        """Return when no sync of this log is under way, and begin none before its `release`; who flushes it waits."""
        log.is_being_renamed = True  # so that it has no plan for the round that fills
        self._held.setdefault(log, trio.Event())
        running = self._directory_of(log).running
        if running is not None and log in running.logs:
            await running.done.wait()

    def release(self, log: "PartitionLog", *, is_gone: bool = False) -> None:
        """The end of `hold`, if there was one. A log that `is_gone` is never flushed again."""
        log.is_being_renamed = is_gone
        held = self._held.pop(log, None)
        if held is not None:
            held.set()
        if log.flush_demanded and not is_gone:
            self.want(log)

    def give_up(self, directory_path: str, error: StorageError) -> None:
        """A log directory failed elsewhere: flush nothing of it any more."""
        directory = self._directories.setdefault(directory_path, _Directory())
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
        """Flush for ever, and tell of each log that was flushed, and of each sync that failed."""
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
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
                directory.filling = _Round()
                try:
                    await self._flush_round(directory, current)
                finally:
                    directory.running = None
                    current.done.set()
        finally:
            directory.has_task = False

    async def _flush_round(self, directory: _Directory, current: _Round) -> None:
        planned: list[tuple[PartitionLog, FlushPlan]] = []
        failed = _plan(current, planned)
        if planned and failed is None:
            failed = await self._in_thread(_sync, planned)
        if failed is not None and _is_passing(current, *failed):
            await self._begin_again(directory, current, planned, failed[1])
            return
        if failed is not None:
            self._fail(directory, *failed)
        for log, plan in planned:
            if directory.failure is not None or log not in current.logs:
                plan.release()
                continue
            log.flushed(plan)
            if log.flush_demanded:  # a plan has a limit, and what came meanwhile may be urgent too
                self._join(directory, log)
            self._on_flushed(log)

    async def _begin_again(
        self,
        directory: _Directory,
        current: _Round,
        planned: "Sequence[tuple[PartitionLog, FlushPlan]]",
        why: StorageError,
    ) -> None:
        """A round ended early and no disk failed: a log was deleted under it, or no descriptor was left."""
        for _, plan in planned:
            plan.release()
        if directory.failure is not None:  # it failed meanwhile: its logs have no files any more
            return
        for log in current.logs:
            self._join(directory, log)
        if why.is_shortage:
            await trio.sleep(SHORTAGE_PAUSE_SECONDS)

    def _fail(self, directory: _Directory, log: "PartitionLog", error: StorageError) -> None:
        if directory.failure is None:
            directory.failure = error
            self._empty_filling(directory)
        self._on_failed(log, error)

    def _empty_filling(self, directory: _Directory) -> None:
        """A round that will not run: those that wait for it go on, and see the failure."""
        directory.filling.done.set()
        directory.filling = _Round()


def _is_passing(current: _Round, log: "PartitionLog", error: StorageError) -> bool:
    """Whether no disk failed: something was lacking, or the files of a log are gone with it. But the log may only be
    about to be cut, and then a sync that failed counts."""
    return error.is_shortage or (log not in current.logs and not error.is_failed_sync)


def _plan(
    current: _Round, planned: "list[tuple[PartitionLog, FlushPlan]]"
) -> "tuple[PartitionLog, StorageError] | None":
    """Add the plans of a round to `planned`; the first failure ends it, and is returned with its log."""
    for log in current.logs:
        try:
            plan = log.flush_plan()
        except StorageError as error:
            return log, error
        if plan is not None:
            planned.append((log, plan))
    return None


def _sync(planned: "Sequence[tuple[PartitionLog, FlushPlan]]") -> "tuple[PartitionLog, StorageError] | None":
    """Sync one plan after the other, in a worker thread; ends as `_plan` does."""
    for log, plan in planned:
        try:
            plan.sync()
        except StorageError as error:
            return log, error
    return None
