"""DescribeCluster, ElectLeaders and UpdateFeatures.

Behaviour: DescribeCluster is answered by every broker from its last UpdateMetadata, with the addresses of the
    listener that the request came in on. No broker here is a KRaft controller, so a request for those is answered that
    this is the wrong kind of endpoint. UpdateFeatures: brokers of a ZooKeeper cluster support no feature, so every
    level is refused in its row; only the active controller says so, others answer NOT_CONTROLLER.
    ElectLeaders is answered when this broker's metadata cache has the elected leaders, or with
    REQUEST_TIMED_OUT. A null list asks for every partition that this broker knows of, and leaves out of the answer
    those that needed no election. A type that does not exist is UNKNOWN_SERVER_ERROR, as in Kafka.
Versions: DescribeCluster 0-1, 1 has the type of endpoint. ElectLeaders 0-2: 0 means preferred leaders and has an error
    only for each partition. UpdateFeatures 0-1: 0 says whether a level may be lowered, 1 how; `validate_only` makes no
    difference where nothing can be changed.
"""

from collections.abc import Mapping

import trio

from barnabas.broker.call import AUTHORIZED_OPERATIONS, Broker, Call
from barnabas.broker.pacing import paced
from barnabas.controller.decide.reassignments import PartitionRefused
from barnabas.controller.events import ElectionAsked
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition

BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPGRADE_TYPE_VERSION = 1
PREFERRED, UNCLEAN = 0, 1
ERROR_OF_THE_WHOLE_VERSION = 1

Outcome = tuple[ErrorCode, str | None]
Feature = m.UpdateFeaturesRequest.FeatureUpdateKey
ElectedRow = m.ElectLeadersResponse.PartitionResult
FeatureRow = m.UpdateFeaturesResponse.UpdatableFeatureResult


# -- DescribeCluster


def describe_cluster(broker: Broker, call: Call, request: m.DescribeClusterRequest) -> m.DescribeClusterResponse:
    """Who is alive, and who is the controller."""
    if request.endpoint_type == CONTROLLER_ENDPOINTS:
        return _refuse_endpoints(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKER_ENDPOINTS:
        return _refuse_endpoints(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        )
    response = m.DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            m.DescribeClusterResponse.DescribeClusterBroker(
                broker_id=info.broker_id, host=endpoint.host, port=endpoint.port, rack=info.rack
            )
            for info in broker.metadata.brokers.values()
            if (endpoint := info.endpoints.get(call.listener)) is not None
        ],
    )
    if request.include_cluster_authorized_operations:
        known = call.authorize("Describe", "Cluster")
        response.cluster_authorized_operations = AUTHORIZED_OPERATIONS["Cluster"] if known else 0
    return response


def _refuse_endpoints(code: ErrorCode, message: str) -> m.DescribeClusterResponse:
    return m.DescribeClusterResponse(error_code=code, error_message=message)


# -- ElectLeaders


async def elect_leaders(broker: Broker, call: Call, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
    """Have leaders elected, and wait until this broker knows them."""
    deadline = trio.current_time() + request.timeout_ms / 1000
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise Refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    asked = await _asked_partitions(request)
    everything = list(broker.metadata.partitions()) if asked is None else asked
    question = ElectionAsked(everything, unclean=request.election_type == UNCLEAN)
    outcomes = await broker.candidate.ask(question)
    if isinstance(outcomes, ErrorCode):  # NOT_CONTROLLER, which Kafka says of each partition
        refused: dict[TopicPartition, Outcome] = {each: (outcomes, None) async for each in paced(everything)}
        return await _elected(refused)
    elected = {each: leader async for each, leader in paced(outcomes.items()) if isinstance(leader, int)}
    late = await broker.topics.await_leader_ids(elected, deadline)
    answered: dict[TopicPartition, Outcome] = {}
    async for topic_partition, outcome in paced(outcomes.items()):
        if isinstance(outcome, PartitionRefused):
            answered[topic_partition] = outcome
        else:
            code = ErrorCode.REQUEST_TIMED_OUT if topic_partition in late else ErrorCode.NONE
            answered[topic_partition] = code, None
    if asked is None:
        answered = {each: row async for each, row in paced(answered.items()) if row[0] != ErrorCode.ELECTION_NOT_NEEDED}
    return await _elected(answered)


def refuse_elect_leaders(request: m.ElectLeadersRequest, version: int, code: ErrorCode) -> m.ElectLeadersResponse:
    """One error, for the whole and for each partition."""
    response = m.ElectLeadersResponse(
        replica_election_results=[
            m.ElectLeadersResponse.ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    ElectedRow(partition_id=index, error_code=code, error_message=None) for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ]
    )
    if version >= ERROR_OF_THE_WHOLE_VERSION:
        response.error_code = code
    return response


async def _asked_partitions(request: m.ElectLeadersRequest) -> list[TopicPartition] | None:
    """None asks for all."""
    if request.topic_partitions is None:
        return None
    return [
        TopicPartition(asked.topic, index)
        async for asked in paced(request.topic_partitions)
        async for index in paced(asked.partitions)
    ]


async def _elected(outcomes: Mapping[TopicPartition, Outcome]) -> m.ElectLeadersResponse:
    topics: dict[str, list[ElectedRow]] = {}
    async for topic_partition, (code, message) in paced(outcomes.items()):
        row = ElectedRow(partition_id=topic_partition.partition, error_code=code, error_message=message)
        topics.setdefault(topic_partition.topic, []).append(row)
    return m.ElectLeadersResponse(
        replica_election_results=[
            m.ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=rows)
            async for topic, rows in paced(topics.items())
        ]
    )


# -- UpdateFeatures


async def update_features(broker: Broker, call: Call, request: m.UpdateFeaturesRequest) -> m.UpdateFeaturesResponse:
    """Say of each feature why its level cannot be changed."""
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not broker.candidate.is_active:
        return m.UpdateFeaturesResponse(
            error_code=ErrorCode.NOT_CONTROLLER, error_message=ErrorCode.NOT_CONTROLLER.message
        )
    asked: dict[str, Feature] = {}
    async for update in paced(request.feature_updates):
        asked.setdefault(update.feature, update)
    rows = [
        FeatureRow(
            feature=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_why_refused(asked[name], call.version)
        )
        async for name in paced(asked)
    ]
    return m.UpdateFeaturesResponse(error_message=None, results=rows)


def _why_refused(update: Feature, version: int) -> str:
    """In Kafka's words and order, for a cluster that has finalized no feature and supports none."""
    upgrade_type = update.upgrade_type
    if version < UPGRADE_TYPE_VERSION:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if not update.feature:
        return "Feature name can not be empty."
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "Received unknown upgrade type."
    if update.max_version_level < 1:
        if upgrade_type != UPGRADE:
            return "Can not delete non-existing finalized feature."
        return (
            f"Can not provide versionLevel: {update.max_version_level} less than 1"
            " without setting the SAFE downgradeType in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."
