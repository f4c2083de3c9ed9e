"""The functions that a record passes through, for the tour in docs/architecture.md."""

import ast

from tests.rooms import tree_of

# (file, function), in the order in which they run.
PRODUCE = (
    ("broker/server/connection.py", "_serve_requests"),
    ("broker/server/connection.py", "_answer_frame"),
    ("broker/server/dispatch.py", "respond"),
    ("broker/server/dispatch.py", "_respond_to"),
    ("broker/server/dispatch.py", "_handle"),
    ("broker/handlers/produce.py", "produce"),
    ("broker/handlers/produce.py", "_look_through"),
    ("broker/handlers/produce.py", "_append"),
    ("wire/records.py", "check_small"),
    ("broker/replication/partition.py", "Partition.append_as_leader"),
    ("storage/log.py", "PartitionLog.append_as_leader"),
    ("storage/osdisk.py", "OsFile.write"),
)
FETCH = (
    ("broker/handlers/fetch.py", "fetch"),
    ("broker/handlers/fetch.py", "_answer"),
    ("broker/handlers/fetch.py", "_fill"),
    ("broker/fetching/plan.py", "FetchPlan.plan"),
    ("broker/fetching/plan.py", "FetchPlan._read"),
    ("broker/replication/partition.py", "Partition.read"),
    ("storage/log.py", "PartitionLog.read"),
    ("broker/fetching/plan.py", "FetchPlan._add_records"),
    ("broker/server/dispatch.py", "_encode"),
    ("broker/server/sending.py", "send"),
)


def tour(stops: tuple[tuple[str, str], ...]) -> str:
    """These functions with the count of their lines; the last row is the sum. KeyError for an unknown one."""
    rows, total = [], 0
    for file, name in stops:
        function = _functions_of(file)[name]
        lines = (function.end_lineno or 0) - function.lineno + 1
        total += lines
        rows.append(f"| [{file}](../{file}) | `{name}` | {lines} |")
    files = len({file for file, _ in stops})
    return "\n".join(["| file | function | lines |", "|-|-|-:|", *rows, f"| {files} files | | {total} |"])


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
