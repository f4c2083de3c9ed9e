"""The whole table of configuration, by name, and Barnabas' deviations from Kafka's defaults.

Everything about properties comes from these rows: reading `server.properties` and `--set`, the typed attributes of
`live.py`, the answers to DescribeConfigs and AlterConfigs, and the documentation. Reference F lists Kafka's defaults.
"""

from typing import NamedTuple

from barnabas.config.checks import LONG_MAX, Value, at_least
from barnabas.config.property import LONG, READ_ONLY, SERVED, Property, row
from barnabas.config.tables.cluster import CLUSTER_PROPERTIES
from barnabas.config.tables.groups import GROUPS_PROPERTIES
from barnabas.config.tables.log import LOG_PROPERTIES
from barnabas.config.tables.network import NETWORK_PROPERTIES
from barnabas.config.tables.remote import REMOTE_PROPERTIES
from barnabas.config.tables.security import SECURITY_PROPERTIES
from barnabas.config.tables.topic import TOPIC_PROPERTIES

BROKER_TABLE: dict[str, Property] = {
    each.name: each
    for each in (
        *CLUSTER_PROPERTIES,
        *NETWORK_PROPERTIES,
        *LOG_PROPERTIES,
        *GROUPS_PROPERTIES,
        *SECURITY_PROPERTIES,
        *REMOTE_PROPERTIES,
    )
}
TOPIC_TABLE: dict[str, Property] = {each.name: each for each in TOPIC_PROPERTIES}
# Lists whose order says nothing: a topic has them as sets, for each append or fetch looks into them.
TOPIC_SETS = ("cleanup_policy", "leader_replication_throttled_replicas", "follower_replication_throttled_replicas")

# AlterConfigs knows these, and `server.properties` does not: an administrator sets them for the
# time of a move. DescribeConfigs shows them as read-only, because Kafka's looks only into the
# broker's own table to see what is dynamic.
MOVE_TABLE: dict[str, Property] = {
    name: row(name, LONG, LONG_MAX, at_least(0), READ_ONLY, SERVED, f"Bytes a second that {what}.")
    for name, what in (
        ("leader.replication.throttled.rate", "throttled replicas outside the ISR may read from this leader"),
        ("follower.replication.throttled.rate", "throttled replicas here may fetch while they are out of sync"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "moves between log directories may read, all together"),
    )
}


class Deviation(NamedTuple):
    """A default that is not Kafka's."""

    name: str
    default: Value
    embedded_only: bool  # with zookeeper.connect set, Kafka's own default holds
    reason: str


DEVIATIONS = (
    Deviation(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        True,
        "A broker that was started without any configuration is reached from its own machine only.",
    ),
    Deviation("log.dir", "barnabas-data", True, "The folder it was started in, for a temporary one loses the data."),
    Deviation("offsets.topic.replication.factor", 1, True, "There is one broker."),
    Deviation("transaction.state.log.replication.factor", 1, True, "There is one broker."),
    Deviation("transaction.state.log.min.isr", 1, True, "There is one broker."),
    Deviation("group.initial.rebalance.delay.ms", 0, True, "A consumer in a test or on a laptop gets records at once."),
)


def broker_defaults(*, embedded_store: bool) -> dict[str, Value]:
    """Every broker property's default, deviations included."""
    defaults = {name: row.default for name, row in BROKER_TABLE.items()}
    for deviation in DEVIATIONS:
        if deviation.name in defaults and (embedded_store or not deviation.embedded_only):
            defaults[deviation.name] = deviation.default
    return defaults
