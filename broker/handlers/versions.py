"""ApiVersions: what this broker serves.

Behaviour: the table of `wire/apis.py`, the same on every broker, so that a client may talk to any of them. No features
    are sent: clients then stay on the transaction protocol that a 3.9 broker in ZooKeeper mode speaks. The epoch 0 says
    that this is so on purpose, where -1 would mean that the broker does not know.
Versions: 0-4; a version above is answered before it gets here, in `dispatch.py`. From 3 on the client names its
    software, and a malformed name is INVALID_REQUEST (KIP-511).
"""

import re

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.apis import served_apis
from barnabas.wire.errors import ErrorCode, Refuse

CLIENT_SOFTWARE_VERSION = 3
NO_FEATURES_EPOCH = 0
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def api_versions(broker: Broker, call: Call, request: m.ApiVersionsRequest) -> m.ApiVersionsResponse:
    """Every served key with its version range."""
    if call.version >= CLIENT_SOFTWARE_VERSION and not (
        _SOFTWARE_NAME.match(request.client_software_name) and _SOFTWARE_NAME.match(request.client_software_version)
    ):
        raise Refuse(ErrorCode.INVALID_REQUEST)
    rows = [
        m.ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in served_apis()
    ]
    return m.ApiVersionsResponse(api_keys=rows, finalized_features_epoch=NO_FEATURES_EPOCH)
