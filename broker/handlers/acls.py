"""DescribeAcls, CreateAcls and DeleteAcls, on a broker without an authorizer.

Behaviour: every ACL and filter gets SECURITY_DISABLED, as from Apache Kafka without `authorizer.class.name`. A resource
    type, pattern type, operation or permission type of code 0 (UNKNOWN) closes the connection.
Versions: 0-3 of all three: 1+ pattern types, 3 users as resources; the answer is the same.
Not done: an authorizer.
"""

from collections.abc import Iterable

from barnabas.broker.call import Broker, Call
from barnabas.broker.pacing import paced
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation, Refuse

# One code for all four kinds of elements, as in Kafka's enums.
UNKNOWN = 0
# Kafka's texts: DescribeAcls has another one than CreateAcls and DeleteAcls.
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"
NO_AUTHORIZER = "No Authorizer is configured."

CreateRow = m.CreateAclsResponse.AclCreationResult
DeleteRow = m.DeleteAclsResponse.DeleteAclsFilterResult


def describe_acls(broker: Broker, call: Call, request: m.DescribeAclsRequest) -> m.DescribeAclsResponse:
    """The ACLs of a filter: SECURITY_DISABLED. Raises ProtocolViolation, Refuse(CLUSTER_AUTHORIZATION_FAILED)."""
    # Before the authorization: Kafka rejects such a request while it parses it.
    _expect_known(
        (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    )
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return m.DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)


async def create_acls(broker: Broker, call: Call, request: m.CreateAclsRequest) -> m.CreateAclsResponse:
    """Create ACLs: SECURITY_DISABLED for each. Raises ProtocolViolation, Refuse(CLUSTER_AUTHORIZATION_FAILED)."""
    # Before the authorization, as in `describe_acls`. One such row closes the connection, whatever the others are.
    async for row in paced(request.creations):
        _expect_known((row.resource_type, row.resource_pattern_type, row.operation, row.permission_type))
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # In each row, because the responses of creation and deletion have no top-level error.
    return m.CreateAclsResponse(
        results=[
            CreateRow(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            async for _ in paced(request.creations)
        ]
    )


async def delete_acls(broker: Broker, call: Call, request: m.DeleteAclsRequest) -> m.DeleteAclsResponse:
    """Delete the ACLs that filters match: SECURITY_DISABLED for each filter. Raises as `create_acls`."""
    async for row in paced(request.filters):
        _expect_known((row.resource_type_filter, row.pattern_type_filter, row.operation, row.permission_type))
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return m.DeleteAclsResponse(
        filter_results=[
            DeleteRow(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            async for _ in paced(request.filters)
        ]
    )


def _expect_known(codes: Iterable[int]) -> None:
    """Raises ProtocolViolation if one of these codes is UNKNOWN."""
    # Kafka maps numbers that it does not know to UNKNOWN only after this check, so they pass it.
    if UNKNOWN in codes:
        raise ProtocolViolation("an ACL with an element of code 0, which means unknown")


def refuse_create_acls(request: m.CreateAclsRequest, version: int, code: ErrorCode) -> m.CreateAclsResponse:
    """The same error for every ACL."""
    return m.CreateAclsResponse(results=[CreateRow(error_code=code, error_message=None) for _ in request.creations])


def refuse_delete_acls(request: m.DeleteAclsRequest, version: int, code: ErrorCode) -> m.DeleteAclsResponse:
    """The same error for every filter."""
    rows = [DeleteRow(error_code=code, error_message=None) for _ in request.filters]
    return m.DeleteAclsResponse(filter_results=rows)
