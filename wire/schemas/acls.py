"""DescribeAcls (key 29), CreateAcls (key 30), DeleteAcls (key 31): permissions on resources (KIP-11, KIP-140).

v1 pattern types, literal or prefixed names (KIP-290); v2 flexible; v3 users as resources (KIP-373).
"""

from barnabas.wire.schema import Field, Schema

_LITERAL = 3  # the pattern type of all ACLs in versions without pattern types

SCHEMAS = (
    Schema("DescribeAclsRequest", 29, "0-3", "2+", (
        Field("resource_type_filter", "int8"),
        Field("resource_name_filter", "string", nullable="0+"),
        Field("pattern_type_filter", "int8", "1+", default=_LITERAL),
        Field("principal_filter", "string", nullable="0+"),
        Field("host_filter", "string", nullable="0+"),
        Field("operation", "int8"),
        Field("permission_type", "int8"),
    )),
    Schema("DescribeAclsResponse", 29, "0-3", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("resources", "[]DescribeAclsResource", fields=(
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("pattern_type", "int8", "1+", default=_LITERAL),
            Field("acls", "[]AclDescription", fields=(
                Field("principal", "string"),
                Field("host", "string"),
                Field("operation", "int8"),
                Field("permission_type", "int8"),
            )),
        )),
    )),
    Schema("CreateAclsRequest", 30, "0-3", "2+", (
        Field("creations", "[]AclCreation", fields=(
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("resource_pattern_type", "int8", "1+", default=_LITERAL),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        )),
    )),
    Schema("CreateAclsResponse", 30, "0-3", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("results", "[]AclCreationResult", fields=(
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+"),
        )),
    )),
    Schema("DeleteAclsRequest", 31, "0-3", "2+", (
        Field("filters", "[]DeleteAclsFilter", fields=(
            Field("resource_type_filter", "int8"),
            Field("resource_name_filter", "string", nullable="0+"),
            Field("pattern_type_filter", "int8", "1+", default=_LITERAL),
            Field("principal_filter", "string", nullable="0+"),
            Field("host_filter", "string", nullable="0+"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        )),
    )),
    Schema("DeleteAclsResponse", 31, "0-3", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("filter_results", "[]DeleteAclsFilterResult", fields=(
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+"),
            Field("matching_acls", "[]DeleteAclsMatchingAcl", fields=(
                Field("error_code", "int16"),
                Field("error_message", "string", nullable="0+"),
                Field("resource_type", "int8"),
                Field("resource_name", "string"),
                Field("pattern_type", "int8", "1+", default=_LITERAL),
                Field("principal", "string"),
                Field("host", "string"),
                Field("operation", "int8"),
                Field("permission_type", "int8"),
            )),
        )),
    )),
)  # fmt: skip
