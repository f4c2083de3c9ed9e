"""The functions that a record or a request passes through, for the tours in docs/architecture.md and a summary for
README.md; and how long the ways may be.
"""

import ast
import textwrap
from typing import NamedTuple

from tests.rooms import ring_of, tree_of

Stops = tuple[tuple[str, str], ...]  # (file, function), in the order in which they run

# The first one of a producer. It leaves its shape with the connection.
FIRST_PRODUCE: Stops = (
    ("broker/server/connection.py", "_serve_requests"),
    ("broker/server/connection.py", "_answer_frame"),
    ("broker/server/dispatch.py", "respond"),
    ("broker/server/dispatch.py", "_respond_to"),
    ("broker/server/dispatch.py", "_handle"),
    ("broker/handlers/produce.py", "produce"),
    ("broker/handlers/produce.py", "_look_through"),
    ("broker/handlers/produce.py", "_append"),
    ("replication/appending.py", "begin"),
    ("wire/records.py", "check_small"),
    ("replication/appending.py", "append"),
    ("replication/partition.py", "Partition.append_as_leader"),
    ("storage/log.py", "PartitionLog.append_as_leader"),
    ("storage/osdisk.py", "OsFile.write"),
)
# Those that follow.
PRODUCE: Stops = (
    ("broker/server/connection.py", "_serve_requests"),
    ("broker/now/shapes.py", "Shapes.answer"),
    ("broker/now/produce.py", "ProduceShape.answer"),
    ("broker/now/produce.py", "ProduceShape._records_of"),
    ("replication/appending.py", "begin"),
    ("wire/records.py", "check_small"),
    ("replication/appending.py", "append"),
    ("replication/partition.py", "Partition.append_as_leader"),
    ("storage/log.py", "PartitionLog.append_as_leader"),
    ("storage/osdisk.py", "OsFile.write"),
    ("broker/server/sending.py", "send_at_once"),
)
# The first one of a consumer.
FIRST_FETCH: Stops = (
    ("broker/handlers/fetch.py", "fetch"),
    ("broker/handlers/fetch.py", "_answer"),
    ("broker/handlers/fetch.py", "_fill"),
    ("broker/fetching/plan.py", "FetchPlan.plan"),
    ("broker/fetching/plan.py", "FetchPlan._read"),
    ("replication/partition.py", "Partition.read"),
    ("storage/log.py", "PartitionLog.read"),
    ("broker/fetching/plan.py", "FetchPlan._add_records"),
    ("broker/server/dispatch.py", "_encode"),
    ("broker/server/sending.py", "send_at_once"),
    ("broker/server/sending.py", "send_on"),
)
# Those that follow.
FETCH: Stops = (
    ("broker/now/fetch.py", "FetchShape.answer"),
    ("broker/now/fetch.py", "FetchShape._continued"),
    ("broker/now/waiting.py", "WaitingFetch.begin"),
    ("broker/now/waiting.py", "WaitingFetch._plan_some"),
    ("broker/fetching/plan.py", "FetchPlan.plan"),
    ("broker/fetching/plan.py", "FetchPlan._read"),
    ("replication/partition.py", "Partition.read"),
    ("storage/log.py", "PartitionLog.read"),
    ("broker/fetching/plan.py", "FetchPlan._add_records"),
    ("broker/now/waiting.py", "WaitingFetch.finish"),
    ("broker/now/waiting.py", "WaitingFetch._respond"),
    ("broker/now/fetch.py", "FetchShape.filled"),
    ("broker/server/sending.py", "send_at_once"),
)
TRANSACTIONS = "coordinators/transactions/coordinator.py"
RUNTIME = "coordinators/runtime/runtime.py"
SHARDS = "coordinators/runtime/shards.py"
END_TXN: Stops = (
    ("broker/handlers/transactions.py", "end_txn"),
    (TRANSACTIONS, "TransactionCoordinator.end"),
    (RUNTIME, "Runtime.write"),
    (SHARDS, "Shards.find"),
    (RUNTIME, "Runtime.step"),
    (TRANSACTIONS, "TransactionCoordinator._decide"),
    ("coordinators/transactions/decide.py", "decide"),
    ("coordinators/transactions/decide.py", "decide_end"),
    ("coordinators/transactions/records.py", "encode_record"),
    ("replication/partition.py", "Partition.append_as_leader"),
    ("storage/log.py", "PartitionLog.append_as_leader"),
    ("coordinators/transactions/state.py", "replay"),
    (TRANSACTIONS, "TransactionCoordinator._act"),
    (SHARDS, "Shards.await_committed"),
    ("replication/partition.py", "Partition.await_high_watermark"),
)
GROUPS = "coordinators/groups/coordinator.py"
GROUP_SHARDS = "coordinators/groups/shards.py"
JOINING = "coordinators/groups/classic/joining.py"
# Of a new dynamic member that has its member id.
JOIN_GROUP: Stops = (
    ("broker/handlers/groups.py", "join_group"),
    (GROUPS, "GroupCoordinator.join"),
    (RUNTIME, "Runtime.write"),
    (SHARDS, "Shards.find"),
    (RUNTIME, "Runtime.step"),
    (GROUPS, "GroupCoordinator._join"),
    (GROUPS, "GroupCoordinator._group_to_join"),
    (GROUP_SHARDS, "GroupShards.happen"),
    (GROUP_SHARDS, "GroupShards._happen"),
    ("coordinators/groups/classic/decisions.py", "decide"),
    (JOINING, "decide_join"),
    (JOINING, "_join_known"),
    (JOINING, "_add"),
    ("coordinators/groups/classic/state.py", "apply_member_added"),
    ("coordinators/groups/classic/rebalance.py", "prepare_rebalance"),
    (GROUP_SHARDS, "GroupShards._follow"),
    (GROUP_SHARDS, "GroupShards._set_timers"),
    (GROUPS, "GroupCoordinator._answer"),
    (GROUPS, "GroupCoordinator._hold"),
    ("broker/handlers/groups.py", "_join_response"),
)
ALTERATION = "broker/handlers/configs.py"
FOLLOWED = "broker/cluster/dynamic_config.py"
# Of a topic, until this broker has applied it.
ALTER_CONFIGS: Stops = (
    (ALTERATION, "alter_configs"),
    (ALTERATION, "_Alteration.carry_out"),
    ("config/alter.py", "check_changes"),
    (ALTERATION, "_Alteration._alter"),
    (ALTERATION, "_Alteration._alter_topic"),
    (ALTERATION, "_Alteration._authorize"),
    (ALTERATION, "_Alteration._write"),
    ("controller/admin/entity_configs.py", "rewrite_entity"),
    (ALTERATION, "_Alteration._texts_after"),
    ("config/alter.py", "apply_operations"),
    ("config/alter.py", "check_topic"),
    ("controller/admin/entity_configs.py", "_write"),
    ("controller/store/store.py", "MetadataStore.multi"),
    ("controller/store/sqlitestore.py", "SqliteStore.batch"),
    (FOLLOWED, "DynamicConfig.await_applied"),
    ("controller/store/following.py", "Following.run"),
    (FOLLOWED, "DynamicConfig._look"),
    (FOLLOWED, "DynamicConfig._take"),
    (FOLLOWED, "DynamicConfig._entity"),
    (FOLLOWED, "DynamicConfig._apply"),
    (FOLLOWED, "DynamicConfig._topic_changed"),
    ("replication/topic_configs.py", "TopicConfigs.reload"),
    ("replication/topic_configs.py", "TopicConfigs.read"),
    ("config/live.py", "TopicConfig.update"),
    ("replication/replicas.py", "Replicas.reconfigured"),
    ("replication/partition.py", "Partition.look_again"),
)


class Way(NamedTuple):
    """The stops of an ordinary request, and how many files and lines they may have."""

    stops: Stops
    files_max: int
    lines_max: int


# These numbers only ever fall.
WAYS = {
    "the first Produce": Way(FIRST_PRODUCE, files_max=12, lines_max=530),
    "Produce": Way(PRODUCE, files_max=9, lines_max=335),
    "the first Fetch": Way(FIRST_FETCH, files_max=9, lines_max=362),
    "Fetch": Way(FETCH, files_max=9, lines_max=305),
    "EndTxn": Way(END_TXN, files_max=9, lines_max=400),
    "JoinGroup": Way(JOIN_GROUP, files_max=9, lines_max=480),
    "AlterConfigs": Way(ALTER_CONFIGS, files_max=12, lines_max=480),
}
# The way of a Produce in a picture: (file, what it hands on or asks, file). What is no file stands for itself.
RECORDS_WAY = (
    ("a producer", "bytes", "world/net.py"),
    ("world/net.py", "bytes", "broker/server/connection.py"),
    ("broker/server/connection.py", "one frame", "broker/now/produce.py"),
    ("broker/now/produce.py", "batch", "replication/appending.py"),
    ("broker/server/connection.py", "a frame of another shape", "broker/server/dispatch.py"),
    ("broker/server/dispatch.py", "decode", "wire/messages.py"),
    ("broker/server/dispatch.py", "ProduceRequest", "broker/handlers/produce.py"),
    ("broker/handlers/produce.py", "batch", "replication/appending.py"),
    ("replication/appending.py", "is this batch sound?", "wire/records.py"),
    ("replication/appending.py", "batch", "replication/partition.py"),
    ("replication/partition.py", "append", "storage/log.py"),
    ("storage/log.py", "sequence numbers", "storage/producers.py"),
    ("storage/log.py", "batch with its offsets", "storage/segment.py"),
    ("storage/segment.py", "index entries", "storage/index.py"),
    ("storage/segment.py", "one pwrite", "storage/osdisk.py"),
    ("storage/osdisk.py", "bytes", "the page cache"),
)
RING_COLOURS = {"pure": "#cfe8cf", "shell": "#cfdcf5", "edge": "#f5d7c0"}


def picture_of_the_way() -> str:
    """`RECORDS_WAY` as a Mermaid diagram; files have the colour of their ring."""
    ends = dict.fromkeys(end for start, _, target in RECORDS_WAY for end in (start, target))
    names = {end: f"n{number}" for number, end in enumerate(ends)}
    nodes = [
        f'    {name}["{end}"]:::{ring_of(end)}' if end.endswith(".py") else f'    {name}(["{end}"])'
        for end, name in names.items()
    ]
    arrows = [f'    {names[start]} -->|"{what}"| {names[target]}' for start, what, target in RECORDS_WAY]
    colours = [f"    classDef {ring} fill:{colour},color:#000" for ring, colour in RING_COLOURS.items()]
    return "\n".join(["```mermaid", "graph TD", *nodes, *arrows, *colours, "```"])


def tour(stops: Stops) -> str:
    """These functions with the count of their lines; the last row is the sum. KeyError for an unknown one."""
    rows = [f"| [{file}](../{file}) | `{name}` | {_lines_of(file, name)} |" for file, name in stops]
    files, total = size_of(stops)
    return "\n".join(["| file | function | lines |", "|-|-|-:|", *rows, f"| {files} files | | {total} |"])


def size_of(stops: Stops) -> tuple[int, int]:
    """The number of the files in which these functions are, and the sum of the functions' lines."""
    return len({file for file, _ in stops}), sum(_lines_of(*stop) for stop in stops)


def summary(stops: Stops) -> str:
    """A paragraph with the number of these functions, their lines (in fifties), and links to their files."""
    lines = 50 * round(sum(_lines_of(*stop) for stop in stops) / 50)
    *files, last = [f"[{file.rpartition('/')[2]}]({file})" for file in dict.fromkeys(file for file, _ in stops)]
    text = (
        f"It lists the [{len(stops)} functions](docs/architecture.md#a-records-way) that take a record from the socket"
        f" to the disk, together some {lines} lines with their comments, in {', '.join(files)} and {last}."
    )
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False))


def _lines_of(file: str, name: str) -> int:
    """With decorators left out, docstring and comments included."""
    function = _functions_of(file)[name]
    return (function.end_lineno or 0) - function.lineno + 1


def _functions_of(file: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a file, and the methods of its classes, by qualified name."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for node in tree_of(file).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + member.name] = member
    return found
