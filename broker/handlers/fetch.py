"""Fetch: records from partition logs to consumers and followers.

This file resolves the fetch session (`replication/fetch_sessions.py`), decides which partitions are planned and when
the response is sent. `fetching/plan.py` plans one partition: it takes a bounded look into the log and copies nothing.

Behaviour: the response is sent when at least `min_bytes` are planned, a partition failed, or `max_wait_ms` passed.
    Until then the request waits, and only partitions that changed are planned again. The first batch of the first
    non-empty partition is sent whatever its size (KIP-74). Consumers read up to the high watermark, or to the last
    stable offset with read_committed. Followers read up to the log end offset; their fetch offset is their progress,
    from which the leader derives the ISR and the high watermark (`Partition.follower_fetched`). Since version 11 a
    consumer may read from a follower, up to the follower's high watermark; with `replica.selector.class` the response
    names a preferred replica (KIP-392). An offset behind the log's end is OFFSET_OUT_OF_RANGE for a consumer only if
    this broker is certain to be the leader, else NOT_LEADER_OR_FOLLOWER. Small reads travel inside the response, large
    ones as file slices that the connection sends; data that the page cache lacks is read ahead in a thread.
Versions: 0-3 get records in the message formats before 0.11, unless `message.downconversion.enable` forbids it
    (UNSUPPORTED_VERSION); they get at least one complete message whatever the limit, where Kafka truncates it for 0-2.
    7+ sessions (KIP-227); 9+ leader epochs are checked; 12+ diverging epochs; 13+ topic ids instead of names; 16+ the
    current leader beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.fetching.current_leader import LeaderHints
from barnabas.broker.fetching.in_session import Planned, begin_in, is_enough, plan_some, select, update, wanted_of
from barnabas.broker.fetching.plan import (
    RECORD_FORMAT_2_VERSION,
    FetchPlan,
    Row,
    Rows,
    failed_row,
    records_bytes,
    replica_id,
)
from barnabas.replication.confirmation import CONFIRMED_SECONDS
from barnabas.replication.fetch_sessions import FetchSession, Named, Topic, Wanted
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import FETCH_TOPIC_ID_VERSION, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID
from barnabas.world.freeing import emptied, emptied_by_topic
from barnabas.world.pacing import paced, pause_after, portions
from barnabas.world.waiting import Waiter, Watched

STORAGE_ERROR_VERSION = 6  # below: NOT_LEADER_OR_FOLLOWER replaces KAFKA_STORAGE_ERROR, which clients do not know
SESSION_VERSION = 7
CURRENT_LEADER_VERSION = 16
NO_PARTITION = -1
# Partitions planned between two checkpoints: about a millisecond. Loops here count by hand: for the usual fetch of a
# few partitions, `paced` would cost more than the rest of the request.
PARTITIONS_AT_A_TIME = 100
# The approximate sizes of an encoded response, topic and row, without names and records. The quota of
# fetched bytes counts them.
RESPONSE_BYTES, TOPIC_BYTES, ROW_BYTES = 16, 20, 50
DUE_AT_A_TIME = 5000  # dict entries added between two checkpoints


async def fetch(broker: Broker, call: Call, request: m.FetchRequest) -> m.FetchResponse:
    """Resolve the session, plan, wait for `min_bytes`, answer.

    Session errors (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR) are top-level
    errors of the response. Each partition has its own error for everything else.
    """
    planned = call.begun if isinstance(call.begun, Planned) else None
    opened = await _open(broker, call, request) if planned is None else (planned.session, Named(), True)
    if isinstance(opened, ErrorCode):
        # A consumer's Fetch records its time in `_note_fetched`, which this one does not reach: dispatch records it.
        if call.spent is not None and replica_id(call, request) < 0:
            call.spent.is_never_exempt = True
        return m.FetchResponse(error_code=opened)

    session, named, incremental = opened

    # `_open` may have closed sessions. Freeing one of 50,000 partitions takes milliseconds, so it is done in steps.
    await broker.fetch_sessions.free_closed()
    plan = FetchPlan(broker, call, request) if planned is None else planned.plan
    if plan.replica_id >= 0 and call.tally is not None:
        call.tally = broker.tally.follower_fetches
    try:
        response = await _answer(plan, request, session, named, incremental=incremental, is_planned=planned is not None)
        if plan.throttled:
            plan.note_throttled()
        throttled_ms = await _note_fetched(plan, response) if plan.is_under_quota else 0
        if not throttled_ms:
            if not plan.count_sent_of_one():
                for _ in plan.count_sent():
                    await trio.lowlevel.checkpoint()
            return response

        # The response has no records: they stay due in the session for the next request. A client that asked for a new
        # session begins again with a full request.
        if session is not None and not incremental:
            broker.fetch_sessions.close(session.session_id)
        plan.release()
        session_id = session.session_id if session is not None and incremental else NO_SESSION_ID
        return m.FetchResponse(throttle_time_ms=throttled_ms, session_id=session_id)
    except BaseException:
        # The client does not get the id of its new session, so the slot would be taken until the session expires. A
        # follower interrupts its Fetch whenever partitions are added to it.
        if session is not None and not incremental:
            broker.fetch_sessions.close(session.session_id)
        raise
    finally:
        # The tables of the usual Fetch are freed in one short step, when the last reference goes.
        if len(plan.rows) + len(named) + sum(map(len, named.values())) > PARTITIONS_AT_A_TIME:
            await emptied(plan.partitions)
            await emptied(plan.rows)

            # A new session keeps the table of its full request as its own partition table.
            if session is None or incremental:
                await emptied_by_topic(named)


async def _note_fetched(plan: FetchPlan, response: m.FetchResponse) -> int:
    """Record the size of a response; if the client has to be throttled for it, take it back, and return the time."""
    size_bytes = RESPONSE_BYTES
    async for topic in paced(response.responses):
        size_bytes += TOPIC_BYTES + len(topic.topic)
        for row in topic.partitions:
            size_bytes += ROW_BYTES + records_bytes(row)
        await pause_after(len(topic.partitions))

    quotas = plan.broker.quotas
    user = plan.call.quota_user
    throttled_ms = quotas.fetched.record(*user, size_bytes, quotas.now_ms())
    if plan.call.spent is not None:
        throttled_ms = max(throttled_ms, quotas.note_time(*user, plan.call.spent.take()))
    if throttled_ms:
        quotas.fetched.take_back(*user, size_bytes, quotas.now_ms())
        plan.call.throttle(throttled_ms)
    return throttled_ms


async def _answer(
    plan: FetchPlan,
    request: m.FetchRequest,
    session: FetchSession | None,
    named: Named,
    *,
    incremental: bool,
    is_planned: bool,
) -> m.FetchResponse:
    broker = plan.broker
    call = plan.call
    try:
        # A Fetch that begins in the step that reads it is planned already (`now/fetch.py`).
        if not is_planned:
            await (_fill(plan, named, request) if session is None else _fill_from_session(plan, session, request))
        if plan.urgent and plan.replica_id < 0:
            await _confirm_log_ends(plan)

        # `sendfile` runs on the event loop and would block it for data that is not in the page cache.
        if plan.has_slices:
            await plan.warm()
        if call.version < RECORD_FORMAT_2_VERSION:
            # The records are converted in memory, so only a few requests do it at a time.
            async with broker.turns.of_clients.turn():
                await plan.convert()
    except BaseException:
        # File slices hold segment files open until they are sent. A plan that fails or is cancelled sends none.
        plan.release()
        raise

    # The session is updated only after the plan is complete: the rows selected here are the ones that are sent.
    if session is not None:
        rows = await _select_rows(plan, session, incremental=incremental)
    else:
        rows = plan.rows

    topics = _Topics()
    for number, (each, row) in enumerate(rows.items(), 1):
        topics.add(each, row)
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()

    session_id = NO_SESSION_ID if session is None else session.session_id
    response = m.FetchResponse(session_id=session_id, responses=topics.rows)

    # Errors of leadership and storage always set `urgent`, so most responses skip both passes over their rows.
    if plan.urgent and call.version >= CURRENT_LEADER_VERSION:
        await _name_leaders(broker, call, rows, response)
    if plan.urgent and call.version < STORAGE_ERROR_VERSION:
        async for row in paced(rows.values()):
            # These clients do not know the code, and NOT_LEADER_OR_FOLLOWER makes them refresh
            # metadata, as in Kafka.
            if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    return response


async def _confirm_log_ends(plan: FetchPlan) -> None:
    """Make sure that this broker is no leader of the past where an offset is behind the log's end: the log of its
    successor may reach further, and OFFSET_OUT_OF_RANGE makes a consumer begin elsewhere."""
    confirmed_by = trio.current_time() + CONFIRMED_SECONDS
    async for wanted, row in paced(plan.rows.items()):
        if row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            continue
        partition = plan.partitions[wanted]
        is_below = partition.log is not None and wanted.fetch_offset < partition.log.log_start_offset
        if partition.is_leader and not is_below and await partition.confirm(confirmed_by):
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


def refuse_fetch(request: m.FetchRequest, version: int, code: ErrorCode) -> m.FetchResponse:
    """The same error for every partition, and at the top level from version 7 on, which has that field."""
    topics = _Topics()
    named = Named()
    for _ in _naming(named, request, version):
        pass
    for wanted in _each(named):
        row = failed_row(wanted, code)
        row.aborted_transactions = ()
        row.records = None
        topics.add(wanted, row)
    top = code if version >= SESSION_VERSION else ErrorCode.NONE
    return m.FetchResponse(error_code=top, responses=topics.rows)


async def _name_leaders(broker: Broker, call: Call, rows: Rows, response: m.FetchResponse) -> None:
    """Set the current leader and its address beside errors that mean another leader (KIP-951)."""
    hints = LeaderHints(broker.replicas, broker.metadata, call.listener)
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
    """(session or None, the partitions that the request names, whether it is incremental), or a session error.

    The combinations of session id and epoch are listed in `replication/fetch_sessions.py`.
    """
    sessions = broker.fetch_sessions
    slots = broker.config.max_incremental_fetch_session_cache_slots
    named: Named = {}
    for _ in _naming(named, request, call.version):
        await trio.lowlevel.checkpoint()
    if call.version < SESSION_VERSION or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        # A full request closes the session that it names, whether or not it asks for a new one.
        if request.session_id != NO_SESSION_ID:
            sessions.close(request.session_id)
        if call.version < SESSION_VERSION or request.session_epoch == FINAL_EPOCH:
            return None, named, False
        count = sum(map(len, named.values()))
        session = sessions.create(trio.current_time(), slots, count, of_follower=replica_id(call, request) >= 0)

        # Sessions of more value keep all slots: the response has session id 0, and the client sends full requests.
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
        update(continued, change)
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()

    for number, key in enumerate(_forgotten(request, call.version), 1):
        continued.forget(*key)
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()

    # Kafka, too, closes a session without partitions; the request is then a sessionless fetch of nothing.
    if not continued.partition_count:
        sessions.close(continued.session_id)
        return None, {}, False

    # The slots bound the partitions of all sessions together. The error makes the client send a full request, which
    # gets a session only if there is room.
    if continued.partition_count > size and not sessions.has_room_for(continued, slots):
        sessions.close(continued.session_id)
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return continued, named, True


async def _fill_from_session(plan: FetchPlan, session: FetchSession, request: m.FetchRequest) -> None:
    """Plan the due partitions of the session, and those that become due while the request waits."""
    deadline = trio.current_time() + request.max_wait_ms / 1000
    due: list[Wanted] = []

    began_ms = begin_in(session, plan)
    try:
        while True:
            due = session.take_due()
            for some in portions(due, PARTITIONS_AT_A_TIME):
                plan_some(plan, session, some)
                if len(some) == PARTITIONS_AT_A_TIME:
                    await trio.lowlevel.checkpoint()

            # This follows the planning of all due partitions: a partition that is not due did not change before
            # `began_ms`, so the follower had all of it at that time.
            session.pulse.last_fetch_ms = began_ms

            # Without a hosted partition no change can wake the request, so it answers at once.
            if is_enough(plan, request) or not session.is_watching or not await session.waiter.wait(deadline):
                return
            plan.has_waited = True
    except BaseException:
        # `take_due` emptied `session.due`. A partition whose row was never sent must be planned by the next request.
        await _stay_due(session, [*plan.rows, *due])
        raise


async def _select_rows(plan: FetchPlan, session: FetchSession, *, incremental: bool) -> Rows:
    """Select the rows of the response, and note in the session which offsets they report (`select`)."""
    rows: Rows = {}
    served: list[Wanted] = []
    for number, (wanted, row) in enumerate(plan.rows.items(), 1):
        if number % PARTITIONS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
        is_sent, is_served = select(plan, session, wanted, row, incremental=incremental)
        if is_sent:
            rows[wanted] = row
        if is_served:
            served.append(wanted)

    await _stay_due(session, served)
    return rows


async def _stay_due(session: FetchSession, wanted: Sequence[Wanted]) -> None:
    """Make these partitions due at the session's next request."""
    for some in portions(wanted, DUE_AT_A_TIME):
        session.due.update(dict.fromkeys(some))
        # The checkpoint is shielded, because a cancelled request must make all of them due again: a partition
        # that is not due waits for its next change.
        if len(some) == DUE_AT_A_TIME:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()


# -- without a session


async def _fill(plan: FetchPlan, named: Named, request: m.FetchRequest) -> None:
    """Plan all named partitions. While fewer than `min_bytes` are planned, wait for changes and plan those again."""
    found: dict[Watched, Wanted] = {}
    unwatched: list[Watched] = []

    # A follower needs no response for a higher high watermark alone: its next fetch brings it.
    waiter = Waiter(sleeps_through_commits=plan.replica_id >= 0)
    try:
        for number, each in enumerate(_each(named), 1):
            partition = plan.plan(each)
            if partition is not None:
                found[partition] = each
                unwatched.append(partition)

            # The partitions are watched before other tasks run: a change of a planned partition
            # that is not watched would be missed.
            if number % PARTITIONS_AT_A_TIME == 0:
                waiter.register(unwatched)
                unwatched.clear()
                await trio.lowlevel.checkpoint()
        if not found or is_enough(plan, request):
            return
        waiter.register(unwatched)
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while not is_enough(plan, request) and await waiter.wait(deadline):
            # From now on the fetch offset of the request is old: a plan must not count as the follower's progress.
            plan.has_waited = True
            async for changed in paced(waiter.take_dirty()):
                plan.plan(found[changed])
    finally:
        waiter.unregister(found)


# -- requests and rows


def _naming(named: Named, request: m.FetchRequest, version: int) -> Iterator[None]:
    """Fill `named` from the request, in steps of PARTITIONS_AT_A_TIME topics and partitions.

    Of a partition that is named twice the last entry counts.
    """
    left = PARTITIONS_AT_A_TIME
    for row in request.topics:
        topic = row.topic_id if version >= FETCH_TOPIC_ID_VERSION else row.topic
        of_topic = named.setdefault(topic, {})
        left -= 1  # also for a topic without partitions
        for partition in row.partitions:
            of_topic[partition.partition] = wanted_of(topic, partition)
            left -= 1
            if left <= 0:
                left = PARTITIONS_AT_A_TIME
                yield
        if left <= 0:
            left = PARTITIONS_AT_A_TIME
            yield


def _each(named: Named) -> Iterator[Wanted]:
    return chain.from_iterable(map(dict.values, named.values()))


def _forgotten(request: m.FetchRequest, version: int) -> Iterator[tuple[Topic, int]]:
    """(topic, partition index) to remove from the session. A topic without partitions is one step: NO_PARTITION."""
    for forgotten in request.forgotten_topics_data:
        topic = forgotten.topic_id if version >= FETCH_TOPIC_ID_VERSION else forgotten.topic
        for index in forgotten.partitions or (NO_PARTITION,):
            yield topic, index


class _Topics:
    """Groups rows by topic without reordering them: a topic appears again when rows of another topic lie between."""

    def __init__(self) -> None:
        self.rows: list[m.FetchResponse.FetchableTopicResponse] = []
        self._current: str | bytes | None = None
        self._members: list[Row] = []

    def add(self, wanted: Wanted, row: Row) -> None:
        """Append the next row of the response."""
        if wanted.topic != self._current:
            self._current = wanted.topic
            self._members = []
            topic = m.FetchResponse.FetchableTopicResponse(partitions=self._members)
            if isinstance(self._current, bytes):
                topic.topic_id = self._current
            else:
                topic.topic = self._current
            self.rows.append(topic)
        self._members.append(row)
