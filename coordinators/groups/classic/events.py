"""The events of a group, and the decisions that follow from them: the types of the pure part.

An event is a request of a member, a timer that fired, the end of a wait, or a change elsewhere in the broker. `decide`
turns it into a `Decision`: records to append, replies to send, timers to set. A reply names the offset of the last
record that it depends on; it is sent when the high watermark has passed that offset.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from barnabas.coordinators.groups.records import Commit, GroupRecord
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.storage.verification import Guard
    from barnabas.wire.records import Batch

NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred protocol first


class JoinedMember(NamedTuple):
    """One row of the leader's JoinGroup response: a member and its metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The outcome of JoinGroup; only the leader of a new generation gets `members`."""

    error: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    """The outcome of SyncGroup: the member's assignment, in bytes that only clients decode."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class LeaveAnswer(NamedTuple):
    """The outcome of LeaveGroup: one error code per leaving member, in the order of the request."""

    error: ErrorCode
    member_errors: tuple[ErrorCode, ...] = ()


class CommitAnswer(NamedTuple):
    """The outcome of OffsetCommit: one error code for all partitions but `too_large`, whose metadata are too long."""

    error: ErrorCode
    too_large: frozenset[TopicPartition] = frozenset()


class DeletionAnswer(NamedTuple):
    """The outcome of OffsetDelete: the group's error code, and if that is NONE a code for each partition."""

    error: ErrorCode
    codes: Mapping[TopicPartition, ErrorCode]


Answer = TypeVar("Answer", JoinAnswer, SyncAnswer, LeaveAnswer, CommitAnswer, DeletionAnswer, ErrorCode)


class Waiting(Generic[Answer]):
    """A request that is not answered yet. The task of the request sets `wake` before it sleeps.

    `after_offset` is the record that must be committed before the answer may be sent; NO_OFFSET if there is none.
    """

    __slots__ = ("after_offset", "answer", "wake")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.after_offset = NO_OFFSET
        self.wake: Callable[[], object] | None = None

    def give(self, answer: Answer, after_offset: int) -> None:
        """Set the answer and wake the task. Later answers are ignored: a request has one response."""
        if self.answer is None:
            self.answer = answer
            self.after_offset = after_offset
            # Without `wake` the task has not begun to wait. It reads the answer when the current
            # step ends.
            if self.wake is not None:
                self.wake()


class Made(NamedTuple):
    """The records of a large request and their batch, which was encoded in a thread before the decision.

    The group may change meanwhile. The batch is used only if the decision has the same records.
    """

    records: list[GroupRecord]
    batch: "Batch | ErrorCode"  # the error if it is too large, or cannot be encoded
    too_large: frozenset[TopicPartition]  # partitions that a commit leaves out


# -- events


class Join(NamedTuple):
    """JoinGroup. `member_id` is "" for a client that has none yet."""

    waiting: Waiting[JoinAnswer]
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_member_id: bool  # a new member gets MEMBER_ID_REQUIRED first (KIP-394)
    skips_assignment: bool  # the client understands SkipAssignment (KIP-814)
    reason: str | None = None
    new_member_id: str = ""  # for a client without a member id; chosen beforehand if `made` has it
    made: Made | None = None


class Sync(NamedTuple):
    """SyncGroup. Only the leader's has `assignments`, by member id."""

    waiting: Waiting[SyncAnswer]
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]
    made: Made | None = None


class Heartbeat(NamedTuple):
    """Heartbeat."""

    waiting: Waiting[ErrorCode]
    member_id: str
    instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """A member to remove, named by its member id, its instance id (removal by an administrator), or both."""

    member_id: str
    instance_id: str | None
    reason: str | None = None


class Leave(NamedTuple):
    """LeaveGroup."""

    waiting: Waiting[LeaveAnswer]
    members: Sequence[LeavingMember]


# This is no tuple, because `GroupCoordinator.commit` sets `made` when the thread has encoded the
# records.
@dataclass(slots=True)
class CommitOffsets:
    """OffsetCommit. A negative generation is a simple commit: the client is not a member of the group."""

    waiting: Waiting[CommitAnswer]
    member_id: str
    instance_id: str | None
    generation: int
    offsets: dict[TopicPartition, Commit]
    made: Made | None = None


class Transaction(NamedTuple):
    """The transaction to which a commit of offsets belongs; `guard` and `is_verifying` as in `append_as_leader`."""

    producer_id: int
    producer_epoch: int
    guard: "Guard | None" = None
    is_verifying: bool = False


@dataclass(slots=True)
class CommitOffsetsInTransaction:
    """TxnOffsetCommit: the offsets take effect when the transaction is committed (KIP-98).

    A negative generation without a member id is a commit of a producer that does not know the group (before KIP-447).
    """

    waiting: Waiting[CommitAnswer]
    transaction: Transaction
    member_id: str
    instance_id: str | None
    generation: int
    offsets: dict[TopicPartition, Commit]
    made: Made | None = None


@dataclass(slots=True)
class DeleteGroup:
    """DeleteGroups, one group."""

    waiting: Waiting[ErrorCode]
    made: Made | None = None


@dataclass(slots=True)
class DeleteOffsets:
    """OffsetDelete."""

    waiting: Waiting[DeletionAnswer]
    partitions: Sequence[TopicPartition]


class TimerFired(NamedTuple):
    """A timer ended."""

    timer: "Timer"


class Shed(NamedTuple):
    """Others need memory: of this group pending member ids are dropped, or else members, until so much is free."""

    wanted_bytes: int


class Forgotten(NamedTuple):
    """The client of a waiting request has disconnected."""

    waiting: object  # the `Waiting` of the request, compared by identity


class Answered(NamedTuple):
    """The high watermark has passed the record that a reply to this member waited for: the reply is sent now."""

    member_id: str


class AssignmentNotReplicated(NamedTuple):
    """The record of this generation's assignments was appended, but not committed in time."""

    # The event comes from a task that waited. By now the group may be in a later generation, which
    # must go on.
    generation: int


class Loaded:
    """The group was loaded from the log, and is served from now on."""


class Expire(NamedTuple):
    """Check whether these committed offsets have expired; `retention_ms` is `offsets.retention.minutes` in ms."""

    # The caller lists the partitions at an earlier moment, so some may have no offset any more.
    retention_ms: int
    partitions: Sequence[TopicPartition]


class PartitionsDeleted(NamedTuple):
    """These partitions were deleted with their topic, and the log end offset was this at the time."""

    # Records after that offset are for a new topic of the same name, and a tombstone would drop
    # those offsets, too.
    deleted: Mapping[TopicPartition, int]


Commits = CommitOffsets | CommitOffsetsInTransaction
Request = Join | Sync | Heartbeat | Leave | Commits | DeleteGroup | DeleteOffsets
Event = (
    Request | TimerFired | Shed | Forgotten | Answered | AssignmentNotReplicated | Loaded | Expire | PartitionsDeleted
)


# -- what follows


class TimerKind(IntEnum):
    """MEMBER: the session of a member, or the time a pending member id has to join. JOIN, SYNC: the two rounds."""

    # This is an IntEnum, because every request hashes timers as dict keys: its members hash ten
    # times as fast as those of an Enum.

    MEMBER = 0
    JOIN = 1
    SYNC = 2


class Timer(NamedTuple):
    """The key of a timer within its group; `member_id` only for MEMBER."""

    kind: TimerKind
    member_id: str = ""


JOIN_TIMER = Timer(TimerKind.JOIN)
SYNC_TIMER = Timer(TimerKind.SYNC)


class StoreAssignment(NamedTuple):
    """Store the leader's assignments; then the group becomes Stable."""

    generation: int
    assignments: dict[str, bytes]


class StoreReplacement(NamedTuple):
    """Store the new member id of a static member that restarted in a Stable group; then it replaces the old one."""

    # Until then the group is unchanged, so nothing has to be restored when the append fails.
    join: Join
    old_member_id: str
    new_member_id: str


@dataclass(frozen=True, slots=True)
class StoreEmptiness:
    """Store that the group is empty. If the record is lost, a fail-over loads the old members, and they time out."""


class StoreOffsets(NamedTuple):
    """Store committed offsets, in a transaction or not; then the request is answered."""

    waiting: Waiting[CommitAnswer]
    too_large: frozenset[TopicPartition]


class StoreExpiry(NamedTuple):
    """Tombstones of offsets that expired or whose partition was deleted; with `dies` also one of the group itself."""

    # No request waits for these tombstones. If they are not stored, the check for expired offsets
    # writes them later.
    dies: bool


class StoreGroupDeletion(NamedTuple):
    """Tombstones of a group that an administrator deletes; then the group becomes Dead."""

    waiting: Waiting[ErrorCode]


class StoreOffsetDeletion(NamedTuple):
    """Tombstones of offsets that an administrator deletes; then the request is answered with `codes`."""

    waiting: Waiting[DeletionAnswer]
    codes: Mapping[TopicPartition, ErrorCode]
    dies: bool


Intent = (
    StoreAssignment
    | StoreReplacement
    | StoreEmptiness
    | StoreOffsets
    | StoreExpiry
    | StoreGroupDeletion
    | StoreOffsetDeletion
)


@dataclass(slots=True)
class Reply(Generic[Answer]):
    """The answer of one request, and the record that must be committed before it is sent."""

    waiting: Waiting[Answer]
    answer: Answer
    after_offset: int

    def deliver(self) -> None:
        """Give the answer to the request and wake its task."""
        self.waiting.give(self.answer, self.after_offset)


AnyReply = (
    Reply[JoinAnswer]
    | Reply[SyncAnswer]
    | Reply[LeaveAnswer]
    | Reply[CommitAnswer]
    | Reply[DeletionAnswer]
    | Reply[ErrorCode]
)


@dataclass(slots=True)
class Decision:
    """What follows from one event. `intent` says what the records are for; None if there is nothing to store."""

    records: list[GroupRecord] = field(default_factory=list)
    intent: Intent | None = None
    replies: list[AnyReply] = field(default_factory=list)
    # Timers to set or move: durations in milliseconds, as the pure part has no clock. None stops the timer. The last
    # value counts: one event may begin a round with its timer and end the round again.
    timers: dict[Timer, int | None] = field(default_factory=dict)
    made: Made | None = None  # an encoded batch; `shards.py` compares its records before it is used
    transaction: Transaction | None = None  # to which the records belong
    notes: list[str] = field(default_factory=list)  # lines for the broker's log, about membership and generations

    def reply(self, waiting: Waiting[Answer], answer: Answer, after_offset: int = NO_OFFSET) -> None:
        """Answer a request when the record at `after_offset` is committed; at once if that is NO_OFFSET."""
        self.replies.append(Reply(waiting, answer, after_offset))

    def store(
        self,
        records: list[GroupRecord],
        intent: Intent,
        made: Made | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Append these records as one batch; `made` is that batch if it was encoded before."""
        # The records are one batch, because an append succeeds or fails as a whole: no decision is
        # stored in part. No event stores twice, as a second call would replace the first one.
        self.records = records
        self.intent = intent
        self.made = made
        self.transaction = transaction
