"""Delegation tokens: Create (key 38), Renew (39), Expire (40), Describe (41) (KIP-48).

v2 flexible; v3 of Create and Describe has the owner and the requester of a token (KIP-373).
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("CreateDelegationTokenRequest", 38, "0-3", "2+", (
        Field("owner_principal_type", "string", "3+", nullable="3+"),
        Field("owner_principal_name", "string", "3+", nullable="3+"),
        Field("renewers", "[]CreatableRenewers", fields=(
            Field("principal_type", "string"),
            Field("principal_name", "string"),
        )),
        Field("max_lifetime_ms", "int64"),
    )),
    Schema("CreateDelegationTokenResponse", 38, "0-3", "2+", (
        Field("error_code", "int16"),
        Field("principal_type", "string"),
        Field("principal_name", "string"),
        Field("token_requester_principal_type", "string", "3+"),
        Field("token_requester_principal_name", "string", "3+"),
        Field("issue_timestamp_ms", "int64"),
        Field("expiry_timestamp_ms", "int64"),
        Field("max_timestamp_ms", "int64"),
        Field("token_id", "string"),
        Field("hmac", "bytes"),
        Field("throttle_time_ms", "int32"),
    )),
    Schema("RenewDelegationTokenRequest", 39, "0-2", "2+", (
        Field("hmac", "bytes"),
        Field("renew_period_ms", "int64"),
    )),
    Schema("RenewDelegationTokenResponse", 39, "0-2", "2+", (
        Field("error_code", "int16"),
        Field("expiry_timestamp_ms", "int64"),
        Field("throttle_time_ms", "int32"),
    )),
    Schema("ExpireDelegationTokenRequest", 40, "0-2", "2+", (
        Field("hmac", "bytes"),
        Field("expiry_time_period_ms", "int64"),
    )),
    Schema("ExpireDelegationTokenResponse", 40, "0-2", "2+", (
        Field("error_code", "int16"),
        Field("expiry_timestamp_ms", "int64"),
        Field("throttle_time_ms", "int32"),
    )),
    Schema("DescribeDelegationTokenRequest", 41, "0-3", "2+", (
        Field("owners", "[]DescribeDelegationTokenOwner", nullable="0+", fields=(
            Field("principal_type", "string"),
            Field("principal_name", "string"),
        )),
    )),
    Schema("DescribeDelegationTokenResponse", 41, "0-3", "2+", (
        Field("error_code", "int16"),
        Field("tokens", "[]DescribedDelegationToken", fields=(
            Field("principal_type", "string"),
            Field("principal_name", "string"),
            Field("token_requester_principal_type", "string", "3+"),
            Field("token_requester_principal_name", "string", "3+"),
            Field("issue_timestamp", "int64"),
            Field("expiry_timestamp", "int64"),
            Field("max_timestamp", "int64"),
            Field("token_id", "string"),
            Field("hmac", "bytes"),
            Field("renewers", "[]DescribedDelegationTokenRenewer", fields=(
                Field("principal_type", "string"),
                Field("principal_name", "string"),
            )),
        )),
        Field("throttle_time_ms", "int32"),
    )),
)  # fmt: skip
