"""The tables of docs/metrics.md (pure)."""

from barnabas.console.metric_table import (
    CONTROLLER,
    COORDINATORS,
    LOGS,
    NETWORK,
    PROCESSES,
    REPLICAS,
    REQUESTS,
    TOPICS,
    TOPICS_AND_GROUPS,
    Metric,
)

SECTIONS = {
    "Topics": TOPICS,
    "Requests": REQUESTS,
    "Network and load": NETWORK,
    "Replicas": REPLICAS,
    "Logs": LOGS,
    "Controller and store": CONTROLLER,
    "Coordinators": COORDINATORS,
    "Topics and groups, as kafka_exporter has them": TOPICS_AND_GROUPS,
    "Process": PROCESSES,
}


def metrics_page() -> str:
    """A table for each section."""
    # The order is that of the exposition, so that a reader finds a line of one in the other.
    parts: list[str] = []
    for title, rows in SECTIONS.items():
        parts += [f"### {title}", "", "| name | type | labels | meaning | in Kafka |", "|-|-|-|-|-|"]
        parts += [_row(metric) for metric in rows]
        parts.append("")
    return "\n".join(parts).rstrip()


def _row(metric: Metric) -> str:
    # A label that only some samples have is in parentheses.
    labels = ", ".join(f"(`{each[:-1]}`)" if each.endswith("?") else f"`{each}`" for each in metric.labels)
    source = f"`{metric.mbean}`" if ":" in metric.mbean else metric.mbean
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.meaning} | {source} |"
