"""CreateTopics, DeleteTopics and CreatePartitions.

Behaviour: only the active controller serves them; for NOT_CONTROLLER clients look up the controller and ask it. The
    handler writes the change to the metadata store (`broker.topics`), and the controller acts on it. A created or grown
    topic is answered when every partition has a leader in this broker's metadata cache, a deleted one when it is gone
    from the cache. REQUEST_TIMED_OUT when `timeout_ms` passes first; the change goes on. A topic that is created or
    grown twice in one request is INVALID_REQUEST; one that is deleted twice is deleted.
Versions: CreateTopics 0-7: counts of -1 mean the broker's defaults in all of them, although clients may send them from
    4 on only (KIP-464); 1+ validate_only; 5+ the response has counts and configuration (KIP-525); 7 the topic id.
    DeleteTopics 0-6: 6 by name or topic id; before 3 a broker with delete.topic.enable=false answers INVALID_REQUEST
    instead of TOPIC_DELETION_DISABLED. CreatePartitions 0-3, all alike.
"""

from collections.abc import Iterable

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import counted
from barnabas.config.alter import CHANGES_MAX
from barnabas.config.describe import describe_topic
from barnabas.controller.admin.create_partitions import CreatedPartitions, NewPartitions
from barnabas.controller.admin.create_topics import CreatedTopic, NewTopic, TopicPlan, TopicRefused
from barnabas.quotas.clients import Mutations
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse, shortened
from barnabas.wire.topics import ZERO_TOPIC_ID
from barnabas.world.pacing import paced

DELETION_DISABLED_VERSION = 3
# KIP-599: from these versions on THROTTLING_QUOTA_EXCEEDED refuses; earlier ones are throttled only.
STRICT_CREATION_VERSION, STRICT_DELETION_VERSION, STRICT_GROWTH_VERSION = 6, 5, 3
TELLS_CONFIG_VERSION = 5
TOPIC_ID_VERSION = 7
DELETE_STATES_VERSION = 6
UNKNOWN = -1
MAY_NOT_ALTER = "The topic authorization is failed."  # Kafka's words

Asked = m.CreateTopicsRequest.CreatableTopic
CreateRow = m.CreateTopicsResponse.CreatableTopicResult
DeleteRow = m.DeleteTopicsResponse.DeletableTopicResult
GrowRow = m.CreatePartitionsResponse.CreatePartitionsTopicResult


QUOTA_EXCEEDED = TopicRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)


# -- CreateTopics


async def create_topics(broker: Broker, call: Call, request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
    """Create topics and wait for their leaders; each topic has its own error.

    Raises Refuse(NOT_CONTROLLER).
    """
    # The deadline counts from the arrival of the request: writing to the store takes part of `timeout_ms`.
    deadline = trio.current_time() + request.timeout_ms / 1000
    if not broker.candidate.is_active:
        raise Refuse(ErrorCode.NOT_CONTROLLER)
    named = await counted(asked.name for asked in request.topics)
    rows: list[CreateRow] = []
    waiting: dict[str, int] = {}
    mutations = broker.quotas.mutations_of(*call.quota_user, strict=call.version >= STRICT_CREATION_VERSION)
    async for asked in paced(request.topics):
        if named[asked.name] > 1:
            rows.append(_refused(asked.name, ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic."))
            continue
        outcome = await _create(broker, call, asked, mutations, validate_only=request.validate_only)
        if isinstance(outcome, TopicRefused):
            rows.append(_refused(asked.name, outcome.code, outcome.message))
            continue

        # `validate_only` returns the plan alone: no topic id, and no leaders to wait for.
        plan = outcome.plan if isinstance(outcome, CreatedTopic) else outcome
        rows.append(await _created(broker, call, plan, outcome))
        if isinstance(outcome, CreatedTopic):
            waiting[asked.name] = len(plan.assignment)

    late = await broker.topics.await_leaders(waiting, deadline) if request.timeout_ms > 0 else waiting

    # In Kafka, too, timeout_ms <= 0 answers REQUEST_TIMED_OUT at once for topics that are being created.
    rows = [_timed_out(row) if row.name in late else row async for row in paced(rows)]

    # KIP-525: the right to create a topic does not include the right to see its configuration.
    if call.version >= TELLS_CONFIG_VERSION:
        async for row in paced(rows):
            if not call.authorize("DescribeConfigs", "Topic", row.name, is_filter=True):
                row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    call.throttle(mutations.throttled_ms)
    return m.CreateTopicsResponse(throttle_time_ms=mutations.throttled_ms, topics=rows)


def refuse_create_topics(request: m.CreateTopicsRequest, version: int, code: ErrorCode) -> m.CreateTopicsResponse:
    """The same error for every topic, without a message."""
    return m.CreateTopicsResponse(topics=[_refused(asked.name, code, "") for asked in request.topics])


async def _create(
    broker: Broker, call: Call, asked: Asked, mutations: Mutations, *, validate_only: bool
) -> CreatedTopic | TopicPlan | TopicRefused:
    # Create on the cluster allows every topic name.
    if not (call.authorize("Create", "Cluster", is_filter=True) or call.authorize("Create", "Topic", asked.name)):
        return TopicRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")

    # Checking takes time per property, even for unknown names, and a client may send any number.
    if len(asked.configs) > CHANGES_MAX:
        return TopicRefused(ErrorCode.INVALID_REQUEST, f"{len(asked.configs)} properties are more than {CHANGES_MAX}.")
    new = NewTopic(
        asked.name,
        partition_count=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignment={row.partition_index: tuple(row.broker_ids) async for row in paced(asked.assignments)},
        # The last value of a property that is named twice counts.
        configs={config.name: config.value for config in asked.configs},
    )

    # The topic is planned first, because one that cannot be created takes no tokens.
    if mutations.is_limited and not validate_only:
        plan = await broker.topics.create(new, validate_only=True)
        if isinstance(plan, TopicPlan) and not mutations.take(len(plan.assignment)):
            return QUOTA_EXCEEDED

    return await broker.topics.create(new, validate_only=validate_only)


def _refused(name: str, code: ErrorCode, message: str | None) -> CreateRow:
    return CreateRow(
        name=name,
        error_code=code,
        error_message=_message(code, message),
        num_partitions=UNKNOWN,
        replication_factor=UNKNOWN,
        configs=[],
    )


def _message(code: ErrorCode, message: str | None) -> str | None:
    # Kafka leaves this error without a message.
    if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return None
    return code.message if message is None else shortened(message)


def _timed_out(row: CreateRow) -> CreateRow:
    """The row of a topic that is being created and has no leaders yet; it keeps the topic id."""
    late = _refused(row.name, ErrorCode.REQUEST_TIMED_OUT, None)
    late.topic_id = row.topic_id
    late.error_message = None
    return late


async def _created(broker: Broker, call: Call, plan: TopicPlan, outcome: CreatedTopic | TopicPlan) -> CreateRow:
    row = CreateRow(name=plan.name, error_message=None)
    if call.version < TELLS_CONFIG_VERSION:
        return row

    # The id is left out, too, as in Kafka. `create_topics` sets the error code.
    if not call.authorize("DescribeConfigs", "Topic", plan.name, is_filter=True):
        return row
    if call.version >= TOPIC_ID_VERSION and isinstance(outcome, CreatedTopic):
        row.topic_id = outcome.topic_id or ZERO_TOPIC_ID
    row.num_partitions = len(plan.assignment)
    row.replication_factor = plan.replication_factor
    row.configs = [
        m.CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name,
            value=entry.text,
            read_only=False,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        async for entry in paced(describe_topic(broker.config, plan.configs))
    ]
    return row


# -- DeleteTopics


async def delete_topics(broker: Broker, call: Call, request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse:
    """Mark topics for deletion and wait until they are gone; each topic has its own error.

    Raises Refuse: NOT_CONTROLLER, TOPIC_DELETION_DISABLED, INVALID_REQUEST.
    """
    deadline = trio.current_time() + request.timeout_ms / 1000
    if not broker.candidate.is_active:
        raise Refuse(ErrorCode.NOT_CONTROLLER)

    # TOPIC_DELETION_DISABLED came with version 3; older clients do not know it.
    if not broker.config.delete_topic_enable:
        disabled = call.version >= DELETION_DISABLED_VERSION
        code = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        raise Refuse(code)

    rows = [_look_up(broker, call, *asked) async for asked in paced(_asked_topics(request, call.version))]

    # A topic may be named several times, also once by name and once by id. It is marked once, and all its rows have the
    # same outcome.
    waiting: dict[str, list[DeleteRow]] = {}
    async for row in paced(rows):
        if row.name is not None and not row.error_code:
            waiting.setdefault(row.name, []).append(row)
    mutations = broker.quotas.mutations_of(*call.quota_user, strict=call.version >= STRICT_DELETION_VERSION)

    # The list is a copy: topics that cannot be marked leave `waiting`, and the wait below leaves
    # them out.
    for name in list(waiting):
        known = broker.metadata.topics.get(name)
        if not mutations.take(0 if known is None else len(known.partitions)):
            _refuse_rows(waiting.pop(name), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            continue
        refused = await broker.topics.mark_for_deletion(name)
        if refused is not None:
            _refuse_rows(waiting.pop(name), refused.code)

    # All topics are marked before the first wait: the controller deletes them together.
    for name in await broker.topics.await_gone(set(waiting), deadline):
        _refuse_rows(waiting[name], ErrorCode.REQUEST_TIMED_OUT)
    call.throttle(mutations.throttled_ms)
    return m.DeleteTopicsResponse(throttle_time_ms=mutations.throttled_ms, responses=rows)


def refuse_delete_topics(request: m.DeleteTopicsRequest, version: int, code: ErrorCode) -> m.DeleteTopicsResponse:
    """The same error for every topic."""
    rows = [DeleteRow(name=name, topic_id=topic_id) for name, topic_id in _asked_topics(request, version)]
    _refuse_rows(rows, code)
    return m.DeleteTopicsResponse(responses=rows)


def _asked_topics(request: m.DeleteTopicsRequest, version: int) -> Iterable[tuple[str | None, bytes]]:
    if version < DELETE_STATES_VERSION:
        return ((name, ZERO_TOPIC_ID) for name in request.topic_names)
    return ((topic.name, topic.topic_id) for topic in request.topics)


def _look_up(broker: Broker, call: Call, name: str | None, topic_id: bytes) -> DeleteRow:
    """The row of one requested topic: with its name if the id is known, with an error if it cannot be deleted."""
    if name is not None and topic_id != ZERO_TOPIC_ID:
        raise Refuse(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
    row = DeleteRow(name=name, topic_id=topic_id)
    if topic_id != ZERO_TOPIC_ID:
        row.name = broker.metadata.topic_name(topic_id)
        if row.name is None:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return row

        # The client knows the id; the name is for those who may describe the topic.
        if not call.authorize("Describe", "Topic", row.name):
            row.name = None
            row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return row

    # Authorization is checked before existence: otherwise the error would reveal which topics
    # exist.
    if row.name is None or not call.authorize("Delete", "Topic", row.name):
        row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # also without a name and an id
    elif row.name not in broker.metadata.topics:
        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return row


def _refuse_rows(rows: list[DeleteRow], code: ErrorCode) -> None:
    """Set the error of these rows, without a message, as in Kafka."""
    for row in rows:
        row.error_code = code


# -- CreatePartitions


async def create_partitions(
    broker: Broker, call: Call, request: m.CreatePartitionsRequest
) -> m.CreatePartitionsResponse:
    """Add partitions to topics and wait for their leaders; each topic has its own error.

    Raises Refuse(NOT_CONTROLLER).
    """
    deadline = trio.current_time() + request.timeout_ms / 1000
    if not broker.candidate.is_active:
        raise Refuse(ErrorCode.NOT_CONTROLLER)
    named = await counted(asked.name for asked in request.topics)

    # A topic that is named twice gets one row, with INVALID_REQUEST.
    rows: dict[str, GrowRow] = {}
    waiting: dict[str, int] = {}
    mutations = broker.quotas.mutations_of(*call.quota_user, strict=call.version >= STRICT_GROWTH_VERSION)
    async for asked in paced(request.topics):
        row = rows[asked.name] = GrowRow(name=asked.name)
        if named[asked.name] > 1:
            row.error_code = ErrorCode.INVALID_REQUEST
            row.error_message = "Duplicate topic in request."
        elif not call.authorize("Alter", "Topic", asked.name):
            row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.error_message = MAY_NOT_ALTER
        else:
            # Null lets the controller choose the replicas; an empty list is an assignment, and a wrong one.
            assignments = None
            if asked.assignments is not None:
                assignments = [tuple(each.broker_ids) async for each in paced(asked.assignments)]
            new = NewPartitions(asked.name, asked.count, assignments)
            outcome = await _grow(broker, new, mutations, validate_only=request.validate_only)
            if isinstance(outcome, TopicRefused):
                row.error_code, row.error_message = outcome.code, shortened(outcome.message)
            elif not request.validate_only:
                waiting[asked.name] = outcome.partition_count

    late = await broker.topics.await_leaders(waiting, deadline) if request.timeout_ms > 0 else waiting
    for name in late:
        rows[name].error_code = ErrorCode.REQUEST_TIMED_OUT
    call.throttle(mutations.throttled_ms)
    return m.CreatePartitionsResponse(throttle_time_ms=mutations.throttled_ms, results=list(rows.values()))


async def _grow(
    broker: Broker, new: NewPartitions, mutations: Mutations, *, validate_only: bool
) -> CreatedPartitions | TopicRefused:
    if mutations.is_limited and not validate_only:
        plan = await broker.topics.create_partitions(new, validate_only=True)
        known = broker.metadata.topics.get(new.name)
        if isinstance(plan, TopicRefused):
            return plan
        if not mutations.take(plan.partition_count - (0 if known is None else len(known.partitions))):
            return QUOTA_EXCEEDED
    return await broker.topics.create_partitions(new, validate_only=validate_only)


def refuse_create_partitions(
    request: m.CreatePartitionsRequest, version: int, code: ErrorCode
) -> m.CreatePartitionsResponse:
    """The same error for every topic."""
    return m.CreatePartitionsResponse(
        results=[GrowRow(name=name, error_code=code) for name in dict.fromkeys(asked.name for asked in request.topics)]
    )
