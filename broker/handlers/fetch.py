"""Fetch: records from partition logs to consumers and followers.

Behaviour: every wanted partition is planned (a bounded look into its log, no copy), and the answer is sent when at
    least `min_bytes` are planned, something failed, or `max_wait_ms` passed; until then the request waits, and only
    partitions that changed are planned again. The first batch of the first non-empty partition is sent whatever its
    size (KIP-74). Consumers read up to the high watermark, or to the last stable offset with read_committed; followers
    to the log end; the offset that a follower asks for is its progress, and the in-sync replicas and the high watermark
    follow from it (`Partition.follower_fetched`). Since version 11 a consumer may read from a follower, up to the high
    watermark there, and with `replica.selector.class` the response names one (KIP-392). Small reads travel inside the
    answer, large ones as file slices that the connection sends; what the page cache does not hold is read ahead in a
    thread.
Versions: 0-3 get their records in the message formats of before 0.11, unless `message.downconversion.enable` forbids it
    (UNSUPPORTED_VERSION); at least one whatever the limit, where Kafka cuts one off for 0-2; 7+ sessions (KIP-227); 9+
    leader epochs are checked; 12+ diverging epochs; 13+ topic ids instead of names; 16+ the current leader beside an
    error that means another one (KIP-951).
Not done: replication quotas (`leader.replication.throttled.rate`).
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.fetching.current_leader import LeaderHints
from barnabas.broker.fetching.plan import (
    NOT_FOUND,
    RECORD_FORMAT_2_VERSION,
    FetchPlan,
    Row,
    Rows,
    failed_row,
    records_bytes,
    replica_id,
)
from barnabas.broker.freeing import emptied, emptied_by_topic
from barnabas.broker.pacing import paced, portions
from barnabas.broker.replication.fetch_sessions import FetchSession, Named, Topic, Wanted
from barnabas.broker.replication.waiting import Waiter, Watched
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import FETCH_TOPIC_ID_VERSION, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID

STORAGE_ERROR_VERSION = 6  # older clients do not know it and get NOT_LEADER_OR_FOLLOWER
SESSION_VERSION = 7
CURRENT_LEADER_VERSION = 16
NO_PARTITION = -1
PARTITIONS_AT_A_TIME = 100  # planned in one step: about a millisecond. Counted by hand: for the usual fetch of a few
# partitions, `paced` would cost more than all the rest.
DUE_AT_A_TIME = 5000


async def fetch(broker: Broker, call: Call, request: m.FetchRequest) -> m.FetchResponse:
    """Plan, wait for enough, answer."""
    opened = await _open(broker, call, request)
    if isinstance(opened, ErrorCode):
        return m.FetchResponse(error_code=opened)
    session, named, incremental = opened
    await broker.fetch_sessions.free_closed()
    plan = FetchPlan(broker, call, request)
    try:
        return await _answer(plan, request, session, named, incremental=incremental)
    finally:
        await emptied(plan.partitions)
        await emptied(plan.rows)
        if session is None or incremental:  # otherwise the session keeps it
            await emptied_by_topic(named)


async def _answer(
    plan: FetchPlan,
    request: m.FetchRequest,
    session: FetchSession | None,
    named: Named,
    *,
    incremental: bool,
) -> m.FetchResponse:
    broker, call = plan.broker, plan.call
    try:
        if session is not None:
            await _fill_from_session(plan, session, request)
        else:
            await _fill(plan, named, request)
        await plan.warm()
        if call.version < RECORD_FORMAT_2_VERSION:
            await plan.convert()
    except BaseException:
        plan.release()
        raise
    if session is not None:
        rows = await _told(plan, session, incremental=incremental)
    else:
        rows = plan.rows
    topics = _Topics()
    for number, (each, row) in enumerate(rows.items(), 1):
        topics.add(each, row)
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
    session_id = NO_SESSION_ID if session is None else session.session_id
    response = m.FetchResponse(session_id=session_id, responses=topics.rows)
    if plan.urgent and call.version >= CURRENT_LEADER_VERSION:
        await _name_leaders(broker, call, rows, response)
    if plan.urgent and call.version < STORAGE_ERROR_VERSION:
        async for row in paced(rows.values()):
            if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return response


def refuse_fetch(request: m.FetchRequest, version: int, code: ErrorCode) -> m.FetchResponse:
    """The same error for every partition, and for the whole where the version has a place for it."""
    topics, named = _Topics(), Named()
    for _ in _naming(named, request, version):
        pass
    for wanted in _each(named):
        row = failed_row(wanted, code)
        row.aborted_transactions = () if code in NOT_FOUND else None
        topics.add(wanted, row)
    top = code if version >= SESSION_VERSION else ErrorCode.NONE
    return m.FetchResponse(error_code=top, responses=topics.rows)


async def _name_leaders(broker: Broker, call: Call, rows: Rows, response: m.FetchResponse) -> None:
    """Beside an error that means another leader, say who leads now and where it is reached (KIP-951)."""
    hints = LeaderHints(broker, call.listener)
    async for wanted, row in paced(rows.items()):
        if row.error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            continue
        name = broker.metadata.topic_name(wanted.topic) if isinstance(wanted.topic, bytes) else wanted.topic
        leader = hints.leader_of(name or "", wanted.partition_index)
        if leader is not None:
            row.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    response.node_endpoints = [
        m.FetchResponse.NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
        for node in hints.nodes.values()
    ]


# -- sessions


async def _open(
    broker: Broker, call: Call, request: m.FetchRequest
) -> tuple[FetchSession | None, Named, bool] | ErrorCode:
    """(session or None, what the request names, whether it is incremental)."""
    sessions, slots = broker.fetch_sessions, broker.config.max_incremental_fetch_session_cache_slots
    named: Named = {}
    for number, _ in enumerate(_naming(named, request, call.version), 1):
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
    if call.version < SESSION_VERSION or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION_ID:
            sessions.close(request.session_id)
        if call.version < SESSION_VERSION or request.session_epoch == FINAL_EPOCH:
            return None, named, False
        count = sum(map(len, named.values()))
        session = sessions.create(trio.current_time(), slots, count, of_follower=replica_id(call, request) >= 0)
        if session is None:
            return None, named, False
        session.want_all(named, count)
        session.uses_topic_ids = call.version >= FETCH_TOPIC_ID_VERSION
        session.rack = request.rack_id
        await _stay_due(session, list(_each(named)))
        return session, named, False
    continued = sessions.continue_session(
        request.session_id,
        request.session_epoch,
        trio.current_time(),
        uses_topic_ids=call.version >= FETCH_TOPIC_ID_VERSION,
    )
    if isinstance(continued, ErrorCode):
        return continued
    continued.ask_from(request.rack_id)
    size = continued.partition_count
    for number, change in enumerate(_each(named), 1):
        _update(continued, change)
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
    for number, key in enumerate(_forgotten(request, call.version), 1):
        continued.forget(*key)
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
    if not continued.partition_count:
        sessions.close(continued.session_id)
        return None, {}, False
    if continued.partition_count > size and not sessions.has_room_for(continued, slots):
        sessions.close(continued.session_id)
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # so the client names everything again
    return continued, named, True


def _update(session: FetchSession, change: Wanted) -> None:
    """A partition named in an incremental request: new, or with another position; what was sent of it stays known."""
    known = session.find(change.topic, change.partition_index)
    if known is None:
        session.want(change)
        return
    known.fetch_offset = change.fetch_offset
    known.max_bytes = change.max_bytes
    known.current_leader_epoch = change.current_leader_epoch
    known.last_fetched_epoch = change.last_fetched_epoch
    known.log_start_offset = change.log_start_offset
    session.want(known)


async def _fill_from_session(plan: FetchPlan, session: FetchSession, request: m.FetchRequest) -> None:
    """Plan what is due, and what becomes due while waiting."""
    deadline = trio.current_time() + request.max_wait_ms / 1000
    due: list[Wanted] = []
    plan.pulse = session.pulse
    session.pulse.broker_epoch = plan.broker_epoch
    began_ms = plan.broker.alter_partition.now_ms()
    try:
        while True:
            due = session.take_due()
            for number, wanted in enumerate(due, 1):
                session.watch(wanted, plan.plan(wanted))
                if number % PARTITIONS_AT_A_TIME == 0:
                    await trio.lowlevel.checkpoint()
            session.pulse.last_fetch_ms = began_ms  # of what is not due, nothing changed until then
            if _enough(plan, request) or not session.is_watching or not await session.waiter.wait(deadline):
                return
            plan.has_waited = True
    except BaseException:
        await _stay_due(session, [*plan.rows, *due])
        raise


async def _told(plan: FetchPlan, session: FetchSession, *, incremental: bool) -> Rows:
    """The rows of the response, remembered as sent; failures, left-over data and joining followers stay due."""
    rows: Rows = {}
    served: list[Wanted] = []
    for number, (wanted, row) in enumerate(plan.rows.items(), 1):
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
        has_news = (
            row.error_code != 0
            or records_bytes(row) > 0
            or row.diverging_epoch.epoch >= 0
            or row.preferred_read_replica >= 0
        )
        if has_news:
            served.append(wanted)  # there may be more
        elif wanted in plan.left_over or plan.is_joining(wanted):
            session.due[wanted] = None  # first of all the next time
        offsets = row.high_watermark, row.log_start_offset
        if has_news or not incremental or offsets != (wanted.sent_high_watermark, wanted.sent_log_start_offset):
            rows[wanted] = row
        wanted.sent_high_watermark, wanted.sent_log_start_offset = offsets
    await _stay_due(session, served)
    return rows


async def _stay_due(session: FetchSession, wanted: Sequence[Wanted]) -> None:
    """To be planned at the next request, too."""
    for some in portions(wanted, DUE_AT_A_TIME):
        session.due.update(dict.fromkeys(some))
        if len(some) == DUE_AT_A_TIME:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()


# -- without a session


async def _fill(plan: FetchPlan, named: Named, request: m.FetchRequest) -> None:
    """Plan everything; while too little is there, wait for changes and plan those again."""
    found: dict[Watched, Wanted] = {}
    waiter = Waiter(sleeps_through_commits=plan.replica_id >= 0)
    try:
        for number, each in enumerate(_each(named), 1):
            partition = plan.plan(each)
            if partition is not None:
                found[partition] = each
                waiter.register([partition])  # in the step that planned it: no change in between is missed
            if number % PARTITIONS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        if not found or _enough(plan, request):
            return
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while not _enough(plan, request) and await waiter.wait(deadline):
            plan.has_waited = True
            async for changed in paced(waiter.take_dirty()):
                plan.plan(found[changed])
    finally:
        waiter.unregister(found)


def _enough(plan: FetchPlan, request: m.FetchRequest) -> bool:
    return plan.urgent or plan.planned_bytes >= plan.min_bytes or request.max_wait_ms <= 0


# -- requests and rows


def _naming(named: Named, request: m.FetchRequest, version: int) -> Iterator[None]:
    """Fill in what the request names; of a partition that is named twice, the last counts.

    Each partition is a step, and a topic without partitions one, too.
    """
    for row in request.topics:
        topic = row.topic_id if version >= FETCH_TOPIC_ID_VERSION else row.topic
        of_topic = named.setdefault(topic, {})
        for partition in row.partitions:
            of_topic[partition.partition] = _wanted(topic, partition)
            yield
        if not row.partitions:
            yield


def _each(named: Named) -> Iterator[Wanted]:
    return chain.from_iterable(map(dict.values, named.values()))


def _wanted(topic: Topic, partition: m.FetchRequest.FetchPartition) -> Wanted:
    wanted = Wanted(topic, partition.partition)
    wanted.fetch_offset = partition.fetch_offset
    wanted.max_bytes = partition.partition_max_bytes
    wanted.current_leader_epoch = partition.current_leader_epoch
    wanted.last_fetched_epoch = partition.last_fetched_epoch
    wanted.log_start_offset = partition.log_start_offset
    return wanted


def _forgotten(request: m.FetchRequest, version: int) -> Iterator[tuple[Topic, int]]:
    """What a session is to forget. A topic without partitions is a step, too, and forgets nothing."""
    for forgotten in request.forgotten_topics_data:
        topic = forgotten.topic_id if version >= FETCH_TOPIC_ID_VERSION else forgotten.topic
        for index in forgotten.partitions or (NO_PARTITION,):
            yield topic, index


class _Topics:
    """Rows in their order, neighbours of the same topic together."""

    def __init__(self) -> None:
        self.rows: list[m.FetchResponse.FetchableTopicResponse] = []
        self._current: str | bytes | None = None
        self._members: list[Row] = []

    def add(self, wanted: Wanted, row: Row) -> None:
        """The next row of the answer."""
        if wanted.topic != self._current:
            self._current, self._members = wanted.topic, []
            topic = m.FetchResponse.FetchableTopicResponse(partitions=self._members)
            if isinstance(self._current, bytes):
                topic.topic_id = self._current
            else:
                topic.topic = self._current
            self.rows.append(topic)
        self._members.append(row)
