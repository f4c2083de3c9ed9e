"""What must hold between several properties (Kafka checks the same when it starts).

Each rule names the properties to look at, so that the error can say where they were set.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.config.attributes import BrokerAttributes
from barnabas.broker.config.listeners import Endpoint, parse_connection_limits, parse_endpoints, parse_protocols


class Problem(NamedTuple):
    """A rule that does not hold: the properties to look at, the likeliest first, and why."""

    names: tuple[str, ...]
    why: str


class Rule(NamedTuple):
    """Something that must be true of a whole configuration."""

    names: tuple[str, ...]
    holds: Callable[[BrokerAttributes], bool]
    otherwise: str


RULES = (
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

NO_LISTENER = "requirement failed: There must be at least one broker advertised listener."


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


def listener_problems(config: BrokerAttributes) -> list[Problem]:
    """What is wrong with the listeners, and with the limits on connections."""
    try:
        protocols = parse_protocols(config.listener_security_protocol_map)
    except ValueError as error:
        return [Problem(("listener.security.protocol.map",), str(error))]
    problems = []
    parsed: dict[str, tuple[Endpoint, ...]] = {}
    for name, text in (("listeners", config.listeners), ("advertised.listeners", config.advertised_listeners or "")):
        try:
            parsed[name] = parse_endpoints(text, protocols)
        except ValueError as error:
            problems.append(Problem((name,), f"Error creating broker listeners from '{text}': {error}"))
    try:
        parse_connection_limits(config.max_connections_per_ip_overrides)
    except ValueError as error:
        problems.append(Problem(("max.connections.per.ip.overrides",), str(error)))
    if problems:
        return problems
    return _endpoint_problems(config, parsed["listeners"], parsed["advertised.listeners"])


def _endpoint_problems(
    config: BrokerAttributes, bound: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...]
) -> list[Problem]:
    problems = []
    if not bound:
        problems.append(Problem(("listeners",), NO_LISTENER))
    if config.advertised_listeners is not None and not advertised:
        problems.append(Problem(("advertised.listeners",), NO_LISTENER))
    names = [endpoint.listener for endpoint in bound]
    if len(set(names)) != len(names):
        problems.append(
            Problem(("listeners",), f"Each listener must have a different name, listeners: {config.listeners}")
        )
    addresses = [(endpoint.host, endpoint.port) for endpoint in bound if endpoint.port]
    if len(set(addresses)) != len(addresses):
        problems.append(
            Problem(("listeners",), f"Each listener must have a different port, listeners: {config.listeners}")
        )
    for endpoint in bound:
        if endpoint.protocol != "PLAINTEXT":
            why = f"listener {endpoint.listener} uses {endpoint.protocol}: only PLAINTEXT is served"
            problems.append(Problem(("listeners",), why))
    problems += _advertised_problems(names, advertised)
    among_brokers = config.inter_broker_listener_name or config.security_inter_broker_protocol
    if names and among_brokers not in names:
        why = (
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(names)}"
        )
        problems.append(Problem(("inter.broker.listener.name", "listeners"), why))
    return problems


def _advertised_problems(names: list[str], advertised: tuple[Endpoint, ...]) -> list[Problem]:
    problems = []
    for endpoint in advertised:
        if endpoint.host in ("0.0.0.0", "::"):
            why = (
                f"advertised.listeners cannot use the nonroutable meta-address {endpoint.host}. "
                "Use a routable IP address."
            )
            problems.append(Problem(("advertised.listeners",), why))
        if endpoint.listener not in names:
            why = f"advertised.listeners names {endpoint.listener}, which is not among listeners ({','.join(names)})"
            problems.append(Problem(("advertised.listeners",), why))
    return problems
