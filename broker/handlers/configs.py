"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: configurations of topics and brokers, and log levels.

Behaviour: each resource of a request succeeds or fails on its own, and its change is validated as a whole. The change
    is written to the metadata store together with a change notification. The response waits until this broker has
    applied the notification, so that the client's next request sees the change; other brokers apply it a moment later.
    A broker serves its own configuration and, for an empty name, the cluster-wide default of all brokers; another
    broker's id is INVALID_REQUEST. AlterConfigs replaces all properties of a resource. IncrementalAlterConfigs changes
    the named ones; APPEND and SUBTRACT start from Kafka's default where a list is not set (KIP-339). Changed properties
    that have no effect here are logged as warnings. Passwords are stored encoded, and refused without
    password.encoder.secret. Log levels hold until the process ends.
Versions: DescribeConfigs 0-4: version 0 has `is_default` in place of a source; Kafka 3.9 answers false for every value,
    and so does this broker. 1+ synonyms; 3+ types and documentation. AlterConfigs 0-2, IncrementalAlterConfigs 0-1.
Not done: changes of listeners; client metrics (only KRaft clusters have them); configurations of groups.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import Repeats, counted
from barnabas.config.alter import (
    Change,
    ConfigRefused,
    Operation,
    apply_operations,
    broker_warnings,
    check_broker,
    check_changes,
    check_topic,
    is_stored_password,
    refuse_password,
)
from barnabas.config.describe import (
    UNKNOWN_TYPE,
    ConfigSource,
    Described,
    describe_broker,
    describe_cluster_wide,
    describe_topic,
)
from barnabas.config.live import topic_warnings
from barnabas.config.log_levels import change_levels, levels
from barnabas.config.property import Property
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE
from barnabas.controller.admin.entity_configs import BROKERS, TOPICS, read_entity, rewrite_entity
from barnabas.controller.store import paths
from barnabas.controller.store.paths import DEFAULT_ENTITY
from barnabas.controller.store.store import DataTooLarge, NoNode, StoreError
from barnabas.security.passwords import PasswordRefused
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import why_invalid_topic_name
from barnabas.world.freeing import emptied
from barnabas.world.pacing import paced

logger = logging.getLogger(__name__)

Row = TypeVar("Row")

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
DIGITS_MAX = 10  # digits of a broker id, an int32

DescribedRow = m.DescribeConfigsResponse.DescribeConfigsResult
DescribedValue = m.DescribeConfigsResponse.DescribeConfigsResourceResult


# -- DescribeConfigs


async def describe_configs(broker: Broker, call: Call, request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
    """Describe each resource, in the order of the request; each has its own error.

    Raises Refuse(INVALID_REQUEST) for an unknown resource type or too many repeats.
    """
    # This pass comes first, because Kafka throws for an unknown type and describes no resource at all.
    async for asked in paced(request.resources):
        if asked.resource_type not in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS):
            raise Refuse(ErrorCode.INVALID_REQUEST)
    results = []

    # A description of a broker is hundreds of kilobytes, and a request repeats its name with ten bytes.
    repeats = Repeats()
    async for asked in paced(request.resources):
        repeats.note((asked.resource_type, asked.resource_name))
        row = DescribedRow(resource_type=asked.resource_type, resource_name=asked.resource_name, error_message="")
        try:
            found = await _describe(broker, call, asked.resource_type, asked.resource_name)
        except ConfigRefused as refused:
            row.error_code = refused.code
            row.error_message = refused.message
        else:
            # A null list asks for all properties, like an empty one, as in Kafka.
            wanted = {name async for name in paced(asked.configuration_keys or ())}

            # `found` may be a generator: then a property is described when `paced` takes it, with checkpoints between.
            row.configs = [_value(each, request) async for each in paced(found) if not wanted or each.name in wanted]
        results.append(row)

    return m.DescribeConfigsResponse(results=results)


def refuse_describe_configs(
    request: m.DescribeConfigsRequest, version: int, code: ErrorCode
) -> m.DescribeConfigsResponse:
    """The same error for every resource."""
    return m.DescribeConfigsResponse(
        results=[
            DescribedRow(
                error_code=code,
                error_message=code.message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )


async def _describe(broker: Broker, call: Call, resource_type: int, name: str) -> Iterable[Described]:
    if resource_type == TOPIC:
        if not call.authorize("DescribeConfigs", "Topic", name):
            raise ConfigRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.message)
        why = why_invalid_topic_name(name)
        if why is not None:
            raise ConfigRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")
        if name not in broker.metadata.topics:
            raise ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return describe_topic(broker.config, await broker.topic_configs.read(name))

    if not call.authorize("DescribeConfigs", "Cluster"):
        raise ConfigRefused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)
    if resource_type == BROKER:
        # The empty name is the cluster-wide default; it needs no particular broker.
        if name == "":
            return describe_cluster_wide(broker.config)
        _require_this_broker(
            broker, name, "Broker id", "Unexpected broker id, expected {} or empty string, but received {}"
        )
        return describe_broker(broker.config)

    if resource_type == BROKER_LOGGER:
        if name == "":
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _require_this_broker(broker, name, "Broker id", "Unexpected broker id, expected {} but received {}")
        return (_logger_level(logger_name, level) for logger_name, level in levels().items())

    # Only CLIENT_METRICS is left (KIP-714), which KRaft clusters alone have.
    if name == "":
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters")


def _logger_level(name: str, level: str) -> Described:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return Described(name, level, source, read_only=False, is_sensitive=False, type=UNKNOWN_TYPE, doc="", synonyms=())


def _value(described: Described, request: m.DescribeConfigsRequest) -> DescribedValue:
    value = DescribedValue(
        name=described.name,
        value=described.text,
        read_only=described.read_only,
        config_source=described.source,
        is_sensitive=described.is_sensitive,
        config_type=described.type,
        # Null means "not requested"; a logger has no documentation and gets an empty text either way, as in Kafka.
        documentation=described.doc if request.include_documentation or described.doc == "" else None,
    )
    if request.include_synonyms:
        value.synonyms = [
            m.DescribeConfigsResponse.DescribeConfigsSynonym(name=each.name, value=each.text, source=each.source)
            for each in described.synonyms
        ]

    return value


# -- AlterConfigs and IncrementalAlterConfigs


class Resource(NamedTuple):
    """One resource of an AlterConfigs or IncrementalAlterConfigs request."""

    type: int
    name: str
    changes: list[Change]


async def alter_configs(broker: Broker, call: Call, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
    """Replace all properties of each resource; each has its own error."""
    resources = [
        Resource(
            asked.resource_type,
            asked.resource_name,
            [Change(config.name, Operation.SET, config.value) async for config in paced(asked.configs)],
        )
        async for asked in paced(request.resources)
    ]
    replacing = _Alteration(broker, call, incremental=False, validate_only=request.validate_only)
    rows = await _answered(
        m.AlterConfigsResponse.AlterConfigsResourceResponse, resources, await replacing.carry_out(resources)
    )
    return m.AlterConfigsResponse(responses=rows)


async def incremental_alter_configs(
    broker: Broker, call: Call, request: m.IncrementalAlterConfigsRequest
) -> m.IncrementalAlterConfigsResponse:
    """Apply the named operations to each resource (KIP-339); each has its own error."""
    resources = [
        Resource(
            asked.resource_type,
            asked.resource_name,
            [Change(config.name, config.config_operation, config.value) async for config in paced(asked.configs)],
        )
        async for asked in paced(request.resources)
    ]
    changing = _Alteration(broker, call, incremental=True, validate_only=request.validate_only)
    rows = await _answered(
        m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, resources, await changing.carry_out(resources)
    )
    return m.IncrementalAlterConfigsResponse(responses=rows)


async def _answered(
    row: Callable[..., Row], resources: list[Resource], outcomes: list[tuple[ErrorCode, str | None]]
) -> list[Row]:
    """The rows of the response. Empties both lists in steps, as a request may name very many resources."""
    rows = [
        row(error_code=code, error_message=message, resource_type=each.type, resource_name=each.name)
        async for each, (code, message) in paced(zip(resources, outcomes, strict=True))
    ]
    await emptied(resources)
    await emptied(outcomes)
    return rows


def refuse_alter_configs(request: m.AlterConfigsRequest, version: int, code: ErrorCode) -> m.AlterConfigsResponse:
    """The same error for every resource."""
    return m.AlterConfigsResponse(
        responses=[
            m.AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=code.message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )


def refuse_incremental_alter_configs(
    request: m.IncrementalAlterConfigsRequest, version: int, code: ErrorCode
) -> m.IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    return m.IncrementalAlterConfigsResponse(
        responses=[
            m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=code.message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )


class _Alteration:
    """The work of one AlterConfigs or IncrementalAlterConfigs request."""

    def __init__(self, broker: Broker, call: Call, *, incremental: bool, validate_only: bool) -> None:
        self._broker = broker
        self._call = call
        self._incremental = incremental
        self._validate_only = validate_only
        # Sequence number of the last change notification that this request wrote; -1 before the first one.
        self._notification = -1

    async def carry_out(self, resources: Sequence[Resource]) -> list[tuple[ErrorCode, str | None]]:
        """Alter the resources one after the other; (error code, message) of each, in order."""
        named = await counted((each.type, each.name) for each in resources)
        outcomes: list[tuple[ErrorCode, str | None]] = []
        async for each in paced(resources):
            try:
                # All entries of a repeated resource are refused, so that the outcome does not depend on their order.
                if named[each.type, each.name] > 1:
                    raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                check_changes(each.changes)
                await self._alter(each)
            except ConfigRefused as refused:
                outcomes.append((refused.code, refused.message))
            # The store limits the size of a node; it was the client that sent too much, so no UNKNOWN_SERVER_ERROR.
            except DataTooLarge as error:
                outcomes.append((ErrorCode.INVALID_REQUEST, str(error)))
            # One resource's failure must not lose the outcomes of those that are already written.
            except StoreError as error:
                logger.warning("a configuration cannot be altered: %s", error, extra={"peer": "metadata store"})
                outcomes.append((ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            else:
                outcomes.append((ErrorCode.NONE, None))

        # Notifications are applied in order, so the last one covers all resources. The wait is short and bounded: the
        # changes are in the store either way.
        await self._broker.dynamic_config.await_applied(self._notification)
        return outcomes

    async def _alter(self, resource: Resource) -> None:
        if resource.type == TOPIC:
            await self._alter_topic(resource)
        elif resource.type == BROKER:
            await self._alter_broker(resource)
        # Kafka's AlterConfigs knows no loggers: replacing all levels makes no sense for them (KIP-412).
        elif resource.type == BROKER_LOGGER and self._incremental:
            self._authorize("Cluster", "", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            expected = "Unexpected node id. Expected {}, but received {}"
            _require_this_broker(self._broker, resource.name, "Node id", expected)
            change_levels(resource.changes, validate_only=self._validate_only)
        elif resource.type == CLIENT_METRICS:
            message = "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS"
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
        else:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")

    async def _alter_topic(self, resource: Resource) -> None:
        topic = resource.name
        self._authorize("Topic", topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic == "":
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if topic not in self._broker.metadata.topics:
            raise _no_such_topic(topic)

        # Runs once for each attempt to write: another broker may change the same node in between.
        async def change(current: Mapping[str, str]) -> dict[str, str]:
            texts = self._texts_after(current, resource, TOPIC_TABLE.get)
            check_topic(self._broker.config, topic, texts)
            return texts

        # With `owner` the write fails if the topic is deleted meanwhile. Otherwise its configuration would stay in the
        # store, and a new topic of the same name would inherit it. NoNode: this broker's metadata still has the topic.
        try:
            await self._write(f"{TOPICS}/{topic}", change, topic_warnings, resource, owner=paths.topic(topic))
        except NoNode:
            raise _no_such_topic(topic) from None

    async def _alter_broker(self, resource: Resource) -> None:
        self._authorize("Cluster", "", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        # Any broker may write the cluster-wide default (empty name); a broker's own node only that broker.
        if resource.name != "":
            expected = "Unexpected broker id, expected {}, but received {}"
            _require_this_broker(self._broker, resource.name, "Node id", expected)
        # Operations are checked before values. For topics an unknown one is UNKNOWN_SERVER_ERROR (`apply_operations`).
        if any(change.operation not in tuple(Operation) for change in resource.changes):
            unknown = next(each.operation for each in resource.changes if each.operation not in tuple(Operation))
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")

        entity = DEFAULT_ENTITY if resource.name == "" else str(self._broker.broker_id)
        await self._write(f"{BROKERS}/{entity}", partial(self._broker_changed, resource), broker_warnings, resource)

    async def _broker_changed(self, resource: Resource, stored: Mapping[str, str]) -> dict[str, str]:
        """The properties to store for a broker, or for all brokers."""
        passwords = self._broker.dynamic_config.passwords
        secured = self._broker.secured
        current = await passwords.decoded(stored)
        texts = self._texts_after(current.texts, resource, BROKER_TABLE.get)
        check_broker(self._broker.config, texts, broker_name=resource.name)
        if secured is not None and resource.name != "":
            await secured.check(texts)

        # Kafka needs the password encoder only to write, so validation alone accepts passwords.
        if self._validate_only:
            return texts
        if resource.name == "":
            if any(map(is_stored_password, texts)):
                raise refuse_password("Password config can be defined only at broker level", broker_name="")
            return texts

        try:
            encoded = await passwords.encoded(texts, stored)
        except PasswordRefused as refused:
            raise refuse_password(str(refused), broker_name=resource.name) from None

        # A password that cannot be decoded stays: the next start may have its secret again. Kafka removes it.
        changed = {change.name for change in resource.changes}
        kept = {name: stored[name] for name in current.problems if self._incremental and name not in changed}
        return encoded | kept

    def _texts_after(
        self, current: Mapping[str, str], resource: Resource, rows: Callable[[str], Property | None]
    ) -> dict[str, str]:
        # AlterConfigs starts from nothing: a property that it does not name falls back to its default.
        return apply_operations(current if self._incremental else {}, resource.changes, rows)

    async def _write(
        self,
        entity: str,
        change: Callable[[Mapping[str, str]], Awaitable[dict[str, str]]],
        warnings: Callable[[Mapping[str, str]], list[str]],
        resource: Resource,
        owner: str | None = None,
    ) -> None:
        # `change` validates; its result is what would be written.
        if self._validate_only:
            await change(await read_entity(self._broker.store, entity))
            return
        self._notification = await rewrite_entity(self._broker.store, entity, change, owner=owner)
        # Warnings are about properties of this request: older ones were reported when they were
        # changed. Deletions have no text.
        changed = {each.name: each.text for each in resource.changes if each.text is not None}
        for warning in warnings(changed):
            logger.warning("%s: %s", entity, warning)

    def _authorize(self, resource_type: str, name: str, otherwise: ErrorCode) -> None:
        if not self._call.authorize("AlterConfigs", resource_type, name):
            raise ConfigRefused(otherwise, None)  # without a message, unlike DescribeConfigs


def _no_such_topic(topic: str) -> ConfigRefused:
    return ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")


def _require_this_broker(broker: Broker, name: str, what: str, otherwise: str) -> None:
    """ConfigRefused(INVALID_REQUEST) unless the name is this broker's id, in any form that Java's `Integer` parses."""
    # Clients send requests for a broker to that broker. Python's int() accepts more (spaces, "_", other digits).
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}")
    if int(name) != broker.broker_id:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, otherwise.format(broker.broker_id, int(name)))
