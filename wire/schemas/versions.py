"""ApiVersions (key 18): the APIs and versions that the broker supports (KIP-35).

v3 flexible, with the client's name and version (KIP-511), and features in tags (KIP-584), which Barnabas does not
send: without finalized features clients keep to the transaction protocol of 3.9. The response header is v0 at every
version (`apis.response_header_version`).
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("ApiVersionsRequest", 18, "0-4", "3+", (
        Field("client_software_name", "string", "3+", ignorable=True),
        Field("client_software_version", "string", "3+", ignorable=True),
    )),
    Schema("ApiVersionsResponse", 18, "0-4", "3+", (
        Field("error_code", "int16"),
        Field("api_keys", "[]ApiVersion", fields=(
            Field("api_key", "int16"),
            Field("min_version", "int16"),
            Field("max_version", "int16"),
        )),
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("supported_features", "[]SupportedFeatureKey", "3+", tag=0, ignorable=True, fields=(
            Field("name", "string", "3+"),
            Field("min_version", "int16", "3+"),
            Field("max_version", "int16", "3+"),
        )),
        Field("finalized_features_epoch", "int64", "3+", default=-1, tag=1, ignorable=True),
        Field("finalized_features", "[]FinalizedFeatureKey", "3+", tag=2, ignorable=True, fields=(
            Field("name", "string", "3+"),
            Field("max_version_level", "int16", "3+"),
            Field("min_version_level", "int16", "3+"),
        )),
        Field("zk_migration_ready", "bool", "3+", tag=3, ignorable=True),
    )),
)  # fmt: skip
