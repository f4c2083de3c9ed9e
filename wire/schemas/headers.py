"""The headers of requests and responses; `apis.py` has the header version of each message.

The client id has its classic length in the flexible request header v2, so that a broker can read it in versions that it
does not support.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("RequestHeader", None, "0-2", "2+", (
        Field("request_api_key", "int16"),
        Field("request_api_version", "int16"),
        Field("correlation_id", "int32"),
        Field("client_id", "string", "1+", nullable="1+", ignorable=True, compact=False),
    )),
    Schema("ResponseHeader", None, "0-1", "1+", (
        Field("correlation_id", "int32"),
    )),
)  # fmt: skip
