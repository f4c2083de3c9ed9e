"""The error codes of the protocol, and the exceptions for other failures.

There are four kinds of error. A *Kafka error* is a value: an `ErrorCode` in a field of a response, or `Refuse` if one
code is the response to a whole request. A peer that breaks the protocol causes `ProtocolViolation`, and its connection
closes. A failing disk raises `StorageError` (`storage/disk.py`). A bug of this broker raises `InvariantBroken`, where
its state contradicts itself.

The table is that of Apache Kafka 3.9, codes -1 to 127. It has also the codes that no API here returns: other brokers
may send them, and a log line should print their names. A *retriable* code means that the same request may succeed
later, perhaps on another broker.
"""

from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """A Kafka error code: an int on the wire, with its name, whether clients retry, and its message."""

    retriable: bool
    message: str

    # The defaults are for type checkers, which take the look-up `ErrorCode(3)` for a call of this function.
    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The server failed in an unexpected way while it handled the request."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside the range that the partition holds."
    CORRUPT_MESSAGE = 2, True, "The record batch is damaged: checksum, size, or a missing key on a compacted topic."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This server does not host this topic-partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is not the leader, or not a replica, of the partition."
    REQUEST_TIMED_OUT = 7, True, "The request timed out."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica of the partition is not available here."
    MESSAGE_TOO_LARGE = 10, False, "The record batch is larger than the server accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "The request comes from a controller that has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata string of the committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection was lost before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is illegal, or the operation is not allowed on it."
    RECORD_LIST_TOO_LARGE = 18, False, "The record batch is larger than a log segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic requires; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were written, but to fewer in-sync replicas than required.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "Required acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with the group, or named none."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; the member must join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offsets to commit do not fit in one batch."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Topic authorization failed."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Group authorization failed."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Cluster authorization failed."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is outside the range that the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of SASL authentication."
    UNSUPPORTED_VERSION = 35, False, "The version of this API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This is not the correct controller for this cluster."
    INVALID_REQUEST = (
        42,
        False,
        "This most likely occurs because of a request being malformed by the client library or the message was sent to"
        " an incompatible broker. See the broker logs for more details.",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The record format on the broker does not support the request."
    POLICY_VIOLATION = 44, False, "A policy of the broker forbids the request's parameters."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was used already."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above the broker's maximum."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on the same transaction is still going on."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The transaction coordinator has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Transactional Id authorization failed."
    SECURITY_DISABLED = 54, False, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = 55, False, "The operation was not tried, for another one failed or came first."
    KAFKA_STORAGE_ERROR = 56, True, "The log's disk failed."
    LOG_DIR_NOT_FOUND = 57, False, "The log directory is not configured on this broker."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The partition knows nothing of this producer id any more."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are disabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Delegation tokens may not be handled over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Delegation Token authorization failed."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "This type of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group has members."
    GROUP_ID_NOT_FOUND = 69, False, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session does not exist."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch of the fetch session is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the name that the request came in on."
    TOPIC_DELETION_DISABLED = 73, False, "Topic deletion is disabled."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch in the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch in the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client's version does not support the compression type."
    STALE_BROKER_EPOCH = 77, False, "The broker epoch is not that of the broker's present registration."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "The member must join again with the member id that it was given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has reached its largest size."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over the group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No eligible leader is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition has its leader already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group still subscribes to the topic, so its offsets may not be deleted."
    INVALID_RECORD = 87, False, "The broker's checks refuse a record."
    UNSTABLE_OFFSET_COMMIT = 88, True, "An open transaction holds offsets that are not decided yet."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is exhausted for now."
    PRODUCER_FENCED = 90, False, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, False, "The resource exists already, or is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "The voters named do not match those that are known."
    INVALID_UPDATE_VERSION = 95, False, "The state was changed by another client since it was read."
    FEATURE_UPDATE_FAILED = 96, False, "The finalized features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal in a forwarded request could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This server hosts no topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "The broker id is in use."
    BROKER_ID_NOT_REGISTERED = 102, False, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id of the log differs from that of the request."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id of the request is that of another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names with topic ids."
    INELIGIBLE_REPLICA = 107, False, "A replica of the proposed in-sync set may not be in it."
    NEW_LEADER_ELECTED = 108, False, "The change made the controller elect another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The group coordinator fenced the member's epoch."
    UNRELEASED_INSTANCE_ID = 111, False, "The group instance id is held by another member."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support the assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old; it must read its new one by a heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong type of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This type of endpoint is not known."
    UNKNOWN_CONTROLLER_ID = 116, False, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller refuses the broker's registration."
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed; the producer may abort it and go on."
    INVALID_RECORD_STATE = 121, False, "The record is not in a state that allows its acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session does not exist."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The epoch of the share session is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The share coordinator refuses an old state epoch."
    INVALID_VOTER_KEY = 125, False, "The voter key is not that of the receiving replica."
    DUPLICATE_VOTER = 126, False, "The voter is in the voter set already."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the voter set."


def error_of(code: int) -> ErrorCode:
    """The code with this number; UNKNOWN_SERVER_ERROR if Kafka 3.9 has no such code."""
    # `ErrorCode(code)` would raise for an unknown number, which a newer broker may send.
    known = ErrorCode._value2member_map_.get(code)
    return known if isinstance(known, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR


def error_name(code: int) -> str:
    """The name of the code with this number; the number itself if Kafka 3.9 has no such code."""
    known = ErrorCode._value2member_map_.get(code)
    return str(code) if known is None else known.name


# An error message may quote a long name that a client sent. A string in a response has at most
# 32,767 bytes: a response with a longer message could not be encoded, and the connection would
# close.
MESSAGE_CHARACTERS_MAX = 8000


def shortened(message: str | None) -> str | None:
    """A message that fits a response, in whatever alphabet it is; None stays."""
    if message is None or len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    return f"{message[:MESSAGE_CHARACTERS_MAX]}…"


class Refuse(Exception):
    """The response to the whole request is one error code; each API has its own place for it in the response."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message or code.message}")
        self.code = code
        self.message = message


class ProtocolViolation(Exception):
    """A peer sent bytes that the protocol does not allow; its connection closes."""


class PeerLost(Exception):
    """The other broker is gone, or did not answer in time."""


class PeerTooOld(PeerLost):
    """The other broker serves only versions that cannot express the request."""


class InvariantBroken(Exception):
    """The broker's own state contradicts itself: a bug. The request, partition or task that it belongs to must stop."""
