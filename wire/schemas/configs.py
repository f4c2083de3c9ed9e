"""DescribeConfigs (key 32), AlterConfigs (key 33) and IncrementalAlterConfigs (key 44).

DescribeConfigs: v1 the source of each value in place of `is_default`, and its synonyms (KIP-226); v3 its type and
documentation (KIP-569); v4 flexible. AlterConfigs, the older API, replaces all properties of a resource; v2 flexible.
IncrementalAlterConfigs changes only the properties in the request (KIP-339); v1 flexible.
"""

from barnabas.wire.schema import Field, Schema

ALTERED = (
    Field("throttle_time_ms", "int32"),
    Field("responses", "[]AlterConfigsResourceResponse", fields=(
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
    )),
)  # fmt: skip

SCHEMAS = (
    Schema("DescribeConfigsRequest", 32, "0-4", "4+", (
        Field("resources", "[]DescribeConfigsResource", fields=(
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configuration_keys", "[]string", nullable="0+"),
        )),
        Field("include_synonyms", "bool", "1+"),
        Field("include_documentation", "bool", "3+"),
    )),
    Schema("DescribeConfigsResponse", 32, "0-4", "4+", (
        Field("throttle_time_ms", "int32"),
        Field("results", "[]DescribeConfigsResult", fields=(
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+"),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configs", "[]DescribeConfigsResourceResult", fields=(
                Field("name", "string"),
                Field("value", "string", nullable="0+"),
                Field("read_only", "bool"),
                Field("is_default", "bool", "0"),
                Field("config_source", "int8", "1+", default=-1, ignorable=True),
                Field("is_sensitive", "bool"),
                Field("synonyms", "[]DescribeConfigsSynonym", "1+", ignorable=True, fields=(
                    Field("name", "string", "1+"),
                    Field("value", "string", "1+", nullable="0+"),
                    Field("source", "int8", "1+"),
                )),
                Field("config_type", "int8", "3+", ignorable=True),
                Field("documentation", "string", "3+", nullable="0+", ignorable=True),
            )),
        )),
    )),
    Schema("AlterConfigsRequest", 33, "0-2", "2+", (
        Field("resources", "[]AlterConfigsResource", fields=(
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configs", "[]AlterableConfig", fields=(
                Field("name", "string"),
                Field("value", "string", nullable="0+"),
            )),
        )),
        Field("validate_only", "bool"),
    )),
    Schema("AlterConfigsResponse", 33, "0-2", "2+", ALTERED),
    Schema("IncrementalAlterConfigsRequest", 44, "0-1", "1+", (
        Field("resources", "[]AlterConfigsResource", fields=(
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configs", "[]AlterableConfig", fields=(
                Field("name", "string"),
                Field("config_operation", "int8"),
                Field("value", "string", nullable="0+"),
            )),
        )),
        Field("validate_only", "bool"),
    )),
    Schema("IncrementalAlterConfigsResponse", 44, "0-1", "1+", ALTERED),
)  # fmt: skip
