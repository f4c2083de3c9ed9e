"""ACLs of a cluster: DescribeAcls, CreateAcls, DeleteAcls. Each raises Refused and Unreachable.

The names of resource types, patterns, operations and permissions are those of `security/acls`: `Topic`, `Prefixed`,
`Read`, `Allow`.
"""

from collections.abc import Sequence
from typing import TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.security.acls.acls import (
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    UNKNOWN,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    ResourcePattern,
)
from barnabas.wire import messages as m

__all__ = [
    "AccessControlEntry",
    "AclBinding",
    "AclFilter",
    "ResourcePattern",
    "create_acls",
    "delete_acls",
    "list_acls",
]

_TYPE_NUMBERS = {name: number for number, name in RESOURCE_TYPES.items()}
_PATTERN_NUMBERS = {name: number for number, name in PATTERN_TYPES.items()}
_OPERATION_NUMBERS = {name: number for number, name in OPERATIONS.items()}
_PERMISSION_NUMBERS = {name: number for number, name in PERMISSION_TYPES.items()}


async def list_acls(cluster: Cluster, wanted: AclFilter) -> list[AclBinding]:
    """The ACLs that fit this filter, sorted."""
    response = await cluster.ask_any(_filled(m.DescribeAclsRequest(), wanted))
    assert isinstance(response, m.DescribeAclsResponse)
    check("ACLs", response.error_code, response.error_message)
    return sorted(
        AclBinding(
            _pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
            _entry(acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    )


async def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> list[tuple[int, str | None]]:
    """Create ACLs; the error code and message of each. One that is there already is no error."""
    request = m.CreateAclsRequest(
        creations=[
            m.CreateAclsRequest.AclCreation(
                resource_type=_TYPE_NUMBERS[pattern.resource_type],
                resource_name=pattern.name,
                resource_pattern_type=_PATTERN_NUMBERS[pattern.pattern_type],
                principal=entry.principal,
                host=entry.host,
                operation=_OPERATION_NUMBERS[entry.operation],
                permission_type=_PERMISSION_NUMBERS[entry.permission_type],
            )
            for pattern, entry in bindings
        ]
    )
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.CreateAclsResponse)
    return [(row.error_code, row.error_message) for row in response.results]


async def delete_acls(cluster: Cluster, wanted: AclFilter) -> list[tuple[AclBinding, int, str | None]]:
    """Delete the ACLs that fit this filter: each with its error code and message."""
    request = m.DeleteAclsRequest(filters=[_filled(m.DeleteAclsRequest.DeleteAclsFilter(), wanted)])
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.DeleteAclsResponse)
    (found,) = response.filter_results
    check("ACLs", found.error_code, found.error_message)
    return sorted(
        (
            AclBinding(
                _pattern(row.resource_type, row.resource_name, row.pattern_type),
                _entry(row.principal, row.host, row.operation, row.permission_type),
            ),
            row.error_code,
            row.error_message,
        )
        for row in found.matching_acls
    )


Filtering = TypeVar("Filtering", m.DescribeAclsRequest, m.DeleteAclsRequest.DeleteAclsFilter)


def _filled(request: Filtering, wanted: AclFilter) -> Filtering:
    """The request with the fields of a filter, which have the same names in both APIs."""
    request.resource_type_filter = _TYPE_NUMBERS[wanted.resource_type]
    request.resource_name_filter = wanted.name
    request.pattern_type_filter = _PATTERN_NUMBERS[wanted.pattern_type]
    request.principal_filter = wanted.principal
    request.host_filter = wanted.host
    request.operation = _OPERATION_NUMBERS[wanted.operation]
    request.permission_type = _PERMISSION_NUMBERS[wanted.permission_type]
    return request


def _pattern(resource_type: int, name: str, pattern_type: int) -> ResourcePattern:
    # A newer broker may have types that have no name here yet.
    return ResourcePattern(RESOURCE_TYPES.get(resource_type, UNKNOWN), name, PATTERN_TYPES.get(pattern_type, UNKNOWN))


def _entry(principal: str, host: str, operation: int, permission_type: int) -> AccessControlEntry:
    return AccessControlEntry(
        principal, host, OPERATIONS.get(operation, UNKNOWN), PERMISSION_TYPES.get(permission_type, UNKNOWN)
    )
