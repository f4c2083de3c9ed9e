"""SaslHandshake (key 17) and SaslAuthenticate (key 36): authentication (KIP-43, KIP-152).

After SaslHandshake v1 the client sends SaslAuthenticate requests, after v0 bare tokens. It is never flexible, because
clients up to 2.4 could not read that. SaslAuthenticate: v1 the lifetime of the session (KIP-368); v2 flexible.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("SaslHandshakeRequest", 17, "0-1", None, (
        Field("mechanism", "string"),
    )),
    Schema("SaslHandshakeResponse", 17, "0-1", None, (
        Field("error_code", "int16"),
        Field("mechanisms", "[]string"),
    )),
    Schema("SaslAuthenticateRequest", 36, "0-2", "2+", (
        Field("auth_bytes", "bytes"),
    )),
    Schema("SaslAuthenticateResponse", 36, "0-2", "2+", (
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("auth_bytes", "bytes"),
        Field("session_lifetime_ms", "int64", "1+", ignorable=True),
    )),
)  # fmt: skip
