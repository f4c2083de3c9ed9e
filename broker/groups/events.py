"""What happens to a group, and what follows from it: the vocabulary of the pure part.

An event is a request of a member, a timer that fired, the end of a wait, or something that happened elsewhere.
`decide` turns it into a `Decision`: records to append, replies to give, timers to set. A reply names the offset of the
last record that it rests on; it is held back until the high watermark has passed that offset.
Timers are durations, so that the pure part knows no clock: a timer is one key of its group, setting it again moves it,
None stops it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from barnabas.broker.groups.records import Commit, GroupRecord
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.wire.records import Batch

NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]


class JoinedMember(NamedTuple):
    """What the leader learns of a member."""

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
    """The outcome of SyncGroup: what this member shall do, in bytes that only clients understand."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class LeaveAnswer(NamedTuple):
    """The outcome of LeaveGroup, one code a leaving member."""

    error: ErrorCode
    member_errors: tuple[ErrorCode, ...] = ()


class CommitAnswer(NamedTuple):
    """The outcome of OffsetCommit: one code for all partitions but those whose metadata are too large."""

    error: ErrorCode
    too_large: frozenset[TopicPartition] = frozenset()


class DeletionAnswer(NamedTuple):
    """The outcome of OffsetDelete: one code for the request, and one for each partition when it is NONE."""

    error: ErrorCode
    codes: Mapping[TopicPartition, ErrorCode]


Answer = TypeVar("Answer", JoinAnswer, SyncAnswer, LeaveAnswer, CommitAnswer, DeletionAnswer, ErrorCode)


class Waiting(Generic[Answer]):
    """A request on its way to an answer. The one who asked sets `wake` when it has to sleep."""

    __slots__ = ("after_offset", "answer", "wake")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.after_offset = NO_OFFSET
        self.wake: Callable[[], object] | None = None

    def give(self, answer: Answer, after_offset: int) -> None:
        """Answer; the first answer counts."""
        if self.answer is None:
            self.answer = answer
            self.after_offset = after_offset
            if self.wake is not None:
                self.wake()


class Made(NamedTuple):
    """Records that are a batch already: those of a large request are encoded in a thread, before they are decided on.

    Should the decision be another one after all, the batch is not used.
    """

    records: list[GroupRecord]
    batch: "Batch"
    too_large: frozenset[TopicPartition]  # what a commit leaves out of its records


# -- events


class Join(NamedTuple):
    """JoinGroup. `member_id` is "" for a member that has none yet."""

    waiting: Waiting[JoinAnswer]
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_member_id: bool  # the client can take MEMBER_ID_REQUIRED (KIP-394)
    skips_assignment: bool  # the client understands SkipAssignment (KIP-814)
    reason: str | None = None


class Sync(NamedTuple):
    """SyncGroup; only the leader's carries assignments."""

    waiting: Waiting[SyncAnswer]
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class Heartbeat(NamedTuple):
    """Heartbeat."""

    waiting: Waiting[ErrorCode]
    member_id: str
    instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """Who leaves: by member id, by instance id (an administrator's removal), or both."""

    member_id: str
    instance_id: str | None
    reason: str | None = None


class Leave(NamedTuple):
    """LeaveGroup."""

    waiting: Waiting[LeaveAnswer]
    members: Sequence[LeavingMember]


@dataclass(slots=True)
class CommitOffsets:
    """OffsetCommit. Generation -1 without member id is a simple commit, of a consumer that is in no group."""

    waiting: Waiting[CommitAnswer]
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
    """The time of a timer is over."""

    timer: "Timer"


class Forgotten(NamedTuple):
    """The member's connection is gone while its request waits."""

    waiting: object  # the `Waiting` itself, known by identity


class Answered(NamedTuple):
    """A member got an answer that had been held: its session counts from now."""

    member_id: str


class AssignmentNotReplicated(NamedTuple):
    """The record of this generation's assignment is appended but was not replicated in time."""

    generation: int


class Loaded:
    """The group was read from the log, and is served from now on."""


class Expire(NamedTuple):
    """Time to look whether these offsets have expired."""

    retention_ms: int
    partitions: Sequence[TopicPartition]


class PartitionsDeleted(NamedTuple):
    """These partitions exist no more."""

    deleted: Sequence[TopicPartition]


Request = Join | Sync | Heartbeat | Leave | CommitOffsets | DeleteGroup | DeleteOffsets
Event = Request | TimerFired | Forgotten | Answered | AssignmentNotReplicated | Loaded | Expire | PartitionsDeleted


# -- what follows


class TimerKind(IntEnum):
    """MEMBER: session of a member, or patience with an id that was handed out. JOIN and SYNC: of a rebalance.

    Numbers, for they are hashed with every request, and those hash ten times as fast as other members of an Enum.
    """

    MEMBER = 0
    JOIN = 1
    SYNC = 2


class Timer(NamedTuple):
    """One timer of a group."""

    kind: TimerKind
    member_id: str = ""


JOIN_TIMER = Timer(TimerKind.JOIN)
SYNC_TIMER = Timer(TimerKind.SYNC)


class StoreAssignment(NamedTuple):
    """The leader's assignment is being stored; stored, the group is Stable."""

    generation: int
    assignments: dict[str, bytes]


class StoreReplacement(NamedTuple):
    """A static member came back to a Stable group; stored, the new member id takes the place of the old one."""

    join: Join
    old_member_id: str
    new_member_id: str


@dataclass(frozen=True, slots=True)
class StoreEmptiness:
    """The last member left. Nothing depends on the record: lost, the old members come back and time out."""


class StoreOffsets(NamedTuple):
    """Offsets are being committed; the response is sent when they are stored."""

    waiting: Waiting[CommitAnswer]
    too_large: frozenset[TopicPartition]


class StoreExpiry(NamedTuple):
    """Tombstones of offsets, and of the group itself when `dies`. Not stored, they come again at the next check."""

    dies: bool


class StoreGroupDeletion(NamedTuple):
    """Tombstones of a group that an administrator deletes; stored, it ends when it `dies`."""

    waiting: Waiting[ErrorCode]
    dies: bool


class StoreOffsetDeletion(NamedTuple):
    """Tombstones of offsets that an administrator deletes; the response has these codes when they are stored."""

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
    """An answer to give to who waits for it."""

    waiting: Waiting[Answer]
    answer: Answer
    after_offset: int

    def deliver(self) -> None:
        """Give it."""
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
    """What follows from one event. With records goes the intent that says what they are for."""

    records: list[GroupRecord] = field(default_factory=list)
    intent: Intent | None = None
    replies: list[AnyReply] = field(default_factory=list)
    timers: dict[Timer, int | None] = field(default_factory=dict)  # duration in milliseconds; None stops it
    made: Made | None = None  # perhaps the records as a batch
    notes: list[str] = field(default_factory=list)  # for the log: roles and membership

    def reply(self, waiting: Waiting[Answer], answer: Answer, after_offset: int = NO_OFFSET) -> None:
        """Answer a request, once the record at `after_offset` is committed."""
        self.replies.append(Reply(waiting, answer, after_offset))

    def store(self, records: list[GroupRecord], intent: Intent, made: Made | None = None) -> None:
        """Append these, as one batch, which may have been made of them before."""
        self.records = records
        self.intent = intent
        self.made = made
