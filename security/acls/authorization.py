"""The ACLs of the cluster, in the store and in this broker's authorizer (shell); reference security.md, S.14.

Theory of operation
-------------------
Any broker creates and deletes ACLs: it reads the node of a pattern, computes the new entries, and writes them if the
node is still the one that it read, together with an announcement. Every broker watches the two folders of
announcements, takes new ones in order, and reads each pattern that they name. So an answer does not wait for the other
brokers, as in Kafka; they follow within milliseconds.

At the start the watches are set first, and then all ACLs are read, so no change is missed. After the session has
expired everything is read again, for announcements may have been removed meanwhile: any broker removes those that are
older than 15 minutes.

Reads of one session never go back in time, and each read or write holds the lock until the authorizer has its result.
So the authorizer never gets an older state of a pattern than it has.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from random import Random
from typing import NamedTuple

import trio

from barnabas.controller.image.loading import numbered, parse, read_nodes
from barnabas.controller.store import paths
from barnabas.controller.store.following import Following, remove_expired
from barnabas.controller.store.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeError,
    NodeExists,
    NoNode,
    Op,
    SetData,
    Stat,
    StoreError,
)
from barnabas.security.acls.acls import (
    LITERAL,
    PARENTS,
    PREFIXED,
    STORED_TYPES,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    ResourcePattern,
    decode_change,
    decode_entries,
    encode_change,
    encode_entries,
    parent,
)
from barnabas.security.acls.authorizer import Authorizer
from barnabas.wire.errors import ErrorCode
from barnabas.world.pacing import ROWS_AT_A_TIME, paced, pause_after, portions

logger = logging.getLogger(__name__)

WRITE_ATTEMPTS = 10
BACKOFF_SECONDS, BACKOFF_JITTER_SECONDS = 0.1, 0.05

Entries = frozenset[AccessControlEntry]
Change = Callable[[Entries], Awaitable[Entries]]
NumberedFilter = tuple[int, AclFilter]  # with its place in the request
# These entries stand for a node that cannot be parsed: to ignore the node could allow what it
# denies.
UNREADABLE: Entries = frozenset({AccessControlEntry("User:*", "*", "All", "Deny")})
FOLDERS = (paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES)
NOTIFICATION = paths.ACL_CHANGE_PREFIX.rpartition("/")[2]  # the same in both folders


class Deleted(NamedTuple):
    """One ACL that a filter found, and whether it could be deleted."""

    binding: AclBinding
    code: ErrorCode


class Authorization:
    """Follows the ACLs in the store, and changes them."""

    def __init__(self, store: MetadataStore, authorizer: Authorizer, *, now_ms: Callable[[], int], rng: Random) -> None:
        self._store = store
        self.authorizer = authorizer
        self._now_ms = now_ms
        self._rng = rng
        self._lock = trio.Lock()
        self._loaded_in = 0  # the session in which everything was read
        self._seen = dict.fromkeys(FOLDERS, -1)  # the numbers of the last announcements that were applied
        self._following = Following(store, "changes of ACLs", logger)

    # -- following

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled; `task_status` reports the start when all ACLs are loaded."""
        self._store.on_expired(self._following.look_again)
        await self._following.run(self._look, task_status=task_status)

    async def _look(self, touched: Callable[[], None]) -> None:
        """Set the watches, and take over what changed; everything, if this session has not loaded it yet."""
        session_id = self._store.session_id
        loads = session_id != self._loaded_in
        if loads:
            await self._create_parents()
        # The watches are set before everything is read, so that a change in between is not missed.
        listed = [(folder, await self._store.children(folder, touched)) for folder in FOLDERS]
        if loads:
            await self._load()
        for folder, names in listed:
            await self._take(folder, numbered(names, NOTIFICATION), applies=not loads)
        self._loaded_in = session_id

    async def _create_parents(self) -> None:
        outcomes = await self._store.batch([Create(path) for path in PARENTS])
        for outcome in outcomes:
            if isinstance(outcome, NodeError) and not isinstance(outcome, NodeExists):
                raise outcome

    async def _load(self) -> None:
        """Read the node of every pattern; the lock keeps changes of this broker away."""
        async with self._lock:
            await self._load_all()

    async def _load_all(self) -> None:
        found: set[ResourcePattern] = set()
        for pattern_type in (LITERAL, PREFIXED):
            for resource_type in STORED_TYPES:
                names = await self._store.children(parent(resource_type, pattern_type))
                found.update(ResourcePattern(resource_type, name, pattern_type) for name in names)
        read = await read_nodes(self._store, sorted(found), _node_of, lambda data, _, path: _readable(data, path))
        for pattern, entries in read.items():
            self.authorizer.replace(pattern, entries)
        # A pattern without a node has no ACLs any more: the announcement of their removal may have
        # expired while there was no session.
        for pattern in self.authorizer.acls.patterns():
            if pattern not in read:
                self.authorizer.replace(pattern, frozenset())
        logger.info("the ACLs of %d resource patterns are loaded", len(read))

    async def _take(self, folder: str, numbers: dict[int, str], *, applies: bool) -> None:
        """Note the new announcements of a folder, after their patterns were read, and remove those that expired."""
        new = sorted(number for number in numbers if number > self._seen[folder])
        if applies:
            named = [await self._announced(f"{folder}/{numbers[number]}") for number in new]
            # A pattern is read as it is now, so several announcements of it need one read.
            for pattern in dict.fromkeys(named):
                if pattern is not None:
                    await self._refresh(pattern)
        # `_seen` is set after all of them are applied: if the store fails in between, the next
        # round applies them again.
        if new:
            self._seen[folder] = new[-1]
        await remove_expired(self._store, folder, numbers, self._now_ms())

    async def _announced(self, path: str) -> ResourcePattern | None:
        """The pattern that an announcement names; None if it is gone or malformed."""
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return None
        return parse(decode_change, data, path)

    async def _refresh(self, pattern: ResourcePattern) -> None:
        async with self._lock:
            try:
                data, _ = await self._store.get(pattern.node)
            except NoNode:
                entries: Entries = frozenset()
            else:
                entries = _readable(data, pattern.node)
            self.authorizer.replace(pattern, entries)

    # -- changes

    async def matching(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that a filter finds, as this broker knows them."""
        known = self.authorizer.acls
        return [
            AclBinding(pattern, entry)
            async for pattern in paced(known.patterns())
            if wanted.fits_pattern(pattern)
            async for entry in paced(known.entries(pattern))
            if wanted.fits_entry(entry)
        ]

    async def create(self, bindings: Sequence[AclBinding]) -> dict[ResourcePattern, ErrorCode]:
        """Add ACLs; those that exist already are no error. The outcome of each pattern."""
        added: dict[ResourcePattern, set[AccessControlEntry]] = {}
        async for pattern, entry in paced(bindings):
            added.setdefault(pattern, set()).add(entry)
        return {pattern: await self._update(pattern, partial(_with, entries)) for pattern, entries in added.items()}

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Deleted]]:
        """Remove the ACLs that filters find. One that several find is listed under the first of them."""
        of_one: dict[ResourcePattern, list[NumberedFilter]] = {}
        of_many: list[NumberedFilter] = []
        async for each in paced(enumerate(filters)):
            only = each[1].only_pattern
            (of_many if only is None else of_one.setdefault(only, [])).append(each)
        found: list[list[Deleted]] = [[] for _ in filters]

        # A filter for a single pattern also finds ACLs that this broker has not heard of yet:
        # `_update` reads the node of the pattern.
        async for pattern in paced(dict.fromkeys([*self.authorizer.acls.patterns(), *of_one])):
            broad = [each async for each in paced(of_many) if each[1].fits_pattern(pattern)]
            concerned = sorted([*of_one.get(pattern, ()), *broad], key=itemgetter(0))
            if not concerned:
                continue
            deleted: dict[AccessControlEntry, int] = {}
            code = await self._update(pattern, partial(_without, concerned, deleted))
            for entry, place in deleted.items():
                found[place].append(Deleted(AclBinding(pattern, entry), code))

        return found

    async def _update(self, pattern: ResourcePattern, change: Change) -> ErrorCode:
        """Write the changed entries of one pattern, and announce them."""
        try:
            async with self._lock:
                self.authorizer.replace(pattern, await self._write(pattern, change))
        except (StoreError, ValueError) as error:  # ValueError: no node can have this name, or it is malformed
            logger.error("the ACLs of %r cannot be changed: %s", pattern, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def _write(self, pattern: ResourcePattern, change: Change) -> Entries:
        path = pattern.node
        announcement = encode_change(pattern)
        announce = Create(announcement.prefix, announcement.data, sequential=True)
        # Another broker may write this node at the same time: then the change is made again, of the
        # entries that are there by then.
        for attempt in range(WRITE_ATTEMPTS):
            if attempt:
                await trio.sleep(BACKOFF_SECONDS + self._rng.random() * BACKOFF_JITTER_SECONDS)
            try:
                data, stat = await self._store.get(path)
            except NoNode:
                data = None
                stat = None
            before = decode_entries(data, path)
            after = await change(before)

            # There is nothing to write. Perhaps an earlier attempt was carried out, and its answer
            # was lost.
            if after == before:
                return before
            try:
                # The ACLs and the notification are one step, so that no other broker misses the
                # change.
                await self._store.multi([_write_of(path, after, stat), announce])
            except (BadVersion, NodeExists, NoNode) as error:
                # The folder of announcements is missing: to repeat would not help.
                if error.path == announce.path:
                    raise
                continue
            return after

        raise StoreError(f"{path} was changed by others {WRITE_ATTEMPTS} times while it was to be written")


async def _with(added: set[AccessControlEntry], entries: Entries) -> Entries:
    return entries | added


async def _without(
    concerned: list[NumberedFilter], deleted: dict[AccessControlEntry, int], entries: Entries
) -> Entries:
    """The entries that no filter finds; the others go into `deleted`, with the number of the first filter."""
    for entry in sorted(entries):
        first = await _first_that_fits(concerned, entry)
        if first is not None:
            deleted.setdefault(entry, first)
    return entries - deleted.keys()


async def _first_that_fits(concerned: list[NumberedFilter], entry: AccessControlEntry) -> int | None:
    # A request may have 20,000 filters for one pattern.
    for part in portions(concerned, ROWS_AT_A_TIME):
        await pause_after(len(part))
        for place, each in part:
            if each.fits_entry(entry):
                return place
    return None


def _node_of(pattern: ResourcePattern) -> str:
    return pattern.node


def _write_of(path: str, entries: Entries, stat: Stat | None) -> Op:
    if stat is None:
        return Create(path, encode_entries(entries))
    # An empty node is deleted, because Kafka's tools would still count its pattern.
    return SetData(path, encode_entries(entries), stat.version) if entries else Delete(path, stat.version)


def _readable(data: bytes | None, path: str) -> Entries:
    entries = parse(decode_entries, data, path)
    return UNREADABLE if entries is None else entries
