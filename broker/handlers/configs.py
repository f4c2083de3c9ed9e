"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: of topics, of brokers, and the levels of loggers.

Behaviour: a change is checked as a whole, written to the store with a notification, and answered when this broker has
    followed the notification, so that the next request sees it; other brokers follow a moment later. Each resource of a
    request succeeds or fails by itself. A broker answers for itself and, with an empty name, for what is set for all
    brokers; who asks about another broker is refused. AlterConfigs replaces all that was set, IncrementalAlterConfigs
    changes what it names; a list is added to and taken from beginning at Kafka's default where nothing is set.
    Properties that are changed and do not act are named in the log. Levels of loggers hold until the process ends.
Versions: DescribeConfigs 0-4: Kafka 3.9 fills `is_default`, which version 0 has in place of a source, with false for
    every value, and so do we; 1+ synonyms; 3+ types and documentation. AlterConfigs 0-2, IncrementalAlterConfigs 0-1.
Not done: passwords, which nothing encrypts yet; other addresses to listen at; client metrics (KRaft's alone) and the
    configuration of groups.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.call import Broker, Call
from barnabas.broker.config.alter import (
    Change,
    ConfigRefused,
    Operation,
    apply_operations,
    broker_warnings,
    check_broker,
    check_changes,
    check_topic,
    refuse_passwords,
)
from barnabas.broker.config.describe import (
    UNKNOWN_TYPE,
    ConfigSource,
    Described,
    describe_broker,
    describe_cluster_wide,
    describe_topic,
)
from barnabas.broker.config.live import topic_warnings
from barnabas.broker.config.log_levels import change_levels, levels
from barnabas.broker.config.property import Property
from barnabas.broker.config.table import BROKER_TABLE, TOPIC_TABLE
from barnabas.broker.pacing import paced
from barnabas.broker.repeats import Repeats, counted
from barnabas.controller.admin.entity_configs import BROKERS, TOPICS, change_entity, read_entity
from barnabas.controller.store import paths
from barnabas.controller.store.paths import DEFAULT_ENTITY
from barnabas.controller.store.store import DataTooLarge, NoNode, StoreError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import why_invalid_topic_name

logger = logging.getLogger(__name__)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
DIGITS_MAX = 10  # of a broker id
RESOURCE_COST, PROPERTY_COST = 5, 10  # rows that take as long as to look at one, or to describe one

DescribedRow = m.DescribeConfigsResponse.DescribeConfigsResult
DescribedValue = m.DescribeConfigsResponse.DescribeConfigsResourceResult


# -- DescribeConfigs


async def describe_configs(broker: Broker, call: Call, request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
    """Describe each resource, in order; one of a type that cannot be described refuses the request."""
    async for asked in paced(request.resources):
        if asked.resource_type not in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS):
            raise Refuse(ErrorCode.INVALID_REQUEST)
    results = []
    repeats = Repeats()
    async for asked in paced(request.resources, RESOURCE_COST):
        repeats.note((asked.resource_type, asked.resource_name))
        row = DescribedRow(resource_type=asked.resource_type, resource_name=asked.resource_name, error_message="")
        try:
            found = await _describe(broker, call, asked.resource_type, asked.resource_name)
        except ConfigRefused as refused:
            row.error_code, row.error_message = refused.code, refused.message
        else:
            wanted = {name async for name in paced(asked.configuration_keys or ())}
            row.configs = [
                _value(each, request) async for each in paced(found, PROPERTY_COST) if not wanted or each.name in wanted
            ]
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
    """One resource of either request."""

    type: int
    name: str
    changes: list[Change]


async def alter_configs(broker: Broker, call: Call, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
    """Replace what each resource sets."""
    resources = [
        Resource(
            asked.resource_type,
            asked.resource_name,
            [Change(config.name, Operation.SET, config.value) async for config in paced(asked.configs)],
        )
        async for asked in paced(request.resources)
    ]
    replacing = _Alteration(broker, call, incremental=False, validate_only=request.validate_only)
    outcomes = await replacing.carry_out(resources)
    return m.AlterConfigsResponse(
        responses=[
            m.AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=each.type, resource_name=each.name
            )
            async for each, (code, message) in paced(zip(resources, outcomes, strict=True))
        ]
    )


async def incremental_alter_configs(
    broker: Broker, call: Call, request: m.IncrementalAlterConfigsRequest
) -> m.IncrementalAlterConfigsResponse:
    """Change what is named of each resource."""
    resources = [
        Resource(
            asked.resource_type,
            asked.resource_name,
            [Change(config.name, config.config_operation, config.value) async for config in paced(asked.configs)],
        )
        async for asked in paced(request.resources)
    ]
    changing = _Alteration(broker, call, incremental=True, validate_only=request.validate_only)
    outcomes = await changing.carry_out(resources)
    return m.IncrementalAlterConfigsResponse(
        responses=[
            m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=each.type, resource_name=each.name
            )
            async for each, (code, message) in paced(zip(resources, outcomes, strict=True))
        ]
    )


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
    """One request of either kind."""

    def __init__(self, broker: Broker, call: Call, *, incremental: bool, validate_only: bool) -> None:
        self._broker = broker
        self._call = call
        self._incremental = incremental
        self._validate_only = validate_only
        self._notification = -1

    async def carry_out(self, resources: Sequence[Resource]) -> list[tuple[ErrorCode, str | None]]:
        """Alter each resource by itself; its code and message, in order."""
        named = await counted((each.type, each.name) for each in resources)
        outcomes: list[tuple[ErrorCode, str | None]] = []
        async for each in paced(resources, RESOURCE_COST):
            try:
                if named[each.type, each.name] > 1:
                    raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                check_changes(each.changes)
                await self._alter(each)
            except ConfigRefused as refused:
                outcomes.append((refused.code, refused.message))
            except DataTooLarge as error:
                outcomes.append((ErrorCode.INVALID_REQUEST, str(error)))
            except StoreError as error:
                logger.warning("a configuration cannot be altered: %s", error, extra={"peer": "metadata store"})
                outcomes.append((ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            else:
                outcomes.append((ErrorCode.NONE, None))
        await self._broker.dynamic_config.await_applied(self._notification)
        return outcomes

    async def _alter(self, resource: Resource) -> None:
        if resource.type == TOPIC:
            await self._alter_topic(resource)
        elif resource.type == BROKER:
            await self._alter_broker(resource)
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

        def change(current: Mapping[str, str]) -> dict[str, str]:
            texts = self._texts_after(current, resource, TOPIC_TABLE.get)
            check_topic(self._broker.config, topic, texts)
            return texts

        try:
            await self._write(f"{TOPICS}/{topic}", change, topic_warnings, resource, owner=paths.topic(topic))
        except NoNode:  # deleted, of which this broker has not heard yet
            raise _no_such_topic(topic) from None

    async def _alter_broker(self, resource: Resource) -> None:
        self._authorize("Cluster", "", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if resource.name != "":
            expected = "Unexpected broker id, expected {}, but received {}"
            _require_this_broker(self._broker, resource.name, "Node id", expected)
        if any(change.operation not in tuple(Operation) for change in resource.changes):
            unknown = next(each.operation for each in resource.changes if each.operation not in tuple(Operation))
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")

        def change(current: Mapping[str, str]) -> dict[str, str]:
            texts = self._texts_after(current, resource, BROKER_TABLE.get)
            check_broker(self._broker.config, texts, broker_name=resource.name)
            if not self._validate_only:
                refuse_passwords(texts, broker_name=resource.name)
            return texts

        entity = DEFAULT_ENTITY if resource.name == "" else str(self._broker.broker_id)
        await self._write(f"{BROKERS}/{entity}", change, broker_warnings, resource)

    def _texts_after(
        self, current: Mapping[str, str], resource: Resource, rows: Callable[[str], Property | None]
    ) -> dict[str, str]:
        return apply_operations(current if self._incremental else {}, resource.changes, rows)

    async def _write(
        self,
        entity: str,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        warnings: Callable[[Mapping[str, str]], list[str]],
        resource: Resource,
        owner: str | None = None,
    ) -> None:
        if self._validate_only:
            change(await read_entity(self._broker.store, entity))
            return
        self._notification = await change_entity(self._broker.store, entity, change, owner=owner)
        changed = {each.name: each.text for each in resource.changes if each.text is not None}
        for warning in warnings(changed):
            logger.warning("%s: %s", entity, warning)

    def _authorize(self, resource_type: str, name: str, otherwise: ErrorCode) -> None:
        if not self._call.authorize("AlterConfigs", resource_type, name):
            raise ConfigRefused(otherwise, otherwise.message)


def _no_such_topic(topic: str) -> ConfigRefused:
    return ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")


def _require_this_broker(broker: Broker, name: str, what: str, otherwise: str) -> None:
    """Brokers answer for themselves: the name must be this broker's id, as Java reads numbers."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}")
    if int(name) != broker.broker_id:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, otherwise.format(broker.broker_id, int(name)))
