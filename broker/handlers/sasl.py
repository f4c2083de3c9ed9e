"""SaslHandshake and SaslAuthenticate, on a listener without authentication.

Behaviour: every listener is PLAINTEXT, so a connection need not authenticate, and both get ILLEGAL_SASL_STATE: what
    Apache Kafka answers on such a listener, and on any other once the client is authenticated.
Versions: SaslHandshake 0-1, SaslAuthenticate 0-2.
Not done: listeners that authenticate.
"""

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse

TOO_LATE = "SaslAuthenticate request received after successful authentication"


def sasl_handshake(broker: Broker, call: Call, request: m.SaslHandshakeRequest) -> m.SaslHandshakeResponse:
    """A client names the mechanism that it wants to log in with."""
    raise Refuse(ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(broker: Broker, call: Call, request: m.SaslAuthenticateRequest) -> m.SaslAuthenticateResponse:
    """A client's part of the login."""
    return m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TOO_LATE)
