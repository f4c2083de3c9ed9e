"""Export and import of the persistent nodes of a metadata store: `barnabas store export`, `barnabas store import`.

Persistent nodes hold all that makes a cluster: its id, topics and the states of their partitions, configuration, ACLs.
Ephemeral nodes belong to running processes and are left out, and so are ZooKeeper's own nodes and the notifications
(sequential nodes below a few parents).

An export is JSON, one node a line, parents before children, sorted, so that two exports can be compared:

    {"format": 1, "nodes": [
    {"path": "/brokers"},
    {"path": "/brokers/seqid", "version": 2},
    {"path": "/brokers/topics/t", "json": {"version": 3, "topic_id": "..."}},
    {"path": "/controller_epoch", "text": "7"}
    ]}

A node's data are under "json" if every byte can be restored from that, else under "text", else under "base64". A node
without any of these keys has null data, which is not the empty text. "version" is there only for `/brokers/seqid`.

An import fills an empty store.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.controller.store import paths
from barnabas.controller.store.store import Create, NodeError, NoNode, Outcome, SetData, Stat, StoreError, check_path

FORMAT = 1
ROOT = "/"
ZOOKEEPER = "/zookeeper"
# The children of these are not exported: a broker that starts reads everything, so it needs no notification of changes,
# and their numbers would collide with those that the new store gives out, which counts from 0.
NOTIFICATIONS = frozenset(
    {
        paths.CONFIG_CHANGES,
        paths.ISR_CHANGES,
        paths.LOG_DIR_EVENTS,
        paths.ACL_CHANGES,
        paths.EXTENDED_ACL_CHANGES,
        paths.DELEGATION_TOKEN_CHANGES,
    }
)
# Nodes whose version carries meaning: broker ids are generated from that of /brokers/seqid, and an id must not be
# generated twice (reference A.2).
COUNTED = frozenset({paths.BROKER_SEQUENCE})
VERSION_MAX = 100_000  # of a counted node; an import reaches the version by as many writes
WRITES_AT_A_TIME = 500  # in one batch


class ExportMalformed(ValueError):
    """The text is not an export; the message says where it is wrong."""


class StoreNotEmpty(StoreError):
    """The store already holds nodes: an import would mix two clusters."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"the metadata store is not empty: it holds /{', /'.join(names)}")


@dataclass(frozen=True, slots=True)
class Node:
    """A persistent node. `version` is 0 unless the node is in `COUNTED`."""

    path: str
    data: bytes | None
    version: int = 0


class Source(Protocol):
    """A store that can be read; every `MetadataStore` is one."""

    async def get(self, path: str) -> tuple[bytes | None, Stat]: ...

    async def children(self, path: str) -> list[str]: ...


class Target(Protocol):
    """A store that can be filled; every `MetadataStore` is one."""

    async def children(self, path: str) -> list[str]: ...

    async def batch(self, items: Sequence[Create | SetData]) -> Sequence[Outcome]: ...


def _uncounted(_amount: int) -> None:
    """Nothing shows how many nodes were transferred."""


async def read_nodes(store: Source, advance: Callable[[int], object] = _uncounted) -> list[Node]:
    """The persistent nodes, parents before children, sorted. `advance` is given how many more were read. StoreError.

    There is no snapshot: if the store is in use, each node is as it was at the moment when it was read.
    """
    found: list[Node] = []
    pending = [ROOT]
    while pending:
        path = pending.pop()
        try:
            if path != ROOT:
                data, stat = await store.get(path)

                # An ephemeral node is left out. It has no children, so nothing below it is missed.
                if stat.owner:
                    continue
                found.append(Node(path, data, stat.version if path in COUNTED else 0))
                advance(1)
            if path not in NOTIFICATIONS:
                names = await store.children(path)
                pending += [child for name in names if (child := f"{path.rstrip('/')}/{name}") != ZOOKEEPER]
        # The node was deleted since its parent's children were listed.
        except NoNode:
            continue

    # The parts of paths are compared: as whole strings "/a-b" would come between "/a" and its child
    # "/a/c".
    return sorted(found, key=lambda node: node.path.split("/"))


async def write_nodes(store: Target, nodes: Sequence[Node], advance: Callable[[int], object] = _uncounted) -> None:
    """Fill an empty store. `advance` is given how many more nodes were created.

    StoreNotEmpty; another StoreError leaves the store partly filled.
    """
    names = [name for name in await store.children(ROOT) if f"/{name}" != ZOOKEEPER]
    if names:
        raise StoreNotEmpty(names)
    # The cluster id is written last and on its own: until it is there, a broker that has log
    # directories of this cluster refuses to start on the store (IdentityConflict).
    await _write(store, list(_writes(node for node in nodes if node.path != paths.CLUSTER_ID)), advance)
    await _write(store, list(_writes(node for node in nodes if node.path == paths.CLUSTER_ID)), advance)


async def _write(store: Target, writes: Sequence[Create | SetData], advance: Callable[[int], object]) -> None:
    for first in range(0, len(writes), WRITES_AT_A_TIME):
        batch = writes[first : first + WRITES_AT_A_TIME]
        for outcome in await store.batch(batch):
            if isinstance(outcome, NodeError):
                raise outcome
        advance(sum(isinstance(each, Create) for each in batch))


def _writes(nodes: Iterable[Node]) -> Iterator[Create | SetData]:
    """The operations that create these nodes."""
    for node in nodes:
        yield Create(node.path, node.data)
        # A version cannot be set, only reached: each write adds one.
        for _ in range(node.version):
            yield SetData(node.path, node.data)


# -- JSON


def format_nodes(nodes: Sequence[Node]) -> str:
    """The text of an export of these nodes."""
    lines = ",\n".join(json.dumps(_encode(node), ensure_ascii=False) for node in nodes)
    return f'{{"format": {FORMAT}, "nodes": [\n{lines}\n]}}\n'


def parse_nodes(text: str) -> list[Node]:
    """The nodes of an export. ExportMalformed."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExportMalformed(f"not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ExportMalformed(f'not an export that this version reads: it must say "format": {FORMAT}')
    nodes = document.get("nodes")
    if not isinstance(nodes, list):
        raise ExportMalformed('"nodes" is not a list')
    return [_decode(node, number) for number, node in enumerate(nodes)]


def _encode(node: Node) -> dict[str, object]:
    encoded: dict[str, object] = {"path": node.path}
    if node.version:
        encoded["version"] = node.version
    if node.data is None:
        return encoded
    try:
        text = node.data.decode()
    except UnicodeDecodeError:
        return {**encoded, "base64": base64.b64encode(node.data).decode("ascii")}

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None

    # JSON is shown only if the same bytes can be made of it: otherwise another writer's spaces,
    # escapes or repeated keys would be lost.
    if isinstance(value, dict) and _compact(value) == text:
        return {**encoded, "json": value}
    return {**encoded, "text": text}


def _decode(encoded: object, number: int) -> Node:
    """One node of an export; `number` is its index, for errors. ExportMalformed."""
    where = f"node {number}"
    if not isinstance(encoded, dict) or not isinstance(encoded.get("path"), str):
        raise ExportMalformed(f'{where} has no "path"')
    path = encoded["path"]
    version = encoded.get("version", 0)
    where = f"{where}, {path}"
    try:
        check_path(path)
    except ValueError as error:
        raise ExportMalformed(f"{where}: {error}") from None

    if not isinstance(version, int) or not 0 <= version <= VERSION_MAX:
        raise ExportMalformed(f"{where}: the version {version!r} is not one of 0 to {VERSION_MAX}")
    forms = [form for form in ("json", "text", "base64") if form in encoded]
    if len(forms) > 1:
        raise ExportMalformed(f"{where} has its data twice: as {' and as '.join(forms)}")
    return Node(path, _decode_data(forms[0], encoded[forms[0]], where) if forms else None, version)


def _decode_data(form: str, value: object, where: str) -> bytes:
    if form == "json":
        value = _compact(value)
    if not isinstance(value, str):
        raise ExportMalformed(f'{where}: "{form}" is not a string')
    try:
        return base64.b64decode(value, validate=True) if form == "base64" else value.encode()
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ExportMalformed(f"{where}: {error}") from None


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
