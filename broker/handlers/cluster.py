"""DescribeCluster, ElectLeaders and UpdateFeatures.

DescribeCluster: every broker answers from its metadata cache, with the addresses of the listener that the request came
    in on.
ElectLeaders: only the active controller elects. The response waits until this broker's metadata cache has the elected
    leaders, or `timeout_ms` passes (REQUEST_TIMED_OUT). A null list means every partition of the metadata cache; the
    response then leaves out partitions with ELECTION_NOT_NEEDED.
UpdateFeatures: a cluster with ZooKeeper supports no feature, so the active controller refuses every level in its row;
    any other broker answers NOT_CONTROLLER.
Versions: DescribeCluster 0-1, 1 has the type of endpoint (KIP-919). ElectLeaders 0-2: 0 means preferred leaders and has
    no top-level error. UpdateFeatures 0-1: 0 says whether a level may be lowered, 1 how (`upgrade_type`);
    `validate_only` makes no difference because no level can be changed.
"""

from collections.abc import Mapping

import trio

from barnabas.broker.call import Broker, Call
from barnabas.controller.decide.reassignments import PartitionRefused
from barnabas.controller.events import ElectionAsked
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition
from barnabas.world.pacing import paced

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
    """The live brokers and the controller; an error and message for any other type of endpoint."""
    # A KRaft controller lists controllers; a cluster with ZooKeeper has none of those.
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
            # A broker without this listener has no address that the client could use.
            if (endpoint := info.endpoints.get(call.listener)) is not None
        ],
    )
    if request.include_cluster_authorized_operations:
        known = call.authorize("Describe", "Cluster", is_filter=True)

        # 0 is an empty set of operations, unlike the default, which means "not requested".
        response.cluster_authorized_operations = call.allowed_operations("Cluster") if known else 0

    return response


def _refuse_endpoints(code: ErrorCode, message: str) -> m.DescribeClusterResponse:
    return m.DescribeClusterResponse(error_code=code, error_message=message)


# -- ElectLeaders


async def elect_leaders(broker: Broker, call: Call, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
    """Elect leaders of partitions (KIP-460); each partition has its own error.

    Raises Refuse: CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR for an unknown election type (as Kafka).
    """
    deadline = trio.current_time() + request.timeout_ms / 1000
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # An unknown type is, as measured on Kafka 3.9.1, this error at the top level and at each
    # partition (reference B.13).
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise Refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    asked = await _asked_partitions(request)

    # The partitions are copied, because the metadata cache may change while the controller works on the list.
    everything = list(broker.metadata.partitions()) if asked is None else asked
    question = ElectionAsked(everything, unclean=request.election_type == UNCLEAN)
    outcomes = await broker.candidate.ask(question)

    # Kafka sets NOT_CONTROLLER at each partition and leaves the top-level error empty.
    if isinstance(outcomes, ErrorCode):
        refused: dict[TopicPartition, Outcome] = {each: (outcomes, None) async for each in paced(everything)}
        return await _elected(refused)

    # The election is done in the store; the wait only lets the client's next Metadata request see it.
    elected = {each: leader async for each, leader in paced(outcomes.items()) if isinstance(leader, int)}
    late = await broker.topics.await_leader_ids(elected, deadline)
    answered: dict[TopicPartition, Outcome] = {}
    async for topic_partition, outcome in paced(outcomes.items()):
        if isinstance(outcome, PartitionRefused):
            answered[topic_partition] = outcome
        else:
            code = ErrorCode.REQUEST_TIMED_OUT if topic_partition in late else ErrorCode.NONE
            answered[topic_partition] = code, None

    # A null list covers the whole cluster, where nearly all partitions have their preferred leader: these are left out.
    if asked is None:
        answered = {each: row async for each, row in paced(answered.items()) if row[0] != ErrorCode.ELECTION_NOT_NEEDED}
    return await _elected(answered)


def refuse_elect_leaders(request: m.ElectLeadersRequest, version: int, code: ErrorCode) -> m.ElectLeadersResponse:
    """The same error at each partition, and from version 1 on at the top level."""
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
    """The named partitions; None means all."""
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
    """Refuse each feature's level with the reason."""
    # `Refuse` would leave the message null.
    if not call.authorize("Alter", "Cluster"):
        return _refuse_features(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not broker.candidate.is_active:
        return _refuse_features(ErrorCode.NOT_CONTROLLER)
    asked: dict[str, Feature] = {}
    async for update in paced(request.feature_updates):
        # The first entry of a feature that is named twice counts.
        asked.setdefault(update.feature, update)
    rows = [
        FeatureRow(
            feature=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_why_refused(asked[name], call.version)
        )
        async for name in paced(asked)
    ]
    return m.UpdateFeaturesResponse(error_message=None, results=rows)


def _refuse_features(code: ErrorCode) -> m.UpdateFeaturesResponse:
    return m.UpdateFeaturesResponse(error_code=code, error_message=code.message)


def _why_refused(update: Feature, version: int) -> str:
    """Kafka's message, with Kafka's order of checks, for a cluster without finalized or supported features."""
    upgrade_type = update.upgrade_type

    # Kafka maps version 0 in the same way (KIP-778).
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
