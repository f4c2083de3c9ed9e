"""The delegation tokens of the cluster in the store: written by any broker, followed by every one (reference S.15).

A broker that changes a token writes its node, and a notification that names it below /delegation_token/token_changes.
Every broker watches that folder and reads the named tokens again; a token whose node is gone is forgotten. When a
session with the store was lost, everything is read again.

A token that has ended is removed by a sweep, every `delegation.token.expiry.check.interval.ms`. All brokers sweep, and
the first one removes it.
"""

import logging
from collections.abc import Callable

import trio

from barnabas.controller.image.loading import numbered, parse
from barnabas.controller.store import paths
from barnabas.controller.store.following import Following, remove_expired
from barnabas.controller.store.store import (
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    SetData,
    StoreError,
    check_path,
    with_ancestors,
)
from barnabas.security.sasl.tokens import DelegationToken, DelegationTokens
from barnabas.storage.disk import InThread

logger = logging.getLogger(__name__)

DECODED_INLINE_BYTES_MAX = 4096
NOTIFICATION = paths.DELEGATION_TOKEN_CHANGE_PREFIX.rpartition("/")[2]


class TokenStore:
    """Writes tokens, and keeps `known` like the store."""

    def __init__(
        self,
        store: MetadataStore,
        known: DelegationTokens,
        in_thread: InThread,
        now_ms: Callable[[], int],
        sweep_ms: Callable[[], int],
    ) -> None:
        self.known = known
        self._store = store
        self._in_thread = in_thread
        self._now_ms = now_ms
        self._sweep_ms = sweep_ms
        self._seen = -1  # the number of the last notification that was taken
        self._is_loaded = False
        self._following = Following(store, "delegation tokens", logger)

    # -- changes

    async def create(self, token: DelegationToken) -> None:
        """Store a new token. StoreError; Refuse(POLICY_VIOLATION) if its owner has too many."""
        path = paths.delegation_token(token.token_id)
        with self.known.being_written(token):
            await self._store.multi([Create(path, token.encode()), _notification(token.token_id)])
        # The token is known at once: this broker must not lack a token that its response has announced.
        self.known.put(token)

    async def change(self, token: DelegationToken) -> bool:
        """Change a token: False if another broker has removed it. It does not come back then. StoreError."""
        path = paths.delegation_token(token.token_id)
        was_there = await self._apply(SetData(path, token.encode()), token.token_id)
        if was_there:
            self.known.put(token)
        else:
            self.known.remove(token.token_id)
        return was_there

    async def remove(self, token_id: str) -> None:
        """Remove a token; nothing happens if another broker was quicker. StoreError."""
        await self._apply(Delete(paths.delegation_token(token_id)), token_id)
        self.known.remove(token_id)

    async def _apply(self, op: SetData | Delete, token_id: str) -> bool:
        """Change or delete the node of a token, and notify the brokers: False if there is none."""
        try:
            await self._store.multi([op, _notification(token_id)])
        except NoNode as error:
            # NoNode may be about the folder of notifications, without which nothing can work.
            if error.path != op.path:
                raise
            return False
        return True

    async def sweep(self) -> None:
        """Remove tokens that have ended, until cancelled."""
        while True:
            await trio.sleep(self._sweep_ms() / 1000)
            for token in self.known.expired(self._now_ms()):
                try:
                    await self.remove(token.token_id)
                    logger.info("the delegation token %s of %s has expired", token.token_id, token.owner)
                except StoreError as error:
                    logger.warning("an expired token cannot be removed: %s", error, extra={"peer": "store"})

    # -- following

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled; `task_status` reports the start when all tokens are read."""
        self._store.on_expired(self._lost)
        await self._following.run(self._look, task_status=task_status)

    def _lost(self) -> None:
        # The session's watches are gone, so changes may have been missed.
        self._is_loaded = False
        self._following.look_again()

    async def _look(self, touched: Callable[[], None]) -> None:
        for path in with_ancestors([paths.DELEGATION_TOKENS, paths.DELEGATION_TOKEN_CHANGES]):
            if await self._store.exists(path) is None:
                await self._create(path)
        # The watch is set before the tokens are read: what changes in between is read twice.
        names = numbered(await self._store.children(paths.DELEGATION_TOKEN_CHANGES, touched), NOTIFICATION)
        if not self._is_loaded:
            self.known.replace(await self._all())
            self._is_loaded = True
        else:
            for number in sorted(number for number in names if number > self._seen):
                await self._take(names[number])
        self._seen = max(names, default=self._seen)
        await remove_expired(self._store, paths.DELEGATION_TOKEN_CHANGES, names, self._now_ms())

    async def _create(self, path: str) -> None:
        try:
            await self._store.create(path)
        except NodeExists:
            return  # another broker was quicker

    async def _all(self) -> list[DelegationToken]:
        names = await self._store.children(paths.DELEGATION_TOKENS)
        read = [await self._read(name) for name in names]
        return [token for token in read if token is not None]

    async def _read(self, token_id: str) -> DelegationToken | None:
        path = paths.delegation_token(token_id)
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return None
        # Decoding a token with 1,000 renewers takes milliseconds.
        if data is not None and len(data) > DECODED_INLINE_BYTES_MAX:
            return await self._in_thread(parse, DelegationToken.decode, data, path)
        return parse(DelegationToken.decode, data, path)

    async def _take(self, name: str) -> None:
        path = f"{paths.DELEGATION_TOKEN_CHANGES}/{name}"
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return  # expired: another broker has removed it since its name was listed
        token_id = parse(_token_id, data, path)
        if token_id is None:
            return
        token = await self._read(token_id)
        if token is None:
            self.known.remove(token_id)
        else:
            self.known.put(token)


def _notification(token_id: str) -> Create:
    return Create(paths.DELEGATION_TOKEN_CHANGE_PREFIX, token_id.encode(), sequential=True)


def _token_id(data: bytes | None, path: str) -> str:
    token_id = (data or b"").decode()
    # A name that is no valid path would make the store raise at each look, and block all later notifications.
    if not token_id or "/" in token_id:
        raise ValueError(f"{path}: {token_id!r:.100} is no token")
    check_path(paths.delegation_token(token_id))
    return token_id
