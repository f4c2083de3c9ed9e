"""ZooKeeper's tree of nodes in memory: the rules of `controller/store/store.py` about nodes, not about sessions.

The metadata store of the simulated world. A write changes the tree at once; a multi that is refused half way is undone
from the end. What a write touched is returned as keys of watches: ("data", path) or ("children", path).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.controller.store.store import (
    Create,
    Created,
    Delete,
    EphemeralParent,
    Item,
    NodeError,
    NodeExists,
    Nodes,
    NoParent,
    NotEmpty,
    Outcome,
    SetData,
    Stat,
    ops_of,
    refuse_large,
)

WatchKey = tuple[str, str]


@dataclass(eq=False, slots=True)
class _Node:
    data: bytes | None
    stat: Stat
    children: dict[str, None] = field(default_factory=dict)
    children_created: int = 0


class Tree(Nodes):
    """The nodes, and the counter of transactions."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.zxid = 0
        self._now_ms = now_ms
        self._nodes: dict[str, _Node] = {"/": _Node(b"", Stat(0, 0, 0, 0, 0))}
        self._owned: dict[int, dict[str, None]] = {}  # session -> its ephemeral nodes
        self._changed: list[WatchKey] = []
        self._undo: list[Callable[[], None]] = []

    def get(self, path: str) -> tuple[bytes | None, Stat]:
        """A node's data and stat."""
        stat = self.expect(path)
        return self._nodes[path].data, stat

    def stat(self, path: str) -> Stat | None:
        """A node's stat, if it exists."""
        node = self._nodes.get(path)
        return None if node is None else node.stat

    def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted."""
        self.expect(path)
        return sorted(self._nodes[path].children)

    def write(self, item: Item, session_id: int) -> tuple[Outcome, list[WatchKey]]:
        """Carry out one operation, or a sequence of them as a multi: one zxid, all or nothing."""
        ops = ops_of(item)
        too_large = refuse_large(ops)
        if too_large is not None:
            return too_large, []
        self._changed = []
        self._undo = []
        self.zxid += 1
        try:
            results = [self.apply(op, session_id) for op in ops]
        except NodeError as refusal:
            for undo in reversed(self._undo):
                undo()
            self.zxid -= 1
            return refusal, []

        return (results if ops is item else results[0]), self._changed

    def end_session(self, session_id: int) -> list[WatchKey]:
        """Delete the ephemeral nodes of a session."""
        self._changed = []
        self._undo = []
        owned = list(self._owned.pop(session_id, ()))
        if owned:
            self.zxid += 1
        for path in owned:
            self._remove(path, self._nodes[path])
        return self._changed

    # One operation.

    def create(self, op: Create, session_id: int) -> Created:
        parent_path = _parent_of(op.path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoParent(op.path)
        path = f"{op.path}{parent.children_created:010d}" if op.sequential else op.path
        if path in self._nodes:
            raise NodeExists(op.path)
        if parent.stat.owner:
            raise EphemeralParent(op.path)
        owner = session_id if op.ephemeral else 0
        stat = Stat(0, self.zxid, self.zxid, owner, self._now_ms())
        node = _Node(op.data, stat)
        self._put(path, node)
        parent.children_created += 1

        def undo() -> None:
            self._take(path, node)
            parent.children_created -= 1

        self._undo.append(undo)
        self._changed += ("data", path), ("children", parent_path)
        return Created(path, stat)

    def set(self, op: SetData) -> Stat:
        stat = self.expect(op.path, op.version)
        node = self._nodes[op.path]
        data = node.data

        def undo() -> None:
            node.data = data
            node.stat = stat

        self._undo.append(undo)
        node.data = op.data
        node.stat = Stat(stat.version + 1, stat.czxid, self.zxid, stat.owner, stat.ctime_ms)
        self._changed.append(("data", op.path))
        return node.stat

    def delete(self, op: Delete) -> None:
        self.expect(op.path, op.version)
        node = self._nodes[op.path]
        if node.children:
            raise NotEmpty(op.path)
        self._remove(op.path, node)
        self._undo.append(lambda: self._put(op.path, node))

    def _remove(self, path: str, node: _Node) -> None:
        self._take(path, node)
        self._changed += ("data", path), ("children", path), ("children", _parent_of(path))

    def _put(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        self._nodes[_parent_of(path)].children[path.rpartition("/")[2]] = None
        if node.stat.owner:
            self._owned.setdefault(node.stat.owner, {})[path] = None

    def _take(self, path: str, node: _Node) -> None:
        del self._nodes[path]
        del self._nodes[_parent_of(path)].children[path.rpartition("/")[2]]
        if node.stat.owner:
            self._owned.get(node.stat.owner, {}).pop(path, None)


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
