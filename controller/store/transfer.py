"""Carrying the persistent nodes of one metadata store into another: `barnabas store export | import`.

What makes a cluster is in persistent nodes: its id, topics and their partitions' states, configuration, ACLs. What
belongs to living processes is ephemeral, and stays behind. So do notifications (sequential nodes under a few parents):
they tell of changes that a broker which starts reads anyhow, and their numbers would meet those that the new store
gives out. ZooKeeper's own nodes are left out.

An export is JSON, one node a line, parents before children, sorted, so that two of them can be compared:

    {"format": 1, "nodes": [
    {"path": "/brokers"},
    {"path": "/brokers/seqid", "version": 2},
    {"path": "/brokers/topics/t", "json": {"version": 3, "topic_id": "..."}},
    {"path": "/controller_epoch", "text": "7"}
    ]}

A node's data are under "json" where that gives back every byte, else under "text", else under "base64"; without any of
them they are null, which is not the empty text. Of the versions only that of `/brokers/seqid` says something to the
next broker: ids that were generated from it must not be generated again (reference A.2).

An import fills an empty store, and writes the cluster's id last: a broker does not start on half of one.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.controller.store import paths
from barnabas.controller.store.store import Create, NodeError, NoNode, Outcome, SetData, Stat, StoreError, check_path

FORMAT = 1
ROOT = "/"
ZOOKEEPER = "/zookeeper"
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
COUNTED = frozenset({paths.BROKER_SEQUENCE})
VERSION_MAX = 100_000  # of a counted node: it is reached again by as many writes
WRITES_AT_A_TIME = 500  # in one batch


class ExportMalformed(ValueError):
    """What should be an export is none; says where."""


class StoreNotEmpty(StoreError):
    """The store holds nodes already, and an import would mix two clusters."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"the metadata store is not empty: it holds /{', /'.join(names)}")


@dataclass(frozen=True, slots=True)
class Node:
    """A persistent node. `version` is 0 where it says nothing."""

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


async def read_nodes(store: Source) -> list[Node]:
    """The persistent nodes, parents before children, sorted. Of a store in use: each as it was when it was read."""
    found: list[Node] = []
    pending = [ROOT]
    while pending:
        path = pending.pop()
        try:
            if path != ROOT:
                data, stat = await store.get(path)
                if stat.owner:
                    continue
                found.append(Node(path, data, stat.version if path in COUNTED else 0))
            if path not in NOTIFICATIONS:
                names = await store.children(path)
                pending += [child for name in names if (child := f"{path.rstrip('/')}/{name}") != ZOOKEEPER]
        except NoNode:
            continue  # deleted meanwhile
    return sorted(found, key=lambda node: node.path.split("/"))


async def write_nodes(store: Target, nodes: Sequence[Node]) -> None:
    """Fill an empty store. StoreNotEmpty; StoreError when something was refused, with the store half filled."""
    names = [name for name in await store.children(ROOT) if f"/{name}" != ZOOKEEPER]
    if names:
        raise StoreNotEmpty(names)
    await _write(store, list(_writes(node for node in nodes if node.path != paths.CLUSTER_ID)))
    await _write(store, list(_writes(node for node in nodes if node.path == paths.CLUSTER_ID)))


async def _write(store: Target, writes: Sequence[Create | SetData]) -> None:
    for first in range(0, len(writes), WRITES_AT_A_TIME):
        for outcome in await store.batch(writes[first : first + WRITES_AT_A_TIME]):
            if isinstance(outcome, NodeError):
                raise outcome


def _writes(nodes: Iterable[Node]) -> Iterator[Create | SetData]:
    """What makes these nodes."""
    for node in nodes:
        yield Create(node.path, node.data)
        for _ in range(node.version):
            yield SetData(node.path, node.data)


# -- JSON


def format_nodes(nodes: Sequence[Node]) -> str:
    """The text of an export."""
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
    if isinstance(value, dict) and _compact(value) == text:
        return {**encoded, "json": value}
    return {**encoded, "text": text}


def _decode(encoded: object, number: int) -> Node:
    """One node of an export."""
    where = f"node {number}"
    if not isinstance(encoded, dict) or not isinstance(encoded.get("path"), str):
        raise ExportMalformed(f'{where} has no "path"')
    path, version = encoded["path"], encoded.get("version", 0)
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
