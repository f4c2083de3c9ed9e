"""Follows a part of the store: looks at it, and looks again whenever one of its watches says that it has changed.

What has changed is announced by *notifications*: sequential nodes in a folder, which any broker removes when they are
older than EXPIRY_MS.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

import trio

from barnabas.controller.store.store import MetadataStore, NoNode, SessionExpired, StoreError

RETRY_SECONDS = 1.0
EXPIRY_MS = 15 * 60 * 1000  # as in Kafka

Found = TypeVar("Found")
Look = Callable[[Callable[[], None]], Awaitable[None]]  # takes what its watches call


class Following:
    """One part of the store, which is followed. `what` is its name in the log, a plural."""

    def __init__(self, store: MetadataStore, what: str, logger: logging.Logger) -> None:
        self._store = store
        self._what = what
        self._logger = logger
        self._touched = trio.Event()  # set by the store's watches, and by `look_again`

    def look_again(self) -> None:
        """Look once more. A new session has no watches, so the owner calls this after an expiry."""
        self._touched.set()

    async def run(self, look: Look, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled; `task_status` reports the start when the first look has succeeded."""
        started = False
        while True:
            # The event is replaced before the look, so a change during the look sets the new
            # event, and the next round finds it.
            self._touched = trio.Event()
            try:
                await look(self._touched.set)
            except SessionExpired:
                # During the start the candidate, which opens new sessions, does not run yet.
                if not started:
                    await self._begin_session()
                else:
                    await trio.sleep(RETRY_SECONDS)
                continue
            except StoreError as error:
                self._logger.warning("%s cannot be followed: %s", self._what, error, extra={"peer": "store"})
                await trio.sleep(RETRY_SECONDS)
                continue
            if not started:
                started = True
                task_status.started()
            await self._touched.wait()

    async def _begin_session(self) -> None:
        """Open a new session, or wait before the next attempt."""
        try:
            await self._store.renew()
        except StoreError as error:
            self._logger.warning("no new session: %s", error, extra={"peer": "store"})
            await trio.sleep(RETRY_SECONDS)


async def in_a_session(store: MetadataStore, ask: Callable[[], Awaitable[Found]]) -> Found:
    """`ask()`, in a new session if the present one has expired; later the candidate does that. StoreError."""
    while True:
        try:
            return await ask()
        except SessionExpired:
            await store.renew()


async def remove_expired(store: MetadataStore, folder: str, notifications: Mapping[int, str], now_ms: int) -> None:
    """Remove those of the folder's notifications (number -> name) that have expired. StoreError."""
    for number in sorted(notifications):
        path = f"{folder}/{notifications[number]}"
        stat = await store.exists(path)
        # Later numbers are younger, so the first one that has not expired ends the search.
        if stat is not None and now_ms - stat.ctime_ms <= EXPIRY_MS:
            return
        with suppress(NoNode):  # another broker was quicker
            await store.delete(path)
