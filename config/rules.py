"""What must hold between several properties (Kafka checks the same when it starts).

Each rule names the properties to look at, so that the error can say where they were set.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.config.attributes import BrokerAttributes
from barnabas.config.listener_rules import Problem, listener_problems


class Rule(NamedTuple):
    """Something that must be true of a whole configuration."""

    names: tuple[str, ...]
    holds: Callable[[BrokerAttributes], bool]
    otherwise: str


RULES = (
    Rule(
        ("super.users",),
        lambda c: c.super_users == "" or all(":" in each for each in c.super_users.rstrip(";").split(";")),
        "super.users must be principals in the format principalType:principalName, separated by semicolons",
    ),
    Rule(
        ("node.id", "broker.id"),
        lambda c: c.node_id == c.broker_id,
        "You must set `node.id` to the same value as `broker.id`.",
    ),
    Rule(
        ("broker.id",),
        lambda c: not c.broker_id_generation_enable or -1 <= c.broker_id <= c.reserved_broker_max_id,
        "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
    ),
    Rule(
        ("broker.id",),
        lambda c: c.broker_id_generation_enable or c.broker_id >= 0,
        "broker.id must be greater than or equal to 0",
    ),
    Rule(
        ("log.roll.ms",),
        lambda c: c.log_roll_ms is None or c.log_roll_ms >= 1,
        "log.roll.ms must be greater than or equal to 1",
    ),
    Rule(
        ("log.roll.jitter.ms",),
        lambda c: c.log_roll_jitter_ms is None or c.log_roll_jitter_ms >= 0,
        "log.roll.jitter.ms must be greater than or equal to 0",
    ),
    Rule(
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        lambda c: 0 not in _retention_choices(c),
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ),
    Rule(
        ("log.dirs", "log.dir"),
        lambda c: bool(_log_directories(c)),
        "At least one log directory must be defined via log.dirs or log.dir.",
    ),
    Rule(
        ("queued.max.request.bytes", "socket.request.max.bytes"),
        lambda c: c.queued_max_request_bytes <= 0 or c.queued_max_request_bytes >= c.socket_request_max_bytes,
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    Rule(
        ("max.connections.per.ip",),
        lambda c: c.max_connections_per_ip > 0 or c.max_connections_per_ip_overrides != "",
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    ),
    Rule(
        ("offsets.commit.required.acks", "offsets.topic.replication.factor"),
        lambda c: -1 <= c.offsets_commit_required_acks <= c.offsets_topic_replication_factor,
        "offsets.commit.required.acks must be greater or equal to -1 and less or equal to "
        "offsets.topic.replication.factor",
    ),
    Rule(
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        lambda c: c.replica_fetch_wait_max_ms <= c.replica_socket_timeout_ms,
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket "
        "timeouts",
    ),
    Rule(
        ("replica.lag.time.max.ms", "replica.fetch.wait.max.ms"),
        lambda c: c.replica_fetch_wait_max_ms <= c.replica_lag_time_max_ms,
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent "
        "changes in ISR",
    ),
    Rule(
        ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
        lambda c: not c.log_cleaner_enable or c.log_cleaner_dedupe_buffer_size >= c.log_cleaner_threads << 20,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    Rule(
        ("offsets.topic.compression.codec",),
        lambda c: 0 <= c.offsets_topic_compression_codec <= 4,
        "Unknown compression type id: expected 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)",
    ),
    Rule(
        ("group.coordinator.rebalance.protocols",),
        lambda c: "classic" in c.group_coordinator_rebalance_protocols,
        "Disabling the 'classic' protocol is not supported.",
    ),
)


def find_problems(config: BrokerAttributes) -> list[Problem]:
    """Every rule that does not hold, and what is wrong with the listeners."""
    problems = [Problem(rule.names, rule.otherwise) for rule in RULES if not rule.holds(config)]
    return problems + listener_problems(config)


def _retention_choices(config: BrokerAttributes) -> tuple[int | None, ...]:
    """The retention that holds: the first of ms, minutes and hours that is set."""
    choices = (config.log_retention_ms, config.log_retention_minutes, config.log_retention_hours)
    return tuple(choice for choice in choices if choice is not None)[:1]


def _log_directories(config: BrokerAttributes) -> list[str]:
    text = config.log_dir if config.log_dirs is None else config.log_dirs
    return [part for part in text.split(",") if part.strip()]
