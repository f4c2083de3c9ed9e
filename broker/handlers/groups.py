"""Consumer groups: FindCoordinator, the membership protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), and the
admin requests DescribeGroups, ListGroups and DeleteGroups.

The handlers translate between protocol messages and the events of the group coordinator (`coordinators/groups/`), which
    holds all group logic. JoinGroup and SyncGroup wait in the connection's task until the coordinator answers.
Versions: FindCoordinator 1+ types of coordinators, 4+ several keys, one result each (KIP-699). JoinGroup 0 has no
    rebalance timeout, the session timeout is used; 4+ a new member first gets its member id (KIP-394); 5+ static
    members; 7+ protocol type and a protocol name that may be null; 9 SkipAssignment (KIP-814). SyncGroup 5 must name
    protocol type and name. LeaveGroup 3+ several members, one error each; before, the member's error is the top-level
    error. DescribeGroups 3+ authorized operations. ListGroups 4+ filter by state, 5 by type. DeleteGroups 0-2.
"""

from collections.abc import Callable, Iterable

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import Repeats, counted
from barnabas.coordinators.groups.classic.descriptions import Description
from barnabas.coordinators.groups.classic.events import (
    Heartbeat,
    Join,
    JoinAnswer,
    LeavingMember,
    Sync,
    SyncAnswer,
    Waiting,
)
from barnabas.security.acls.acls import address_text
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.world.pacing import paced
from barnabas.world.resting import resting

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2
SEVERAL_KEYS_VERSION = 4
SHARE_KEY_VERSION = 6
REBALANCE_TIMEOUT_VERSION = 1
MEMBER_ID_FIRST_VERSION = 4
NULLABLE_PROTOCOL_VERSION = 7
SKIP_ASSIGNMENT_VERSION = 9
PROTOCOL_NAMED_VERSION = 5
SEVERAL_MEMBERS_VERSION = 3

NEW_LEADER_SECONDS = 0.5  # creating the 50 logs of the topic takes less; clients retry after 0.1 to 1 s


# Limits of one member, which stays in memory as long as it is in the group. All members of a group together must fit
# into one record of the group topic, by default 1 MiB.
PROTOCOLS_MAX = 100
SUBSCRIPTION_BYTES_MAX = 2 << 20

NO_NODE, NO_PORT = -1, -1

Coordinator = m.FindCoordinatorResponse.Coordinator

# The error message before version 4. From version 4 on each result has an empty message, as in Kafka.
MESSAGES = {int(code): code.message if code else code.name for code in ErrorCode}


# -- FindCoordinator


async def find_coordinator(broker: Broker, call: Call, request: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse:
    """The coordinator of each key: broker id and address on the listener of the request."""
    wait = _LeaderWait()
    if call.version >= SEVERAL_KEYS_VERSION:
        keys = paced(request.coordinator_keys)
        found = [await _coordinator_of(broker, call, request.key_type, key, wait) async for key in keys]
        return m.FindCoordinatorResponse(coordinators=found)
    one = await _coordinator_of(broker, call, request.key_type, request.key, wait)
    return m.FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or MESSAGES[one.error_code],
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


class _LeaderWait:
    """Until when a request waits for the leaders of a topic that it created (trio's clock, s): once for all keys."""

    deadline: float | None = None  # None: it has created none


async def _coordinator_of(broker: Broker, call: Call, key_type: int, key: str, wait: _LeaderWait) -> Coordinator:
    if key_type == GROUP_KEY:
        if not call.authorize("Describe", "Group", key):
            return _no_coordinator(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return await _leader_for(broker, call, key, GROUP_TOPIC, broker.groups.placement.partition_of, wait)
    if key_type == TRANSACTION_KEY:
        if not call.authorize("Describe", "TransactionalId", key):
            return _no_coordinator(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        partition_of = broker.transactions.placement.partition_of
        return await _leader_for(broker, call, key, TRANSACTION_TOPIC, partition_of, wait)
    if key_type == SHARE_KEY and call.version >= SHARE_KEY_VERSION:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # share groups (KIP-932) are disabled
    message = "" if key_type == SHARE_KEY else ErrorCode.INVALID_REQUEST.message
    return _no_coordinator(key, ErrorCode.INVALID_REQUEST, message)


async def _leader_for(
    broker: Broker, call: Call, key: str, topic: str, partition_of: Callable[[str], int], wait: _LeaderWait
) -> Coordinator:
    # The creation is tried once for each request, which may have very many keys: it may fail, with too few
    # brokers for example.
    if topic not in broker.metadata.topics and wait.deadline is None:
        # Its partitions take tokens of this client, as in Kafka, but it is never refused for them.
        mutations = broker.quotas.mutations_of(*call.quota_user, strict=False)
        await broker.topics.ensure_internal(topic, mutations.take)
        wait.deadline = trio.current_time() + NEW_LEADER_SECONDS
    # Kafka answers without waiting, and the first client of the topic retries after its back-off.
    if wait.deadline is not None:
        with trio.move_on_at(wait.deadline), resting():
            while broker.metadata.leader_of(topic, partition_of(key)) is None:
                await broker.metadata.changed()
    leader = broker.metadata.leader_of(topic, partition_of(key))
    endpoint = None if leader is None else broker.metadata.endpoint(leader, call.listener)
    # Clients retry this error: the partition gets a leader, or the leader an address on this listener.
    if leader is None or endpoint is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _no_coordinator(key: str, code: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_PORT, error_code=code, error_message=message)


def refuse_find_coordinator(
    request: m.FindCoordinatorRequest, version: int, code: ErrorCode
) -> m.FindCoordinatorResponse:
    """The same error for every key."""
    if version >= SEVERAL_KEYS_VERSION:
        return m.FindCoordinatorResponse(coordinators=[_no_coordinator(key, code) for key in request.coordinator_keys])
    return m.FindCoordinatorResponse(
        error_code=code, error_message=code.message, node_id=NO_NODE, host="", port=NO_PORT
    )


# -- JoinGroup


async def join_group(broker: Broker, call: Call, request: m.JoinGroupRequest) -> m.JoinGroupResponse:
    """Join a group or rejoin it; answered when the generation begins. The leader's response lists all members.

    Raises Refuse: GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST for more than a member may have.
    """
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if len(request.protocols) > PROTOCOLS_MAX or _bytes_of(request.protocols) > SUBSCRIPTION_BYTES_MAX:
        raise Refuse(ErrorCode.INVALID_REQUEST, "more protocols, or longer subscriptions, than a group can keep")
    has_rebalance_timeout = call.version >= REBALANCE_TIMEOUT_VERSION
    join = Join(
        waiting=Waiting(),
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{address_text(call.client_address)}",  # Java's form of an address without host name
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        # KIP-394: a dynamic member without an id gets one with MEMBER_ID_REQUIRED, and joins with it. Otherwise each
        # retry of a client that timed out would add another member. A static member is known by its instance id.
        requires_member_id=call.version >= MEMBER_ID_FIRST_VERSION and request.group_instance_id is None,
        skips_assignment=call.version >= SKIP_ASSIGNMENT_VERSION,
        reason=request.reason,
    )
    answer = await broker.groups.join(request.group_id, join)
    response = _join_response(answer, call.version)

    # A large group has thousands of members, so this list is built with checkpoints.
    response.members = [
        m.JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
        )
        async for member in paced(answer.members)
    ]
    return response


def _bytes_of(protocols: Iterable[m.JoinGroupRequest.JoinGroupRequestProtocol]) -> int:
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


def _join_response(answer: JoinAnswer, version: int) -> m.JoinGroupResponse:
    """The response without its members, which the caller adds."""
    protocol_name = answer.protocol_name
    # An error has no protocol name; before version 7 the field cannot be null.
    if protocol_name is None and version < NULLABLE_PROTOCOL_VERSION:
        protocol_name = ""
    return m.JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
    )


def refuse_join_group(request: m.JoinGroupRequest, version: int, code: ErrorCode) -> m.JoinGroupResponse:
    """An error without a generation."""
    return _join_response(JoinAnswer(code, request.member_id), version)


# -- SyncGroup


async def sync_group(broker: Broker, call: Call, request: m.SyncGroupRequest) -> m.SyncGroupResponse:
    """This member's assignment; the group leader's request carries the assignments of all members."""
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    # The fields are nullable in the schema, but mandatory from version 5 on (KIP-559).
    if call.version >= PROTOCOL_NAMED_VERSION and (request.protocol_type is None or request.protocol_name is None):
        raise Refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    sync = Sync(
        waiting=Waiting(),
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={assignment.member_id: assignment.assignment async for assignment in paced(request.assignments)},
    )
    return _sync_response(await broker.groups.sync(request.group_id, sync))


def _sync_response(answer: SyncAnswer) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


# -- Heartbeat


def heartbeat(broker: Broker, call: Call, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
    """Restart the member's session timeout; REBALANCE_IN_PROGRESS makes the member rejoin."""
    # This is no async function: it never waits, and each member sends one every few seconds.
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    beat = Heartbeat(Waiting(), request.member_id, request.group_instance_id, request.generation_id)
    return m.HeartbeatResponse(error_code=broker.groups.heartbeat(request.group_id, beat))


# -- LeaveGroup


async def leave_group(broker: Broker, call: Call, request: m.LeaveGroupRequest) -> m.LeaveGroupResponse:
    """Remove members from the group, which triggers a rebalance of the others."""
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if call.version >= SEVERAL_MEMBERS_VERSION:
        leaving = [
            LeavingMember(member.member_id, member.group_instance_id, member.reason)
            async for member in paced(request.members)
        ]
    else:
        leaving = [LeavingMember(request.member_id, None)]

    answer = await broker.groups.leave(request.group_id, leaving)

    # Before version 3 the response has only a top-level error, so the one member's error moves there.
    if call.version < SEVERAL_MEMBERS_VERSION:
        return m.LeaveGroupResponse(error_code=answer.error or answer.member_errors[0])
    return m.LeaveGroupResponse(
        error_code=answer.error,
        members=[
            m.LeaveGroupResponse.MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=error
            )
            async for member, error in paced(
                zip(leaving, answer.member_errors, strict=False)  # no member errors when the whole request is refused
            )
        ],
    )


# -- DescribeGroups and ListGroups


async def describe_groups(broker: Broker, call: Call, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
    """State and members of each group, in the order and as often as requested. Refuse: INVALID_REQUEST for repeats."""
    described = []
    # One group's description may have hundreds of kilobytes, and a request repeats its id with ten bytes.
    repeats = Repeats()
    async for group_id in paced(request.groups):
        repeats.note(group_id)
        described.append(await _described(broker, call, group_id))
    if request.include_authorized_operations:
        async for group in paced(described):
            if not group.error_code:
                group.authorized_operations = call.allowed_operations("Group", group.group_id)
    return m.DescribeGroupsResponse(groups=described)


async def _described(broker: Broker, call: Call, group_id: str) -> m.DescribeGroupsResponse.DescribedGroup:
    found: Description | ErrorCode = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if call.authorize("Describe", "Group", group_id):
        found = await broker.groups.describe(group_id)
    if isinstance(found, ErrorCode):
        return m.DescribeGroupsResponse.DescribedGroup(error_code=found, group_id=group_id)
    return m.DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_data,
        members=[
            m.DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            async for member in paced(found.members)
        ],
    )


def refuse_describe_groups(request: m.DescribeGroupsRequest, version: int, code: ErrorCode) -> m.DescribeGroupsResponse:
    """The same error for every group."""
    return m.DescribeGroupsResponse(
        groups=[
            m.DescribeGroupsResponse.DescribedGroup(error_code=code, group_id=group_id) for group_id in request.groups
        ]
    )


async def list_groups(broker: Broker, call: Call, request: m.ListGroupsRequest) -> m.ListGroupsResponse:
    """The groups that this broker coordinates and the caller may describe."""
    # With COORDINATOR_LOAD_IN_PROGRESS come the groups of those shards that are loaded already.
    error, groups = await broker.groups.list_groups(request.states_filter, request.types_filter)
    sees_all = call.authorize("Describe", "Cluster", is_filter=True)
    return m.ListGroupsResponse(
        error_code=error,
        groups=[
            m.ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            async for group in paced(groups)
            if sees_all or call.authorize("Describe", "Group", group.group_id, is_filter=True)
        ],
    )


# -- DeleteGroups


async def delete_groups(broker: Broker, call: Call, request: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse:
    """Delete groups; one error code each. A group that is named twice is answered once."""
    # Kafka's order of results: unauthorized groups come last.
    allowed: list[str] = []
    forbidden: list[str] = []
    async for group_id in paced(await counted(request.groups_names)):
        (allowed if call.authorize("Delete", "Group", group_id) else forbidden).append(group_id)
    deleting = paced(allowed)
    rows = [_deleted(group_id, await broker.groups.delete_group(group_id)) async for group_id in deleting]
    rows += [_deleted(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED) async for group_id in paced(forbidden)]
    return m.DeleteGroupsResponse(results=rows)


def _deleted(group_id: str, code: ErrorCode) -> m.DeleteGroupsResponse.DeletableGroupResult:
    return m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)


def refuse_delete_groups(request: m.DeleteGroupsRequest, version: int, code: ErrorCode) -> m.DeleteGroupsResponse:
    """The same error for every group."""
    return m.DeleteGroupsResponse(
        results=[_deleted(group_id, code) for group_id in dict.fromkeys(request.groups_names)]
    )
