"""DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (key 51) (KIP-554).

The client salts the password itself: the broker gets the salt and the salted password, never the password. A
mechanism is a number: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("DescribeUserScramCredentialsRequest", 50, "0", "0+", (
        Field("users", "[]UserName", nullable="0+", fields=(
            Field("name", "string"),
        )),
    )),
    Schema("DescribeUserScramCredentialsResponse", 50, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("results", "[]DescribeUserScramCredentialsResult", fields=(
            Field("user", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+"),
            Field("credential_infos", "[]CredentialInfo", fields=(
                Field("mechanism", "int8"),
                Field("iterations", "int32"),
            )),
        )),
    )),
    Schema("AlterUserScramCredentialsRequest", 51, "0", "0+", (
        Field("deletions", "[]ScramCredentialDeletion", fields=(
            Field("name", "string"),
            Field("mechanism", "int8"),
        )),
        Field("upsertions", "[]ScramCredentialUpsertion", fields=(
            Field("name", "string"),
            Field("mechanism", "int8"),
            Field("iterations", "int32"),
            Field("salt", "bytes"),
            Field("salted_password", "bytes"),
        )),
    )),
    Schema("AlterUserScramCredentialsResponse", 51, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("results", "[]AlterUserScramCredentialsResult", fields=(
            Field("user", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+"),
        )),
    )),
)  # fmt: skip
