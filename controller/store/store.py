"""The interface of the metadata store: ZooKeeper's data model and nothing more (reference A.1).

Theory of operation
-------------------
The store is a tree of nodes. A node has data (`None` and `b""` differ, as null and the empty array do in Java), a
version that counts its writes, and the zxids of the transactions that created it and last wrote it. Every write
transaction takes the next zxid. A node is persistent, or ephemeral: an ephemeral node belongs to the session that
created it, is removed when that ends, and has no children. A sequential node gets a suffix of ten digits from its
parent's counter, which counts the children ever created there.

Writes are values (`Create`, `SetData`, `Delete`, `Check`), so a decision can be computed first and written afterwards.
`multi` is all or nothing. `batch` is a pipeline: its items are carried out in order, each with its own outcome; an item
is an operation, or a sequence of operations that is one multi. The controller fences a write by making it a multi that
begins with a `Check` of /controller_epoch.

A watch fires once, on the loop, after the change is durable, and means only "read again". It carries no data. It may
come late, twice, in another order than the changes, or without a change (a connection was lost), and before or after
the result of a write of one's own. Reading and setting the watch are one step, so no change is missed between them; the
next read sets it again.

A node's errors are values in `batch` and exceptions elsewhere. Two errors concern the store as a whole and are always
raised: `SessionExpired` (ephemeral nodes and watches are gone: resign, `renew`, register again) and `StoreUnavailable`.
After either, a write may or may not have been applied.

Over a network an answer may be lost, and the request is then sent again: a write that was carried out is refused the
second time (NodeExists, BadVersion, NoNode), or carried out twice if it has no condition. Each writer must allow for
both: it reads the node again and compares it with what it meant to write, or its write may be repeated.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, TypeVarTuple

ANY_VERSION = -1

# ZooKeeper drops a connection that sends a packet above jute.maxbuffer (1,048,575 bytes by default), so every store
# refuses an operation, or a multi, with more data than this. The rest is room for paths and framing.
DATA_MAX_BYTES = 1_000_000

Watch = Callable[[], None]
Returned = TypeVar("Returned")
Arguments = TypeVarTuple("Arguments")


class InThread(Protocol):
    """Runs a blocking function in a worker thread, off the loop."""

    async def __call__(self, function: Callable[[*Arguments], Returned], /, *args: *Arguments) -> Returned: ...


# The characters that ZooKeeper refuses in a path (PathUtils.validatePath): control characters, surrogates, the private
# area and the specials. What is above U+FFFF is a pair of surrogates in Java, so it is refused as well.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Stat:
    """A node's metadata. `owner` is the id of the session that an ephemeral node belongs to, 0 for a persistent one."""

    version: int
    czxid: int
    mzxid: int
    owner: int
    ctime_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; its parent must exist and be persistent. The outcome is `Created`."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a node's data if its version is `version`. The outcome is its new `Stat`."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children if its version is `version`. The outcome is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Write nothing; fail unless the node's version is `version`. The outcome is None."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Created:
    """A new node. `path` includes the suffix of a sequential one."""

    path: str
    stat: Stat


class StoreError(Exception):
    """The base of all errors of a store."""


class NodeError(StoreError):
    """One operation was refused; nothing of it (nor of its multi) was written. `path` is that operation's path."""

    reason = "refused"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: {self.reason}")
        self.path = path


class NoNode(NodeError):
    """The node does not exist or, for a create, its parent does not."""

    reason = "no such node, or no parent"


# ZooKeeper has one code for both.
NoParent = NoNode


class NodeExists(NodeError):
    """The node to create is already there."""

    reason = "the node exists"


class BadVersion(NodeError):
    """The node's version is not the expected one: another session has written it, or an earlier attempt of ours."""

    reason = "the node has another version"


class NotEmpty(NodeError):
    """The node to delete has children."""

    reason = "the node has children"


class EphemeralParent(NodeError):
    """The parent of the node to create is ephemeral."""

    reason = "an ephemeral node has no children"


class DataTooLarge(NodeError):
    """The data of the operation, or of its multi together, exceed DATA_MAX_BYTES."""

    reason = f"the data of one write are limited to {DATA_MAX_BYTES} bytes"


class SessionExpired(StoreError):
    """The session is over: its ephemeral nodes and watches are gone."""

    def __init__(self, session_id: int) -> None:
        super().__init__(f"session {session_id:#x} of the metadata store is over")
        self.session_id = session_id


class StoreUnavailable(StoreError):
    """The store cannot be reached or cannot write. `where` names the file or the servers."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"metadata store {where}: {why}")
        self.where = where


Result = Created | Stat | None
Item = Op | Sequence[Op]
Outcome = Created | Stat | list[Result] | NodeError | None


class SessionTally:
    """The connections and sessions of this broker with the store."""

    __slots__ = ("connects", "disconnects", "expires", "on_answered")

    def __init__(self) -> None:
        self.connects = 0
        self.disconnects = 0
        self.expires = 0
        self.on_answered: Callable[[float], None] | None = None  # gets the latency of each call, s


class MetadataStore(Protocol):
    """One session of a store.

    Calls of several tasks are carried out in the order in which they were made. A cancelled call may or may not have
    been applied. Every method may raise `SessionExpired` and `StoreUnavailable`; a path that ZooKeeper would not accept
    raises ValueError.
    """

    @property
    def session_id(self) -> int:
        """The `owner` of the ephemeral nodes that this session creates. Never 0; another one after `renew`."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """A node's data; `watch` fires when it is set or deleted. NoNode (then no watch is set)."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """A node's stat, or None; `watch` fires when the node is created, set or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a node's children, sorted; `watch` fires when one is created or deleted, or the node is.

        NoNode (then no watch is set).
        """
        ...

    async def batch(self, items: Sequence[Item]) -> list[Outcome]:
        """Carry out every item, in order. The outcome of a refused one is its `NodeError`; the next is carried out.

        One durable write for all of them, where the store can do so.
        """
        ...

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop each time this session expires."""
        ...

    async def renew(self) -> None:
        """After an expiry, begin a new session: new id, no watches, the same callbacks. A live session is kept."""
        ...

    async def close(self) -> None:
        """End the session, which removes its ephemeral nodes. Closing twice is allowed."""
        ...

    @property
    def session_tally(self) -> SessionTally | None:
        """What the sessions have gone through; None for a store without a network in between."""
        return None

    # The rest is the same for every store. Single writes are multis, too, so every write goes
    # through `batch`.

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        """Write all or nothing; the results of the operations. Raises the `NodeError` of the first that is refused."""
        (outcome,) = await self.batch([ops])
        if isinstance(outcome, NodeError):
            raise outcome
        assert isinstance(outcome, list), outcome
        return outcome

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        """Create one node. NodeExists, NoParent, EphemeralParent, DataTooLarge."""
        (result,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(result, Created), result
        return result

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace one node's data. NoNode, BadVersion, DataTooLarge."""
        (result,) = await self.multi([SetData(path, data, version)])
        assert isinstance(result, Stat), result
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove one node. NoNode, BadVersion, NotEmpty."""
        await self.multi([Delete(path, version)])


class Nodes(Protocol):
    """A tree of nodes that carries out one operation after another; a refusal is raised as `NodeError`.

    The embedded store has one.
    """

    def stat(self, path: str) -> Stat | None: ...
    def create(self, op: Create, session_id: int) -> Created: ...
    def set(self, op: SetData) -> Stat: ...
    def delete(self, op: Delete) -> None: ...

    # The rest is the same for every tree.

    def apply(self, op: Op, session_id: int) -> Result:
        """Carry out one operation; `session_id` owns the node that it creates, if that is ephemeral."""
        match op:
            case Create():
                return self.create(op, session_id)
            case SetData():
                return self.set(op)
            case Delete():
                self.delete(op)
            case Check():
                self.expect(op.path, op.version)
        return None

    def expect(self, path: str, version: int = ANY_VERSION) -> Stat:
        """The stat of a node with this version. NoNode, BadVersion."""
        stat = self.stat(path)
        # ANY_VERSION still demands that the node exists.
        if stat is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, stat.version):
            raise BadVersion(path)
        return stat


def ops_of(item: Item) -> Sequence[Op]:
    """The operations of a multi, or the one operation."""
    return item if isinstance(item, Sequence) else (item,)


def check_path(path: str) -> None:
    """ValueError unless ZooKeeper would accept this path: both stores accept the same ones."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError(f"{path!r} is not the path of a node: it must begin with '/' and not end with it")
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise ValueError(f"{path!r} is not the path of a node: a part is empty, '.' or '..'")
    if _FORBIDDEN.search(path):
        raise ValueError(f"{path!r} is not the path of a node: a character is not allowed")


def check_op(op: Op) -> None:
    """ValueError for an operation that a store could never carry out, whatever nodes it holds."""
    if isinstance(op, Create) and op.sequential:
        # As in ZooKeeper, the path is checked with the suffix, which may be the whole name:
        # "/parent/" is allowed.
        check_path(f"{op.path}0")
        return
    check_path(op.path)
    if op.path == "/" and isinstance(op, Create | Delete):
        raise ValueError("the root can be neither created nor deleted")


def refuse_large(ops: Sequence[Op]) -> DataTooLarge | None:
    """The refusal of a multi, or of one operation, that carries more than DATA_MAX_BYTES; else None.

    It names the last operation with data: which one is to blame cannot be said.
    """
    writes = [op for op in ops if isinstance(op, Create | SetData) and op.data]
    size_bytes = sum(len(op.data or b"") for op in writes)
    return DataTooLarge(writes[-1].path) if size_bytes > DATA_MAX_BYTES else None


def with_ancestors(paths: Iterable[str]) -> list[str]:
    """These paths and all their ancestors but the root, each once and parents first, as they must be created."""
    found: dict[str, None] = {}
    for path in paths:
        end = path.find("/", 1)
        while end > 0:
            found[path[:end]] = None
            end = path.find("/", end + 1)
        found[path] = None
    return list(found)
