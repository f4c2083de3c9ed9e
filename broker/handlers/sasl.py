"""SaslHandshake and SaslAuthenticate among ordinary requests: out of place.

Behaviour: both get ILLEGAL_SASL_STATE, on a PLAINTEXT or SSL listener, and on a SASL listener after authentication. A
    login, or another one on the same connection, is not handled here (`security/sasl/authenticator.py`).
Versions: SaslHandshake 0-1, SaslAuthenticate 0-2.
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
    # `Refuse` would leave the message null.
    return m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TOO_LATE)
