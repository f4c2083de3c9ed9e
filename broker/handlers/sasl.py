"""SaslHandshake and SaslAuthenticate, on a listener without authentication.

Behaviour: every listener is PLAINTEXT, so connections do not authenticate. Both requests get ILLEGAL_SASL_STATE, as
    from Apache Kafka on a PLAINTEXT listener, and on a SASL listener after authentication.
Versions: SaslHandshake 0-1, SaslAuthenticate 0-2.
Not done: listeners that authenticate.
"""

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse

TOO_LATE = "SaslAuthenticate request received after successful authentication"


def sasl_handshake(broker: Broker, call: Call, request: m.SaslHandshakeRequest) -> m.SaslHandshakeResponse:
    """Choose a SASL mechanism: always Refuse(ILLEGAL_SASL_STATE)."""
    # Java clients do not retry this error: it means that the client's `security.protocol` is wrong.
    raise Refuse(ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(broker: Broker, call: Call, request: m.SaslAuthenticateRequest) -> m.SaslAuthenticateResponse:
    """One step of the authentication: always ILLEGAL_SASL_STATE with a message."""
    # Not `Refuse`, which leaves the message null.
    return m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TOO_LATE)
