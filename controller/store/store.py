"""The metadata store as the rest of the broker sees it: ZooKeeper's data model and nothing more (reference A.1).

Theory of operation
-------------------
A tree of nodes, each with data (`None` and `b""` differ, as Java's null and empty array do), a version that counts its
writes, and the zxids of the transactions that created it and last wrote it. Every write transaction takes the next
zxid. A node is persistent, or ephemeral: it belongs to the session that created it, vanishes with it, and has no
children. A sequential node gets a suffix of ten digits from its parent's counter, which counts the children ever
created there.

Writes are values (`Create`, `SetData`, `Delete`, `Check`), so a decision can be computed first and written afterwards.
`multi` is all or nothing, `batch` is a pipeline: in order, each item with its own outcome, where an item is an
operation or a sequence of them that is one multi. The controller fences a write by making it a multi that begins with
a `Check` of /controller_epoch.

A watch fires once, on the loop, after the change is durable, and means only "read again": it carries no data, may come
late, twice, or in another order than the changes, also without any change (a connection was lost), and nothing may be
concluded from which of watch and result comes first. Reading again arms it again; read-then-watch is one step, so no
change falls between them.

A node's errors are values in `batch` and exceptions elsewhere. Two errors concern the store as a whole and are always
raised: `SessionExpired` (ephemerals and watches are gone: resign, `renew`, register again) and `StoreUnavailable`.
After either, a write may or may not have been applied.

A store that is asked over a network may lose an answer and ask again: a write that was carried out is then refused
(NodeExists, BadVersion, NoNode), or carried out twice where nothing forbids it. A writer must live with both: it
reads again what he meant to write, or does not mind.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, TypeVarTuple

ANY_VERSION = -1

# ZooKeeper drops a connection that sends a packet above jute.maxbuffer (1,048,575 bytes by default), so no store takes
# an operation, or a multi, with more data than this. The rest is room for paths and framing.
DATA_MAX_BYTES = 1_000_000

Watch = Callable[[], None]
Returned = TypeVar("Returned")
Arguments = TypeVarTuple("Arguments")


class InThread(Protocol):
    """What a store runs its blocking functions with, off the loop."""

    async def __call__(self, function: Callable[[*Arguments], Returned], /, *args: *Arguments) -> Returned: ...


# Control characters, surrogates and the private and special areas that ZooKeeper refuses in a path.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Stat:
    """What the store knows of a node besides its data. `owner` is a session id, or 0 when the node is persistent."""

    version: int
    czxid: int
    mzxid: int
    owner: int
    ctime_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; its parent must exist and be persistent. The outcome is `Created`."""

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
    """A new node: `path` has the suffix if it is sequential."""

    path: str
    stat: Stat


class StoreError(Exception):
    """Anything the store refuses or cannot do."""


class NodeError(StoreError):
    """One operation was refused; nothing of it (nor of its multi) was written. `path` is that operation's path."""

    reason = "refused"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: {self.reason}")
        self.path = path


class NoNode(NodeError):
    """The node does not exist or, for a create, its parent does not."""

    reason = "no such node, or no parent"


NoParent = NoNode  # ZooKeeper has one code for both


class NodeExists(NodeError):
    """The node to create is already there."""

    reason = "the node exists"


class BadVersion(NodeError):
    """The node was written by someone else since the version that was expected."""

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


class MetadataStore(Protocol):
    """One session of a store.

    Calls of several tasks are carried out in the order in which they were made. A cancelled call may or may not have
    been applied. Every method may raise `SessionExpired` and `StoreUnavailable`; a path that no ZooKeeper would accept
    raises ValueError.
    """

    @property
    def session_id(self) -> int:
        """The owner of ephemeral nodes that this session creates; never 0, changes with `renew`."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """A node's data; `watch` fires when it is set or deleted. NoNode (then nothing is watched)."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """A node's stat, or None; `watch` fires when it is created, set or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a node's children, sorted; `watch` fires when one is created or deleted, or the node is.

        NoNode (then nothing is watched).
        """
        ...

    async def batch(self, items: Sequence[Item]) -> list[Outcome]:
        """Carry out every item, in order; the outcome of a refused one is its `NodeError`, and the next goes on.

        One durable write for all of them where the store can do so.
        """
        ...

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop each time this session expires."""
        ...

    async def renew(self) -> None:
        """After an expiry, begin a new session: new id, no watches, the same callbacks."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes vanish. Closing twice is allowed."""
        ...

    # The rest is the same for every store.

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        """Write all or nothing; raises the error of the first operation that is refused."""
        (outcome,) = await self.batch([ops])
        if isinstance(outcome, NodeError):
            raise outcome
        assert isinstance(outcome, list), outcome
        return outcome

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        """Make one node. NodeExists, NoParent, EphemeralParent, DataTooLarge."""
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
    """A store's tree of nodes, which carries out one operation after another; what it refuses it raises."""

    def stat(self, path: str) -> Stat | None: ...
    def create(self, op: Create, session_id: int) -> Created: ...
    def set(self, op: SetData) -> Stat: ...
    def delete(self, op: Delete) -> None: ...

    # The rest is the same for every tree.

    def apply(self, op: Op, session_id: int) -> Result:
        """Carry out one operation."""
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
        """The stat of a node, which exists and has this version."""
        stat = self.stat(path)
        if stat is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, stat.version):
            raise BadVersion(path)
        return stat


def ops_of(item: Item) -> Sequence[Op]:
    """The operations of a multi, or the one operation."""
    return item if isinstance(item, Sequence) else (item,)


def check_path(path: str) -> None:
    """ValueError unless ZooKeeper would accept this path, so that what one store takes, the other takes too."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError(f"{path!r} is not the path of a node: it must begin with '/' and not end with it")
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise ValueError(f"{path!r} is not the path of a node: a part is empty, '.' or '..'")
    if _FORBIDDEN.search(path):
        raise ValueError(f"{path!r} is not the path of a node: a character is not allowed")


def check_op(op: Op) -> None:
    """ValueError when no store could carry out this operation, whatever it holds."""
    if isinstance(op, Create) and op.sequential:
        check_path(f"{op.path}0")  # the suffix may be a whole name: "/parent/" is allowed
        return
    check_path(op.path)
    if op.path == "/" and isinstance(op, Create | Delete):
        raise ValueError("the root can be neither created nor deleted")


def refuse_large(ops: Sequence[Op]) -> DataTooLarge | None:
    """The refusal of operations that together carry more than DATA_MAX_BYTES: one of them alone, or all of a multi."""
    writes = [op for op in ops if isinstance(op, Create | SetData) and op.data]
    size_bytes = sum(len(op.data or b"") for op in writes)
    return DataTooLarge(writes[-1].path) if size_bytes > DATA_MAX_BYTES else None


def with_ancestors(paths: Iterable[str]) -> list[str]:
    """These paths and all their ancestors but the root, each once and parents first: what to create for them."""
    found: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")
        for length in range(2, len(parts) + 1):
            found["/".join(parts[:length])] = None
    return list(found)
