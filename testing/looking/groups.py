"""The consumer groups that a broker coordinates, as a test looks at them and disturbs them.

group = broker.groups["billing"].wait(state="Stable", members=2)
group.rebalance()
group.evict(group.members[0])
"""

from typing import NamedTuple, Self

from barnabas.coordinators.groups.classic.descriptions import UNKNOWN_GROUP, Description
from barnabas.coordinators.groups.classic.events import LeavingMember
from barnabas.coordinators.groups.classic.state import GroupState
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.looking.live import SECONDS, Live, wait_until
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import GROUP_TOPIC

STATES = [state.value for state in GroupState]


class GroupMember(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class Groups:
    """The groups of one broker, by their ids."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def __getitem__(self, group_id: str) -> "LiveGroup":
        return LiveGroup(self._live, group_id)


class LiveGroup:
    """A group; it need not exist yet. LocalBrokerError if another broker coordinates it."""

    def __init__(self, live: Live, group_id: str) -> None:
        self.group_id = group_id
        self._live = live

    @property
    def state(self) -> str:
        """`Empty`, `PreparingRebalance`, `CompletingRebalance` or `Stable`; `Dead` if it does not exist."""
        return self._describe().state

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The members at present."""
        return tuple(GroupMember(*member[:4]) for member in self._describe().members)

    def wait(self, *, state: str | None = None, members: int | None = None, seconds: float = SECONDS) -> Self:
        """Wait until the group has this state and so many members; LocalBrokerError with what it has instead."""
        if state is not None and state not in STATES:
            raise LocalBrokerError(f"state: one of {', '.join(STATES)}, not {state!r}")

        def look() -> bool:
            found = self._look()
            if isinstance(found, ErrorCode):
                return False
            return state in (None, found.state) and members in (None, len(found.members))

        def missing() -> str:
            found = self._look()
            if isinstance(found, ErrorCode):
                return self._problem(found)
            return f"group {self.group_id!r} is {found.state} with {len(found.members)} members"

        wait_until(look, seconds, missing)
        return self

    def rebalance(self) -> None:
        """Have all members join again."""
        error = self._live.look(lambda broker: broker.groups.rebalance(self.group_id))
        if error:
            raise LocalBrokerError(self._problem(error))

    def evict(self, member: GroupMember | str) -> None:
        """Remove a member, given by itself, its member id or its instance id; it learns of that at its next request."""
        members = self.members
        wanted = member.member_id if isinstance(member, GroupMember) else member
        found = [each for each in members if wanted in (each.member_id, each.instance_id)]
        if not found:
            names = [each.member_id for each in members]
            raise LocalBrokerError(f"group {self.group_id!r} has no member {wanted!r}, only {names}")
        leaving = LeavingMember(found[0].member_id, found[0].instance_id, "a test has evicted it")
        answer = self._live.ask(lambda broker: broker.groups.leave(self.group_id, [leaving]))
        error = next((each for each in (answer.error, *answer.member_errors) if each), ErrorCode.NONE)
        if error:
            raise LocalBrokerError(self._problem(error))

    def _describe(self) -> Description:
        found = self._look()
        if isinstance(found, ErrorCode):
            raise LocalBrokerError(self._problem(found))
        return found

    def _look(self) -> Description | ErrorCode:
        # The topic is created for the first group, so without it there is none.
        if self._live.look(lambda broker: GROUP_TOPIC not in broker.metadata.topics):
            return UNKNOWN_GROUP
        return self._live.ask(lambda broker: broker.groups.describe(self.group_id))

    def _problem(self, error: ErrorCode) -> str:
        return f"group {self.group_id!r}: {error.name}"
