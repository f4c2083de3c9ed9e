"""DescribeAcls, CreateAcls and DeleteAcls: the ACLs of the authorizer.

Behaviour: any broker serves them. Describe answers what this broker knows; a created or deleted ACL is in the store
    when it is answered, and other brokers follow. Without `authorizer.class.name` every ACL and filter gets
    SECURITY_DISABLED. A resource type, pattern type, operation or permission type of code 0 (UNKNOWN) closes the
    connection.
Versions: 0-3 of all three: 1+ pattern types (0 means literal ones), 3 users as resources.
"""

from collections.abc import Iterable

from barnabas.broker.call import Broker, Call
from barnabas.security.acls.acls import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    ResourcePattern,
)
from barnabas.security.acls.acls import UNKNOWN as UNKNOWN_NAME
from barnabas.security.acls.authorization import Deleted
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation, Refuse
from barnabas.world.freeing import emptied
from barnabas.world.pacing import paced

# One code for all four kinds of elements, as in Kafka's enums.
UNKNOWN = 0
# Kafka's texts: DescribeAcls has another one than CreateAcls and DeleteAcls.
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"
NO_AUTHORIZER = "No Authorizer is configured."
WRONG_CLUSTER_NAME = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
EMPTY_NAME = "Invalid empty resource name"
NOT_CREATED = "Failed to create ACL"

CreateRow = m.CreateAclsResponse.AclCreationResult
DeleteRow = m.DeleteAclsResponse.DeleteAclsFilterResult
Matching = m.DeleteAclsResponse.DeleteAclsMatchingAcl
Description = m.DescribeAclsResponse.AclDescription
DescribedResource = m.DescribeAclsResponse.DescribeAclsResource

NUMBERS = {
    kind: {name: number for number, name in names.items()}
    for kind, names in {
        "resource": RESOURCE_TYPES,
        "pattern": PATTERN_TYPES,
        "operation": OPERATIONS,
        "permission": PERMISSION_TYPES,
    }.items()
}


# -- DescribeAcls


async def describe_acls(broker: Broker, call: Call, request: m.DescribeAclsRequest) -> m.DescribeAclsResponse:
    """The ACLs that a filter finds. Raises ProtocolViolation, Refuse(CLUSTER_AUTHORIZATION_FAILED)."""
    # The values are checked before the authorization, because Kafka rejects such a request while it
    # parses it.
    _expect_known(
        (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    )
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if broker.authorization is None:
        return m.DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)
    found: dict[ResourcePattern, list[Description]] = {}
    async for pattern, entry in paced(await broker.authorization.matching(_filter(request))):
        # An operation of another version of Kafka has no number; a client could not read it.
        if entry.operation in NUMBERS["operation"] and entry.permission_type in NUMBERS["permission"]:
            found.setdefault(pattern, []).append(
                Description(
                    principal=entry.principal,
                    host=entry.host,
                    operation=NUMBERS["operation"][entry.operation],
                    permission_type=NUMBERS["permission"][entry.permission_type],
                )
            )

    resources = [
        DescribedResource(
            resource_type=NUMBERS["resource"][pattern.resource_type],
            resource_name=pattern.name,
            pattern_type=NUMBERS["pattern"][pattern.pattern_type],
            acls=rows,
        )
        async for pattern, rows in paced(found.items())
    ]
    return m.DescribeAclsResponse(error_message="", resources=resources)


def refuse_describe_acls(request: m.DescribeAclsRequest, version: int, code: ErrorCode) -> m.DescribeAclsResponse:
    """The error of the request."""
    return m.DescribeAclsResponse(error_code=code, error_message=_message(code))


# -- CreateAcls


async def create_acls(broker: Broker, call: Call, request: m.CreateAclsRequest) -> m.CreateAclsResponse:
    """Create ACLs; each has its own error.

    Raises ProtocolViolation, Refuse: CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR for ANY and MATCH.
    """
    # The values are checked before the authorization, as in `describe_acls`. One row with an unknown value
    # closes the connection, whatever the other rows are.
    async for row in paced(request.creations):
        _expect_known((row.resource_type, row.resource_pattern_type, row.operation, row.permission_type))
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # The error is in each row, because the responses of creation and deletion have no top-level
    # error.
    if broker.authorization is None:
        return m.CreateAclsResponse(
            results=[
                CreateRow(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
                async for _ in paced(request.creations)
            ]
        )

    bindings = [_binding(row) async for row in paced(request.creations)]

    # ANY and MATCH are for filters: in Kafka such an ACL cannot be made at all.
    async for binding in paced(bindings):
        if ANY in (*binding.pattern[::2], *binding.entry[2:]) or binding.pattern.pattern_type == MATCH:
            raise Refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    problems = [_why_not_created(binding) async for binding in paced(bindings)]
    usable = [binding for binding, problem in zip(bindings, problems, strict=True) if problem is None]

    # A principal without a type fails all ACLs of its pattern: Kafka finds it while it makes the new node.
    spoilt = {pattern async for pattern, entry in paced(usable) if ":" not in entry.principal}
    outcomes = await broker.authorization.create([each for each in usable if each.pattern not in spoilt])
    outcomes |= dict.fromkeys(spoilt, ErrorCode.UNKNOWN_SERVER_ERROR)
    results = [
        _created(problem, outcomes.get(binding.pattern))
        async for binding, problem in paced(zip(bindings, problems, strict=True))
    ]
    await emptied(bindings)
    await emptied(outcomes)
    return m.CreateAclsResponse(results=results)


def _binding(row: m.CreateAclsRequest.AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            RESOURCE_TYPES.get(row.resource_type, UNKNOWN_NAME),
            row.resource_name,
            PATTERN_TYPES.get(row.resource_pattern_type, UNKNOWN_NAME),
        ),
        AccessControlEntry(
            row.principal,
            row.host,
            OPERATIONS.get(row.operation, UNKNOWN_NAME),
            PERMISSION_TYPES.get(row.permission_type, UNKNOWN_NAME),
        ),
    )


def _why_not_created(binding: AclBinding) -> str | None:
    """Kafka's message about an ACL that is refused without a look at the store."""
    pattern, entry = binding
    if pattern.resource_type == "Cluster" and pattern.name != CLUSTER_NAME:
        return WRONG_CLUSTER_NAME
    if pattern.name == "":
        return EMPTY_NAME
    is_unknown = UNKNOWN_NAME in (*pattern[::2], *entry[2:])
    return NOT_CREATED if is_unknown or "/" in pattern.name else None


def _created(problem: str | None, code: ErrorCode | None) -> CreateRow:
    if problem is not None:
        return CreateRow(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    return CreateRow(error_code=code or ErrorCode.NONE, error_message=None if code else "")


def refuse_create_acls(request: m.CreateAclsRequest, version: int, code: ErrorCode) -> m.CreateAclsResponse:
    """The same error for every ACL."""
    rows = [CreateRow(error_code=code, error_message=_message(code)) for _ in request.creations]
    return m.CreateAclsResponse(results=rows)


# -- DeleteAcls


async def delete_acls(broker: Broker, call: Call, request: m.DeleteAclsRequest) -> m.DeleteAclsResponse:
    """Delete the ACLs that filters find. Raises ProtocolViolation, Refuse(CLUSTER_AUTHORIZATION_FAILED)."""
    async for row in paced(request.filters):
        _expect_known((row.resource_type_filter, row.pattern_type_filter, row.operation, row.permission_type))
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if broker.authorization is None:
        return m.DeleteAclsResponse(
            filter_results=[
                DeleteRow(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
                async for _ in paced(request.filters)
            ]
        )

    found = await broker.authorization.delete([_filter(row) async for row in paced(request.filters)])
    return m.DeleteAclsResponse(
        filter_results=[
            DeleteRow(error_message=None, matching_acls=[_deleted(each) async for each in paced(deleted)])
            async for deleted in paced(found)
        ]
    )


def _filter(row: m.DescribeAclsRequest | m.DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        RESOURCE_TYPES.get(row.resource_type_filter, UNKNOWN_NAME),
        row.resource_name_filter,
        PATTERN_TYPES.get(row.pattern_type_filter, UNKNOWN_NAME),
        row.principal_filter,
        row.host_filter,
        OPERATIONS.get(row.operation, UNKNOWN_NAME),
        PERMISSION_TYPES.get(row.permission_type, UNKNOWN_NAME),
    )


def _deleted(deleted: Deleted) -> Matching:
    pattern, entry = deleted.binding
    return Matching(
        error_code=deleted.code,
        error_message=None,
        resource_type=NUMBERS["resource"][pattern.resource_type],
        resource_name=pattern.name,
        pattern_type=NUMBERS["pattern"][pattern.pattern_type],
        principal=entry.principal,
        host=entry.host,
        operation=NUMBERS["operation"].get(entry.operation, UNKNOWN),
        permission_type=NUMBERS["permission"].get(entry.permission_type, UNKNOWN),
    )


def refuse_delete_acls(request: m.DeleteAclsRequest, version: int, code: ErrorCode) -> m.DeleteAclsResponse:
    """The same error for every filter."""
    rows = [DeleteRow(error_code=code, error_message=_message(code)) for _ in request.filters]
    return m.DeleteAclsResponse(filter_results=rows)


def _expect_known(codes: Iterable[int]) -> None:
    """Raises ProtocolViolation if one of these codes is UNKNOWN."""
    # Kafka maps numbers that it does not know to UNKNOWN only after this check, so they pass it.
    if UNKNOWN in codes:
        raise ProtocolViolation("an ACL with an element of code 0, which means unknown")


def _message(code: ErrorCode) -> str | None:
    # For other errors Kafka's message is a dump of the request object.
    return code.message if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else None
