"""ApiVersions: the APIs and versions that this broker serves.

Behaviour: the response is the table of `wire/apis.py`, the same on every broker, so that a client may use any of them.
Versions: 0-4; `dispatch.py` answers higher versions itself. From 3 on the client sends the name and version of its
    software, and a malformed one is INVALID_REQUEST (KIP-511).
"""

import re

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.apis import served_apis
from barnabas.wire.errors import ErrorCode, Refuse

CLIENT_SOFTWARE_VERSION = 3
NO_FEATURES_EPOCH = 0
# KIP-511. `\Z` and not `$`, which also matches before a line break at the end.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def api_versions(broker: Broker, call: Call, request: m.ApiVersionsRequest) -> m.ApiVersionsResponse:
    """Every served API key with its version range. Raises Refuse(INVALID_REQUEST)."""
    if call.version >= CLIENT_SOFTWARE_VERSION:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE_NAME.match(name) and _SOFTWARE_NAME.match(version)):
            raise Refuse(ErrorCode.INVALID_REQUEST)
        if call.connection is not None:
            call.connection.software = broker.tally.software(name, version)
    rows = [
        m.ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in served_apis()
    ]
    # Clients use the transaction protocol of a 3.9 broker in ZooKeeper mode if there are no
    # finalized features. Epoch 0 states that there are none; -1 would mean that the broker does not
    # know.
    return m.ApiVersionsResponse(api_keys=rows, finalized_features_epoch=NO_FEATURES_EPOCH)
