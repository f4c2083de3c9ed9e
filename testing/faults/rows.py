"""Where the rows of an API are: the parts of a request that are refused or carried out each for itself (pure).

A `Layout` says it for some versions of an API: the arrays on the way from the message to its rows, and the fields of
their elements that name a topic, a partition, a group or a transactional id. `row_cuts.py` cuts messages by it.
"""

from collections.abc import Mapping
from typing import NamedTuple

TOPIC_RESOURCE = 2
NEWEST = 99  # above every version


class Level(NamedTuple):
    """One array on the way to the rows: its field, and the field of its elements that names the subject.

    `key` is None if the elements are the names themselves. `id_key` is the field of a topic id that may stand in place
    of the name. `only` is a field with the value that an element must have to be of the subject.
    """

    field: str
    key: str | None
    subject: str
    id_key: str | None = None
    only: tuple[str, int] | None = None


class Layout(NamedTuple):
    """Where the rows are in some versions of an API.

    `refused` has the fields of a refused row beside its names, where the API's own refusal of a whole request has no
    such rows; the value of a field of the error code is left out.
    """

    request: tuple[Level, ...]
    response: tuple[Level, ...]
    first_version: int = 0
    last_version: int = NEWEST
    refused: Mapping[str, object] | None = None

    @property
    def subjects(self) -> set[str]:
        """What a row can be named by."""
        return {level.subject for level in self.request}


def _levels(**fields: str) -> tuple[Level, ...]:
    """Subject -> the array's field, a dot, and the field of the name in its elements."""
    return tuple(
        Level(text.partition(".")[0], text.partition(".")[2] or None, subject) for subject, text in fields.items()
    )


_TOPICS = _levels(topic="topics.name", partition="partitions.partition_index")
_TOPICS_OF_INDEXES = _levels(topic="topics.name", partition="partition_indexes")
_IS_TOPIC = ("resource_type", TOPIC_RESOURCE)
_RESOURCES = (Level("resources", "resource_name", "topic", only=_IS_TOPIC),)
_OF_RESOURCES = (Level("responses", "resource_name", "topic", only=_IS_TOPIC),)
_TOPICS_OR_IDS = (Level("topics", "name", "topic", "topic_id"),)
_GROUPS = _levels(group="groups.group_id")
_NO_OFFSET = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": None}

# API key -> its layouts. Of those that fit a version and have all subjects that are asked for, the first one counts.
LAYOUTS: dict[int, tuple[Layout, ...]] = {
    # Produce
    0: (
        Layout(
            _levels(topic="topic_data.name", partition="partition_data.index"),
            _levels(topic="responses.name", partition="partition_responses.index"),
        ),
    ),
    # Fetch
    1: (
        Layout(
            (Level("topics", "topic", "topic", "topic_id"), *_levels(partition="partitions.partition")),
            (Level("responses", "topic", "topic", "topic_id"), *_levels(partition="partitions.partition_index")),
        ),
    ),
    # ListOffsets
    2: (Layout(_TOPICS, _TOPICS),),
    # Metadata
    3: (Layout(_TOPICS_OR_IDS, _TOPICS_OR_IDS),),
    # OffsetCommit
    8: (Layout(_TOPICS, _TOPICS),),
    # OffsetFetch: from version 2 on its refusal is an error of the whole, from version 8 on of each group.
    9: (
        Layout(_TOPICS_OF_INDEXES, _TOPICS, 0, 1),
        Layout(_TOPICS_OF_INDEXES, _TOPICS, 2, 7, _NO_OFFSET),
        Layout(_GROUPS, _GROUPS, 8),
        Layout(_GROUPS + _TOPICS_OF_INDEXES, _GROUPS + _TOPICS, 8, NEWEST, _NO_OFFSET),
    ),
    # FindCoordinator: a field of the request says which of the two its keys are.
    10: (
        Layout(_levels(group="coordinator_keys"), _levels(group="coordinators.key"), 4),
        Layout(_levels(transactional_id="coordinator_keys"), _levels(transactional_id="coordinators.key"), 4),
    ),
    # DescribeGroups
    15: (Layout(_levels(group="groups"), _GROUPS),),
    # CreateTopics
    19: (Layout(_levels(topic="topics.name"), _levels(topic="topics.name")),),
    # DeleteTopics
    20: (
        Layout(_levels(topic="topic_names"), _levels(topic="responses.name"), 0, 5),
        Layout(_TOPICS_OR_IDS, (Level("responses", "name", "topic", "topic_id"),), 6),
    ),
    # DeleteRecords
    21: (Layout(_TOPICS, _TOPICS),),
    # OffsetForLeaderEpoch
    23: (
        Layout(
            _levels(topic="topics.topic", partition="partitions.partition"),
            _levels(topic="topics.topic", partition="partitions.partition"),
        ),
    ),
    # AddPartitionsToTxn: from version 4 on its refusal is an error of the whole.
    24: (
        Layout(
            _levels(topic="v3_and_below_topics.name", partition="partitions"),
            _levels(topic="results_by_topic_v3_and_below.name", partition="results_by_partition.partition_index"),
            0,
            3,
        ),
        Layout(
            _levels(transactional_id="transactions.transactional_id", topic="topics.name", partition="partitions"),
            _levels(
                transactional_id="results_by_transaction.transactional_id",
                topic="topic_results.name",
                partition="results_by_partition.partition_index",
            ),
            4,
            NEWEST,
            {"partition_error_code": None},
        ),
    ),
    # TxnOffsetCommit
    28: (Layout(_TOPICS, _TOPICS),),
    # DescribeConfigs, AlterConfigs
    32: (Layout(_RESOURCES, (Level("results", "resource_name", "topic", only=_IS_TOPIC),)),),
    33: (Layout(_RESOURCES, _OF_RESOURCES),),
    # CreatePartitions
    37: (Layout(_levels(topic="topics.name"), _levels(topic="results.name")),),
    # DeleteGroups
    42: (Layout(_levels(group="groups_names"), _levels(group="results.group_id")),),
    # ElectLeaders: its refusal has an error of the whole as well.
    43: (
        Layout(
            _levels(topic="topic_partitions.topic", partition="partitions"),
            _levels(topic="replica_election_results.topic", partition="partition_result.partition_id"),
            refused={"error_code": None, "error_message": None},
        ),
    ),
    # IncrementalAlterConfigs
    44: (Layout(_RESOURCES, _OF_RESOURCES),),
    # OffsetDelete: its refusal is an error of the whole.
    47: (Layout(_TOPICS, _TOPICS, refused={"error_code": None}),),
    # DescribeProducers
    61: (Layout(_TOPICS_OF_INDEXES, _TOPICS),),
    # DescribeTransactions
    65: (
        Layout(
            _levels(transactional_id="transactional_ids"),
            _levels(transactional_id="transaction_states.transactional_id"),
        ),
    ),
}
