"""The page's views of consumer groups and of transactions.

A group is known to its coordinator, and so is a transactional id. `GET /v1/groups` asks every broker; so does
`GET /v1/transactions`. A broker that does not answer is named in the answer.
"""

from collections.abc import Iterable
from typing import TypeVar

import trio

from barnabas.broker.life import Life
from barnabas.console.asking import Asking, asking_for, check
from barnabas.console.exchange import Answer, BadRequest, HttpRequest, json_answer
from barnabas.console.fetching import first_timestamps
from barnabas.console.long_json import long_json_answer
from barnabas.console.offsets import UNKNOWN, ends_of
from barnabas.console.replica_rows import Row
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost, ProtocolViolation
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import GROUP_TOPIC, TopicPartition
from barnabas.world.pacing import paced

TRANSACTIONS_MAX = 200  # of one page
GROUP_KEY = 0  # FindCoordinator
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
CONSUMER_PROTOCOL = "consumer"
DEAD = "Dead"  # the state of a group that does not exist
VERSION_BYTES = 2  # of the version in front of an assignment
ASSIGNMENT_VERSION_MAX = 3
LAGS_IN_SECONDS_MAX = 200  # partitions of one group: each may need a Fetch

Answered = TypeVar("Answered", bound=m.Message)


async def groups(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/groups`: all groups that the caller may see, with their coordinators."""
    asking = asking_for(life, request)
    answered, silent = await _ask_all(asking, m.ListGroupsRequest(), m.ListGroupsResponse)

    # As in Kafka's handler: a right on the cluster shows all groups, otherwise each needs its own. The other brokers
    # have checked the rights of this broker, so those of the caller are checked here.
    sees_all = asking.may("Describe", "Cluster")
    rows: dict[str, Row] = {}
    for broker_id, response in answered.items():
        async for each in paced(response.groups):
            if not (sees_all or asking.may("Describe", "Group", each.group_id)):
                continue
            # In the moment of a new coordinator two brokers may name a group; the page shows it once.
            rows[each.group_id] = {
                "group": each.group_id,
                "state": each.group_state,
                "type": each.group_type,
                "protocol_type": each.protocol_type,
                "coordinator": broker_id,
            }
    return await long_json_answer({"groups": [rows[name] for name in sorted(rows)], "silent": silent})


async def group(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/groups/{group}`: members, what each owns, and the lag of each partition."""
    return await long_json_answer(await group_state(asking_for(life, request), request.params["group"]))


async def group_state(asking: Asking, name: str) -> Row:
    """The same as a dict. BadRequest."""
    if not asking.may("Describe", "Group", name):
        check(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"group {name!r}")
    coordinator = await _coordinator(asking, name)

    # The two answers are of different moments. A member that commits in between is seen in the next look.
    try:
        described = await asking.ask_at(coordinator, m.DescribeGroupsRequest(groups=[name]), m.DescribeGroupsResponse)
        fetched = await asking.ask_at(coordinator, _offset_fetch(name), m.OffsetFetchResponse)
    except PeerLost as error:
        raise BadRequest(f"the coordinator of {name!r} does not answer: {error}", status=503) from error

    # DescribeGroups has an answer for every name: a group that does not exist is Dead.
    (found,) = described.groups
    check(found.error_code, f"group {name!r}")
    (offsets,) = fetched.groups
    check(offsets.error_code, f"the offsets of group {name!r}")
    if found.group_state == DEAD and not offsets.topics:
        raise BadRequest(f"there is no group {name!r}", status=404)

    # OffsetFetch filters topics by the rights of its caller, but that is this broker. So they are filtered here.
    committed = {
        TopicPartition(topic.name, row.partition_index): row
        for topic in offsets.topics
        if asking.sees(topic.name)
        for row in topic.partitions
        if row.committed_offset != NO_OFFSET
    }
    # An assignment may be a megabyte, and there may be a thousand members.
    members = await asking.broker.world.in_request_thread(_members, found)
    return {
        "group": name,
        "state": found.group_state,
        "protocol_type": found.protocol_type,
        "protocol": found.protocol_data,
        "coordinator": coordinator,
        "members": members,
        "offsets": await _lags(asking, committed, members),
    }


async def _coordinator(asking: Asking, name: str) -> int:
    # FindCoordinator would create the topic of the offsets, and a page that is only looked at changes nothing.
    if GROUP_TOPIC not in asking.broker.metadata.topics:
        raise BadRequest(f"there is no group {name!r}", status=404)
    asked = m.FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[name])
    (found,) = (await asking.ask(asked, m.FindCoordinatorResponse)).coordinators
    check(found.error_code, f"the coordinator of group {name!r}")
    return found.node_id


def _offset_fetch(name: str) -> m.OffsetFetchRequest:
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
    return m.OffsetFetchRequest(groups=[group], require_stable=False)


def _members(group: m.DescribeGroupsResponse.DescribedGroup) -> list[Row]:
    return [_member(each, group.protocol_type) for each in group.members]


def _member(member: m.DescribeGroupsResponse.DescribedGroupMember, protocol_type: str) -> Row:
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "assigned": assigned_partitions(member.member_assignment) if protocol_type == CONSUMER_PROTOCOL else None,
    }


def assigned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """Topic -> partitions; None if the bytes are not those of Kafka's consumers: any member may choose them."""
    if len(assignment) < VERSION_BYTES:
        return {}
    # A later version only adds fields behind those of this one.
    version = min(int.from_bytes(assignment[:VERSION_BYTES], "big"), ASSIGNMENT_VERSION_MAX)
    try:
        decoded, _ = m.decode_from(m.ConsumerProtocolAssignment, version, assignment, VERSION_BYTES)
    except ProtocolViolation:
        return None
    return {each.topic: sorted(each.partitions) for each in decoded.assigned_partitions}


async def _lags(
    asking: Asking,
    committed: dict[TopicPartition, m.OffsetFetchResponse.OffsetFetchResponsePartitions],
    members: Iterable[Row],
) -> list[Row]:
    # What a member owns is the assignment of the last rebalance; whether it reads is seen by its commits.
    owners: dict[TopicPartition, object] = {}
    known = asking.broker.metadata.topics
    for member in members:
        assigned = member["assigned"]
        for topic, indexes in assigned.items() if isinstance(assigned, dict) else ():
            # A member may write any number into its assignment, and each row takes time.
            if topic in known and asking.sees(topic):
                there = [index async for index in paced(indexes) if index in known[topic].partitions]
                owners.update({TopicPartition(topic, index): member["member"] for index in there})

    keys = sorted({*committed, *owners})
    ends = await ends_of(asking, keys)

    # The lag in seconds needs the timestamp of a record, so it is only for callers who may read the topic.
    behind = {
        key: row.committed_offset
        for key, row in committed.items()
        if row.committed_offset < (ends.get(key, UNKNOWN).high_watermark or 0)
        and asking.may("Read", "Topic", key.topic)
    }
    first = await first_timestamps(asking, dict(list(behind.items())[:LAGS_IN_SECONDS_MAX]))
    now_ms = asking.broker.world.now_ms()
    rows: list[Row] = []
    async for key in paced(keys):
        row = committed.get(key)
        end = ends.get(key, UNKNOWN).high_watermark

        # A deleted and recreated topic may end below what was committed.
        lag = None if row is None or end is None else max(0, end - row.committed_offset)
        seconds = 0.0 if lag == 0 else None
        if key in first:
            seconds = round(max(0, now_ms - first[key]) / 1000, 3)
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed": None if row is None else row.committed_offset,
                "metadata": None if row is None else row.metadata,
                "high_watermark": end,
                "lag": lag,
                "lag_seconds": seconds,
                "member": owners.get(key),
            }
        )
    return rows


# -- transactions


async def transactions(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/transactions`: all transactional ids that the caller may see; the open ones with their partitions."""
    asking = asking_for(life, request)
    answered, silent = await _ask_all(asking, m.ListTransactionsRequest(), m.ListTransactionsResponse)
    listed = [
        (each.transaction_state not in OPEN_STATES, each.transactional_id, broker_id)
        for broker_id, response in answered.items()
        async for each in paced(response.transaction_states)
        if asking.may("Describe", "TransactionalId", each.transactional_id)
    ]
    # The open ones come first, and the others only if there is room.
    shown = sorted(listed)[:TRANSACTIONS_MAX]

    # One request for each coordinator.
    by_broker: dict[int, list[str]] = {}
    for _, name, broker_id in shown:
        by_broker.setdefault(broker_id, []).append(name)
    rows: list[Row] = []
    for broker_id, names in by_broker.items():
        try:
            response = await asking.ask_at(
                broker_id, m.DescribeTransactionsRequest(transactional_ids=names), m.DescribeTransactionsResponse
            )
        # The page says that this broker's transactions are missing.
        except PeerLost:
            silent.append(broker_id)
            continue
        rows += [_transaction(asking, each, broker_id) for each in response.transaction_states if not each.error_code]

    # Back in the order of the list: the open ones are what a person looks for.
    order = {name: number for number, (_, name, _) in enumerate(shown)}
    rows.sort(key=lambda row: order[str(row["transactional_id"])])
    return json_answer({"transactions": rows, "total": len(listed), "silent": silent})


def _transaction(asking: Asking, each: m.DescribeTransactionsResponse.TransactionState, coordinator: int) -> Row:
    is_open = each.transaction_state in OPEN_STATES and each.transaction_start_time_ms >= 0
    age_ms = asking.broker.world.now_ms() - each.transaction_start_time_ms if is_open else None
    return {
        "transactional_id": each.transactional_id,
        "state": each.transaction_state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.transaction_timeout_ms,
        "age_ms": age_ms,
        "coordinator": coordinator,
        "partitions": [
            [topic.topic, index] for topic in each.topics if asking.sees(topic.topic) for index in topic.partitions
        ],
    }


async def _ask_all(
    asking: Asking, request: m.Message, expected: type[Answered]
) -> tuple[dict[int, Answered], list[int]]:
    """The answer of each broker, and the brokers that gave none."""
    answered: dict[int, Answered] = {}
    silent: list[int] = []

    async def ask(broker_id: int) -> None:
        try:
            answered[broker_id] = await asking.ask_at(broker_id, request, expected)
        # The page says which brokers did not answer: what they know is missing.
        except PeerLost:
            silent.append(broker_id)

    # All are asked at the same time, so that a silent broker delays no question to another one.
    async with trio.open_nursery() as nursery:
        for broker_id in asking.broker.metadata.brokers:
            nursery.start_soon(ask, broker_id)
    return dict(sorted(answered.items())), sorted(silent)
