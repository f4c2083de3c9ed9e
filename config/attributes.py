"""The classes whose attributes are the properties; their types are in `attributes.pyi`, generated from the tables."""

from barnabas.config.table import TOPIC_TABLE


class BrokerAttributes:
    """One attribute for each broker property."""


class TopicAttributes:
    """One attribute for each topic property, as a slot: they are read at every append."""

    __slots__ = tuple(row.attribute for row in TOPIC_TABLE.values())
