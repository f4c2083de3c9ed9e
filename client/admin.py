"""Topics, brokers, configurations and groups: what an administrator asks for. Each raises Refused and Unreachable."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas import __version__
from barnabas.client.cluster import OUTDATED, Cluster
from barnabas.client.errors import check
from barnabas.client.offsets import by_topic
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SET = 0  # the operations of IncrementalAlterConfigs
DELETE = 1
BROKERS_CHOICE = -1  # of the number of partitions, or of replicas


class Group(NamedTuple):
    """A group, as the brokers list it. `state` is empty before Kafka 2.6."""

    group_id: str
    protocol_type: str
    state: str


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKERS_CHOICE,
    replicas: int = BROKERS_CHOICE,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Create a topic; by default with as many partitions and replicas as the brokers give it."""
    request = m.CreateTopicsRequest(
        topics=[
            m.CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                configs=[
                    m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in (configs or {}).items()
                ],
            )
        ],
        # The controller waits so long for the brokers to hear of the topic. Its timeout does not
        # take the creation back.
        timeout_ms=round(cluster.timeout_seconds * 1000),
        validate_only=validate_only,
    )
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.CreateTopicsResponse)

    for row in response.topics:
        check(f"topic {row.name!r}", row.error_code, row.error_message)
    if not validate_only:
        cluster.expect(name)


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic and its records."""
    request = m.DeleteTopicsRequest(topic_names=[name], timeout_ms=round(cluster.timeout_seconds * 1000))
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.DeleteTopicsResponse)

    for row in response.responses:
        check(f"topic {row.name!r}", row.error_code, row.error_message)


async def grow_topic(cluster: Cluster, name: str, partitions: int, *, validate_only: bool = False) -> None:
    """Give a topic this many partitions, more than it has."""
    request = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
        timeout_ms=round(cluster.timeout_seconds * 1000),
        validate_only=validate_only,
    )
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.CreatePartitionsResponse)

    for row in response.results:
        check(f"topic {row.name!r}", row.error_code, row.error_message)


async def topic_configs(
    cluster: Cluster, names: Sequence[str]
) -> dict[str, Sequence[m.DescribeConfigsResponse.DescribeConfigsResourceResult]]:
    """The properties of each of these topics."""
    if not names:
        return {}
    resources = [
        m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        for name in names
    ]
    response = await cluster.ask_any(m.DescribeConfigsRequest(resources=resources))
    assert isinstance(response, m.DescribeConfigsResponse)

    for row in response.results:
        check(f"topic {row.resource_name!r}", row.error_code, row.error_message)
    return {row.resource_name: row.configs for row in response.results}


async def set_topic_configs(
    cluster: Cluster, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set properties of a topic; None gives one its default back. The others stay as they are."""
    row = _altered(TOPIC_RESOURCE, name, configs)
    request = m.IncrementalAlterConfigsRequest(resources=[row], validate_only=validate_only)
    response = await cluster.ask_any(request)
    assert isinstance(response, m.IncrementalAlterConfigsResponse)

    for answered in response.responses:
        check(f"topic {name!r}", answered.error_code, answered.error_message)


def _altered(
    resource_type: int, name: str, configs: Mapping[str, str | None]
) -> m.IncrementalAlterConfigsRequest.AlterConfigsResource:
    return m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            m.IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=DELETE if value is None else SET, value=value
            )
            for key, value in configs.items()
        ],
    )


async def list_groups(cluster: Cluster) -> list[Group]:
    """The groups of all brokers, by their ids."""
    # Each broker knows the groups that it coordinates, and no others.
    found: dict[str, Group] = {}
    for broker in (await cluster.brokers()).brokers:
        retry = cluster.retry()
        while True:
            response = await cluster.ask_broker(broker.node_id, m.ListGroupsRequest(), seconds=cluster.timeout_seconds)
            assert isinstance(response, m.ListGroupsResponse)
            # It may load the groups of a broker that has just died.
            if response.error_code not in OUTDATED or not await retry.pause():
                break
        check(f"broker {broker.node_id}", response.error_code)
        for row in response.groups:
            found[row.group_id] = Group(row.group_id, row.protocol_type, row.group_state)
    return [found[group_id] for group_id in sorted(found)]


async def describe_group(cluster: Cluster, group_id: str) -> m.DescribeGroupsResponse.DescribedGroup:
    """A group with its members. One that does not exist is in the state Dead, as in Kafka."""
    request = m.DescribeGroupsRequest(groups=[group_id])
    retry = cluster.retry()
    while True:
        response = await cluster.ask_coordinator(group_id, request)
        assert isinstance(response, m.DescribeGroupsResponse)
        # One group is asked for, because each group may have another coordinator.
        (row,) = response.groups
        if not await cluster.is_other_coordinator(group_id, row.error_code, retry):
            break
    if row.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        check(f"group {group_id!r}", row.error_code)
    return row


async def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> None:
    """Delete groups without members, with their committed offsets."""
    # A request for each group goes to the coordinator of that group alone.
    for group_id in group_ids:
        request = m.DeleteGroupsRequest(groups_names=[group_id])
        retry = cluster.retry()
        while True:
            response = await cluster.ask_coordinator(group_id, request)
            assert isinstance(response, m.DeleteGroupsResponse)
            (row,) = response.results
            if not await cluster.is_other_coordinator(group_id, row.error_code, retry):
                break

        check(f"group {group_id!r}", row.error_code)


async def broker_configs(
    cluster: Cluster, broker_id: int
) -> Sequence[m.DescribeConfigsResponse.DescribeConfigsResourceResult]:
    """The properties of a broker, which alone knows them."""
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=None
    )
    request = m.DescribeConfigsRequest(resources=[resource])
    response = await cluster.ask_broker(broker_id, request, seconds=cluster.timeout_seconds)
    assert isinstance(response, m.DescribeConfigsResponse)
    (row,) = response.results

    check(f"broker {broker_id}", row.error_code, row.error_message)
    return row.configs


async def set_broker_configs(cluster: Cluster, broker_id: int, configs: Mapping[str, str | None]) -> None:
    """Set properties of a broker; None gives one its default back. The others stay as they are."""
    request = m.IncrementalAlterConfigsRequest(
        resources=[_altered(BROKER_RESOURCE, str(broker_id), configs)], validate_only=False
    )
    response = await cluster.ask_broker(broker_id, request, seconds=cluster.timeout_seconds)
    assert isinstance(response, m.IncrementalAlterConfigsResponse)

    for answered in response.responses:
        check(f"broker {broker_id}", answered.error_code, answered.error_message)


async def versions_of(cluster: Cluster, broker_id: int) -> Sequence[m.ApiVersionsResponse.ApiVersion]:
    """The APIs that a broker serves, and their versions."""
    request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
    response = await cluster.ask_broker(broker_id, request, seconds=cluster.timeout_seconds)
    assert isinstance(response, m.ApiVersionsResponse)
    check(f"broker {broker_id}", response.error_code)
    return response.api_keys


async def log_dirs(
    cluster: Cluster, broker_id: int, partitions: Iterable[TopicPartition] | None = None
) -> Sequence[m.DescribeLogDirsResponse.DescribeLogDirsResult]:
    """The log directories of a broker with the sizes of the replicas in them: of all, or of these partitions."""
    topics = None
    if partitions is not None:
        topics = [
            m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    request = m.DescribeLogDirsRequest(topics=topics)
    response = await cluster.ask_broker(broker_id, request, seconds=cluster.timeout_seconds)
    assert isinstance(response, m.DescribeLogDirsResponse)
    check(f"broker {broker_id}", response.error_code)
    return response.results
