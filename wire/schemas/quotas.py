"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49): limits of users, client ids and addresses (KIP-546).

v1 of both is flexible.
"""

from barnabas.wire.schema import Field, Schema

ENTITY = (
    Field("entity_type", "string"),
    Field("entity_name", "string", nullable="0+"),
)

SCHEMAS = (
    Schema("DescribeClientQuotasRequest", 48, "0-1", "1+", (
        Field("components", "[]ComponentData", fields=(
            Field("entity_type", "string"),
            Field("match_type", "int8"),
            Field("match", "string", nullable="0+"),
        )),
        Field("strict", "bool"),
    )),
    Schema("DescribeClientQuotasResponse", 48, "0-1", "1+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("entries", "[]EntryData", nullable="0+", fields=(
            Field("entity", "[]EntityData", fields=ENTITY),
            Field("values", "[]ValueData", fields=(
                Field("key", "string"),
                Field("value", "float64"),
            )),
        )),
    )),
    Schema("AlterClientQuotasRequest", 49, "0-1", "1+", (
        Field("entries", "[]EntryData", fields=(
            Field("entity", "[]EntityData", fields=ENTITY),
            Field("ops", "[]OpData", fields=(
                Field("key", "string"),
                Field("value", "float64"),
                Field("remove", "bool"),
            )),
        )),
        Field("validate_only", "bool"),
    )),
    Schema("AlterClientQuotasResponse", 49, "0-1", "1+", (
        Field("throttle_time_ms", "int32"),
        Field("entries", "[]EntryData", fields=(
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+"),
            Field("entity", "[]EntityData", fields=ENTITY),
        )),
    )),
)  # fmt: skip
