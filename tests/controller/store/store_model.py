"""A model of a metadata store, and random writes to compare it with one."""

from hypothesis import strategies as st

from barnabas.controller.store.store import (
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    EphemeralParent,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
)

PATHS = st.sampled_from(["/a", "/b", "/a/c", "/a/d", "/a/c/e", "/b/f"])
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
OPS = st.one_of(
    st.builds(Create, PATHS, st.sampled_from([None, b"", b"x"]), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, st.sampled_from([None, b"", b"y"]), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


class Model:
    """The tree as a dictionary: path -> [data, version, is ephemeral, children ever created]."""

    def __init__(self):
        self.nodes = {"/": [b"", 0, False, 0]}

    def apply(self, item):
        """What becomes of an item: the class of its refusal, or the paths it created."""
        before = {path: list(node) for path, node in self.nodes.items()}
        created = []
        for op in item if isinstance(item, list) else [item]:
            refusal = self._create(op, created) if isinstance(op, Create) else self._change(op)
            if refusal is not None:
                self.nodes = before
                return refusal
        return created

    def _create(self, op, created):
        parent = self.nodes.get(parent_of(op.path))
        path = f"{op.path}{parent[3]:010d}" if parent and op.sequential else op.path
        if parent is None or path in self.nodes or parent[2]:
            return NoNode if parent is None else NodeExists if path in self.nodes else EphemeralParent
        self.nodes[path] = [op.data, 0, op.ephemeral, 0]
        parent[3] += 1
        created.append(path)
        return None

    def _change(self, op):
        node = self.nodes.get(op.path)
        if node is None or op.version not in (-1, node[1]):
            return NoNode if node is None else BadVersion
        if isinstance(op, Delete):
            if self.children(op.path):
                return NotEmpty
            del self.nodes[op.path]
        elif isinstance(op, SetData):
            node[:2] = [op.data, node[1] + 1]
        return None

    def children(self, path):
        return sorted(each.rpartition("/")[2] for each in self.nodes if each != "/" and parent_of(each) == path)


def parent_of(path):
    return path.rpartition("/")[0] or "/"


async def compare_with_model(store, items):
    model = Model()
    for item, outcome in zip(items, await store.batch(items), strict=True):
        results = outcome if isinstance(outcome, list) else [outcome]
        expected = model.apply(item)
        assert expected == (type(outcome) if isinstance(expected, type) else created_in(results))
    for path, (data, version, is_ephemeral, _) in model.nodes.items():
        if path != "/":
            found, stat = await store.get(path)
            assert (found, stat.version, stat.owner != 0) == (data, version, is_ephemeral)
        assert await store.children(path) == model.children(path)


def created_in(results):
    return [each.path for each in results if isinstance(each, Created)]
