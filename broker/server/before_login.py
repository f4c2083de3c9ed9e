"""Answers to ordinary requests during a login, which are due when `security/sasl/authenticator.py` says so."""

import re

from barnabas.broker.call import ANONYMOUS, Broker, Call
from barnabas.broker.handlers.versions import api_versions
from barnabas.broker.server.dispatch import answer_unsupported, refused
from barnabas.storage.disk import FileSlice
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.frame import UnsupportedRequest

OUT_OF_PLACE = "Unexpected Kafka request of type {} during SASL authentication."


class AnswersBeforeLogin:
    """What `Authenticator` needs of dispatch, which is in a room above its own."""

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener

    def api_versions(self, request: m.ApiVersionsRequest, version: int) -> m.Message:
        """As after the login: the same table."""
        call = Call(API_VERSIONS_KEY, version, None, ANONYMOUS, "", self._listener)
        try:
            return api_versions(self._broker, call, request)
        except Refuse as refusal:
            return m.ApiVersionsResponse(error_code=refusal.code)

    def unsupported(self, unsupported: UnsupportedRequest) -> bytes:
        """The frame of the response to an ApiVersions of an unknown version."""
        return b"".join(piece for piece in answer_unsupported(unsupported) if not isinstance(piece, FileSlice))

    def refused(self, api_key: int, request: m.Message, version: int, code: ErrorCode) -> m.Message | None:
        """The response with this error code at every place, and what is out of place."""
        response = refused(api_key, request, version, code)
        if response is not None:
            words = re.findall("[A-Z][a-z]*", APIS[api_key].name)
            _explain(response, code, OUT_OF_PLACE.format("_".join(words).upper()))
        return response


def _explain(row: m.Struct, code: ErrorCode, message: str) -> None:
    """Give this message to the row, and to the rows in it, as far as they have the error and place for a message."""
    if getattr(row, "error_code", None) == code and hasattr(row, "error_message"):
        row.error_message = message
    for name in row.FIELDS:
        rows = getattr(row, name)
        for each in rows if isinstance(rows, list) else ():
            if isinstance(each, m.Struct):
                _explain(each, code, message)
