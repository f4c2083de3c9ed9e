"""The rows of the ACL matrix: a request for each API and each way to ask it, with all that it needs.

Most are those of the unit tests (`NEEDS`), where each right that a request needs is written `Read Topic t`. Names and
ids in them stand for something that differs from row to row, or from broker to broker: `PLACEHOLDERS`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.security.acls.acls import CLUSTER_NAME
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of
from tests.broker.handlers.authorized import (
    ANY_RULE,
    BATCH,
    COMMITS,
    CONFIGS,
    FETCHED,
    LIST_OFFSETS,
    NEEDS,
    PARTITION_0,
    make,
)

PRODUCER_ID, TOPIC_ID, HMAC, TOKEN, OWNER = 424242, b"the id of topic ", b"the HMAC of the token", "token", "owner"
BATCH_OF_PRODUCER = b"a transactional batch of the producer id"
# What a name or an id stands for. Everything but `u` and `none` exists before the row is asked.
PLACEHOLDERS: Mapping[Any, str] = {
    "t": "a topic with one record",
    TOPIC_ID: "its id",
    "u": "a topic that does not exist",
    "none": "another one",
    "whatever": "another one",
    "g": "a group with a committed offset",
    "x": "a transactional id",
    PRODUCER_ID: "its producer id",
    BATCH_OF_PRODUCER: "a batch with it",
    OWNER: "a user to whom a delegation token belongs",
    f"User:{OWNER}": "the same, as a resource",
    TOKEN: "the id of that token",
    HMAC: "its HMAC",
    "r": "a topic that an ACL of another principal is about",
}
STRANGER = "stranger"  # that principal
IN_TRANSACTION = {"name": "t", "partition_data": [{"index": 0, "records": BATCH_OF_PRODUCER}]}


class Need(NamedTuple):
    """An operation that must be allowed on a resource; `name` is a placeholder or a name."""

    operation: str
    resource_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} {self.resource_type}"


class Row(NamedTuple):
    """A request of this version, and everything that it needs."""

    name: str
    request: m.Message
    version: int
    needs: tuple[Need, ...]
    has_own_resources: bool = False  # each case: an allowed request changes them
    is_last: bool = False  # lists of everything change by it, and some time after the answer
    is_unanswered: bool = False  # by Kafka, if it is refused


def need_of(text: str) -> Need:
    operation, kind, *name = text.split()
    return Need(operation, kind, name[0] if name else CLUSTER_NAME)


def row_of(request: m.Message, version: int | None, needs: list[str], label: str = "", **marks: bool) -> Row:
    api = APIS[key_of(request)]
    used = api.max_version if version is None else version
    parsed = tuple(need_of(each) for each in needs)
    title = f"{api.name} v{used}{label and f' {label}'}, needs {', '.join(map(str, parsed)) or 'nothing'}"
    return Row(title, request, used, parsed, **marks)


CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DELETE_GROUPS = 19, 20, 37, 42
CHANGING = {CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DELETE_GROUPS}
LATE = {CREATE_TOPICS, DELETE_TOPICS}
# Requests of NEEDS about everything that exists; `FURTHER` has one about a part.
ABOUT_EVERYTHING = (m.DescribeUserScramCredentialsRequest, m.DescribeLogDirsRequest, m.DescribeAclsRequest)
OWN = {"has_own_resources": True}
LAST = {"has_own_resources": True, "is_last": True}
UNANSWERED = {"is_unanswered": True}

NEW = {"name": "u", "num_partitions": 1, "replication_factor": 1}
IN_X = {"transactional_id": "x", "producer_id": PRODUCER_ID, "producer_epoch": 0}
ADDED_TO_X = {f"v3_and_below_{name}": value for name, value in IN_X.items()} | {"v3_and_below_topics": PARTITION_0}
TO_TWO = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]} for name in ("t", "none")]
FETCHED_BY_ID = [{"topic_id": TOPIC_ID, "partitions": [{"partition": 0, "partition_max_bytes": 100}]}]
OF_T = [{"name": "t", "partition_indexes": [0]}]
FETCHED_TWO = [{"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 100}]} for name in ("t", "none")]
OF_OWNER = {"principal_type": "User", "principal_name": OWNER}
FOR_OWNER = {f"owner_{name}": value for name, value in OF_OWNER.items()}
ABOUT_R = {"resource_type_filter": 2, "resource_name_filter": "r", "principal_filter": f"User:{STRANGER}"}
KEYS = ["log.retention.hours", "num.network.threads"]
NO_LOGGER = ["no.such.logger"]  # the others differ
CHANGED_CONFIG = {"name": "max.message.bytes", "config_operation": 0, "value": "200000"}
ALL_TOPICS = make("Metadata", topics=None, include_topic_authorized_operations=True)
OPS_OF_T = make("Metadata", topics=[{"name": "t"}], include_topic_authorized_operations=True)
OPS_OF_CLUSTER = make("Metadata", topics=[], include_cluster_authorized_operations=True)
AUTO_CREATED = make("Metadata", topics=[{"name": "none"}], allow_auto_topic_creation=True)
NAMED_OFFSETS = make("OffsetFetch", groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}])
ALL_OFFSETS = make("OffsetFetch", groups=[{"group_id": "g", "topics": None}])
OPS_OF_G = make("DescribeGroups", groups=["g"], include_authorized_operations=True)
BY_ID = make("DeleteTopics", topics=[{"topic_id": TOPIC_ID, "name": None}], timeout_ms=15_000)
TOKENS = make("DescribeDelegationToken", owners=[OF_OWNER])

# Older versions have fields of their own, or other formats of records. `FURTHER` asks them in older versions.
OLDEST_WITH_THESE_FIELDS = {0: 3, 1: 12, 9: 8, 10: 4, 20: 6, 24: 4}

# Request, version (None: the highest), needs, label, marks: ways to ask that `NEEDS` has not.
FURTHER: list[tuple[m.Message, int | None, list[str], str, dict[str, bool]]] = [
    (ALL_TOPICS, None, ["Describe Topic t"], "all topics", {}),
    (make("ListGroups"), None, ["Describe Group g"], "", {}),
    (make("ListGroups"), None, ["Describe Cluster"], "", {}),
    (make("Fetch", max_wait_ms=0, topics=FETCHED), 4, ["Read Topic t"], "", {}),
    (make("OffsetFetch", group_id="g", topics=OF_T), 1, ["Describe Group g", "Describe Topic t"], "named", {}),
    (make("FindCoordinator", key="g"), 0, ["Describe Group g"], "", {}),
    (make("FindCoordinator", key_type=1, key="x"), 1, ["Describe TransactionalId x"], "", {}),
    (make("ListTransactions"), None, ["Describe TransactionalId x"], "", {}),
    (OPS_OF_T, None, ["Describe Topic t"], "operations", {}),
    (OPS_OF_CLUSTER, 10, ["Describe Cluster"], "operations", {}),
    (make("Metadata", topics=[{"topic_id": TOPIC_ID, "name": None}]), None, ["Describe Topic t"], "by id", {}),
    (make("Produce", acks=1, timeout_ms=9000, topic_data=TO_TWO), None, ["Write Topic t"], "two topics", {}),
    (
        make("Produce", acks=-1, timeout_ms=9000, transactional_id="x", topic_data=[IN_TRANSACTION]),
        None,
        ["Write TransactionalId x", "Write Topic t"],
        "transactional",
        {},
    ),
    (make("Fetch", max_wait_ms=0, topics=FETCHED_BY_ID), None, ["Read Topic t"], "by id", {}),
    (make("Fetch", max_wait_ms=0, topics=FETCHED_TWO), 12, ["Read Topic t"], "two topics", {}),
    (
        make("ListOffsets", topics=[{**LIST_OFFSETS[0], "name": name} for name in ("t", "none")]),
        None,
        ["Describe Topic t"],
        "two topics",
        {},
    ),
    (
        make(
            "OffsetCommit",
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[*COMMITS, {**COMMITS[0], "name": "none"}],
        ),
        None,
        ["Read Group g", "Read Topic t"],
        "two topics",
        {},
    ),
    (NAMED_OFFSETS, None, ["Describe Group g", "Describe Topic t"], "named", {}),
    (ALL_OFFSETS, None, ["Describe Group g", "Describe Topic t"], "all", {}),
    (OPS_OF_G, None, ["Describe Group g"], "operations", {}),
    (make("AddPartitionsToTxn", **ADDED_TO_X), 3, ["Write TransactionalId x", "Write Topic t"], "known id", {}),
    (
        make("AddOffsetsToTxn", **IN_X, group_id="g"),
        None,
        ["Write TransactionalId x", "Read Group g"],
        "known id",
        {},
    ),
    (
        make("TxnOffsetCommit", **IN_X, group_id="g", generation_id=-1, topics=COMMITS),
        None,
        ["Write TransactionalId x", "Read Group g", "Read Topic t"],
        "known id",
        {},
    ),
    (make("EndTxn", **IN_X), None, ["Write TransactionalId x"], "known id", {}),
    (
        make("DescribeTransactions", transactional_ids=["x"]),
        None,
        ["Describe TransactionalId x", "Describe Topic t"],
        "with a topic",
        {},
    ),
    (make("DeleteAcls", filters=[{**ANY_RULE, **ABOUT_R}]), None, ["Alter Cluster"], "that exist", OWN),
    (make("DescribeAcls", **{**ANY_RULE, **ABOUT_R}), None, ["Describe Cluster"], "", {}),
    (
        make("DescribeConfigs", resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": KEYS}]),
        None,
        ["DescribeConfigs Cluster"],
        "of one broker",
        {},
    ),
    (
        make(
            "DescribeConfigs", resources=[{"resource_type": 8, "resource_name": "1", "configuration_keys": NO_LOGGER}]
        ),
        None,
        ["DescribeConfigs Cluster"],
        "of loggers",
        {},
    ),
    (
        make("IncrementalAlterConfigs", resources=[{**CONFIGS[0], "configs": [CHANGED_CONFIG]}]),
        None,
        ["AlterConfigs Topic t"],
        "a value",
        {},
    ),
    (
        make("IncrementalAlterConfigs", resources=[{"resource_type": 8, "resource_name": "1", "configs": []}]),
        None,
        ["AlterConfigs Cluster"],
        "of loggers",
        {},
    ),
    (
        make("DescribeLogDirs", topics=[{"topic": "t", "partitions": [0]}]),
        None,
        ["Describe Cluster"],
        "",
        {},
    ),
    (make("DescribeUserScramCredentials", users=[{"name": "a"}]), None, ["Describe Cluster"], "", {}),
    (make("DescribeUserScramCredentials", users=None), None, ["Describe Cluster"], "of all users", UNANSWERED),
    (
        make("DescribeCluster", include_cluster_authorized_operations=True),
        None,
        ["Describe Cluster"],
        "operations",
        {},
    ),
    (make("CreateDelegationToken", max_lifetime_ms=-1, **FOR_OWNER), None, [f"CreateTokens User User:{OWNER}"], "", {}),
    (make("CreateDelegationToken", max_lifetime_ms=-1), None, [], "of one's own", {}),
    (make("DescribeDelegationToken", owners=[OF_OWNER]), None, ["Describe DelegationToken token"], "", {}),
    (make("DescribeDelegationToken", owners=[OF_OWNER]), None, [f"DescribeTokens User User:{OWNER}"], "", {}),
    # A token of another: no ACL is enough.
    (make("RenewDelegationToken", hmac=HMAC, renew_period_ms=-1), None, ["Describe DelegationToken token"], "", {}),
    (
        make("ExpireDelegationToken", hmac=HMAC, expiry_time_period_ms=-1),
        None,
        ["Describe DelegationToken token"],
        "",
        {},
    ),
    (make("SaslHandshake", mechanism="PLAIN"), None, [], "", {}),
    (make("SaslAuthenticate", auth_bytes=b"x"), None, [], "", {}),
    (make("ApiVersions", client_software_name="tests", client_software_version="1"), None, [], "", {}),
    (
        make("CreateTopics", topics=[NEW], timeout_ms=15_000),
        None,
        ["Create Topic u", "DescribeConfigs Topic u"],
        "with configs",
        LAST,
    ),
    (BY_ID, None, ["Describe Topic t", "Delete Topic t"], "by id", LAST),
    (make("DeleteTopics", topic_names=["t"], timeout_ms=15_000), 1, ["Delete Topic t"], "by name", LAST),
    (AUTO_CREATED, None, ["Describe Topic none", "Create Topic none"], "auto-creation", LAST),
    (AUTO_CREATED, None, ["Describe Topic none", "Create Cluster"], "auto-creation", LAST),
]


def patient(request: m.Message) -> m.Message:
    """The request, to be answered when it is carried out."""
    if getattr(request, "timeout_ms", None) != 0:
        return request
    return type(request)(**{name: getattr(request, name) for name in request.FIELDS} | {"timeout_ms": 15_000})


def _rows() -> list[Row]:
    usual = [
        row_of(
            patient(request),
            version,
            needs,
            has_own_resources=key_of(request) in CHANGING,
            is_last=key_of(request) in LATE,
        )
        for request, version, needs, _ in NEEDS
        if not isinstance(request, ABOUT_EVERYTHING)
    ]
    further = [row_of(request, version, needs, label, **marks) for request, version, needs, label, marks in FURTHER]
    # Those that list what exists come first, those that change what is listed last.
    return sorted([*further, *usual], key=lambda row: row.is_last)


def _in_oldest_versions() -> list[Row]:
    """The rows of `NEEDS` in the oldest version of their API, which refuses at other places."""
    found = []
    for row in ROWS:
        api = APIS[key_of(row.request)]
        oldest = OLDEST_WITH_THESE_FIELDS.get(api.key, api.min_version)
        if row.version == api.max_version > oldest and row.name.startswith(f"{api.name} v{row.version}, "):
            found.append(row._replace(name=row.name.replace(f"v{row.version}", f"v{oldest}", 1), version=oldest))
    return found


ROWS = _rows()
IN_OLDEST_VERSIONS = _in_oldest_versions()
