"""From a request's bytes to an answer's pieces: decode, handle, encode.

`HANDLERS` is one literal table; at import it is compared with what `wire/apis.py` says is served, both ways. This file
is the one place that catches `Exception` of a single request: our own mistake must cost one answer, not a connection
with other requests behind it. It is logged with its traceback and counted, and the client is told
UNKNOWN_SERVER_ERROR in the API's own form, which the `refuse_` function beside each handler knows.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from typing import NamedTuple, cast

from barnabas.broker.call import Broker, Call
from barnabas.broker.handlers import (
    fetch,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    replication,
    topics,
    txn,
    versions,
)
from barnabas.storage.disk import FileSlice
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, Api, request_class
from barnabas.wire.errors import ErrorCode, InvariantBroken, ProtocolViolation, Refuse

logger = logging.getLogger(__name__)

Handler = Callable[..., "m.Message | Awaitable[m.Message | None] | None"]
Refusal = Callable[..., "m.Message | None"]
Pieces = list["bytes | bytearray | memoryview | FileSlice"]


class Route(NamedTuple):
    """How one API is answered: its handler, and its way of saying one error about everything that was asked."""

    handle: Handler
    refuse: Refusal


HANDLERS: dict[int, Route] = {
    0: Route(produce.produce, produce.refuse_produce),
    1: Route(fetch.fetch, fetch.refuse_fetch),
    2: Route(offsets.list_offsets, offsets.refuse_list_offsets),
    3: Route(metadata.metadata, metadata.refuse_metadata),
    4: Route(replication.leader_and_isr, replication.refuse_leader_and_isr),
    5: Route(replication.stop_replica, replication.refuse_stop_replica),
    6: Route(replication.update_metadata, replication.refuse_update_metadata),
    8: Route(group_offsets.offset_commit, group_offsets.refuse_offset_commit),
    9: Route(group_offsets.offset_fetch, group_offsets.refuse_offset_fetch),
    10: Route(groups.find_coordinator, groups.refuse_find_coordinator),
    11: Route(groups.join_group, groups.refuse_join_group),
    12: Route(groups.heartbeat, groups.refuse_heartbeat),
    13: Route(groups.leave_group, groups.refuse_leave_group),
    14: Route(groups.sync_group, groups.refuse_sync_group),
    15: Route(groups.describe_groups, groups.refuse_describe_groups),
    16: Route(groups.list_groups, groups.refuse_list_groups),
    18: Route(versions.api_versions, versions.refuse_api_versions),
    19: Route(topics.create_topics, topics.refuse_create_topics),
    20: Route(topics.delete_topics, topics.refuse_delete_topics),
    22: Route(txn.init_producer_id, txn.refuse_init_producer_id),
    67: Route(txn.allocate_producer_ids, txn.refuse_allocate_producer_ids),
}

_differing = set(HANDLERS) ^ {key for key, api in APIS.items() if api.served}
if _differing:
    raise InvariantBroken(f"wire/apis.py and the handlers disagree about the keys {sorted(_differing)}")

_request_class = cache(request_class)
_WAITS = {key: inspect.iscoroutinefunction(route.handle) for key, route in HANDLERS.items()}


async def answer(broker: Broker, call: Call, request: m.Message) -> m.Message | None:
    """The response to a decoded request; None when nothing is to be sent (acks=0)."""
    route = HANDLERS[call.api_key]
    try:
        if _WAITS[call.api_key]:
            return await cast("Awaitable[m.Message | None]", route.handle(broker, call, request))
        return cast("m.Message | None", route.handle(broker, call, request))
    except Refuse as refused:
        return route.refuse(request, call.version, refused.code)
    except ProtocolViolation:
        raise
    except Exception:
        api: Api = APIS[call.api_key]
        logger.exception("%s v%d from client %r failed", api.name, call.version, call.client_id)
        return route.refuse(request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)


def decode(call: Call, frame: memoryview, position: int) -> m.Message:
    """The request in a frame, its header read. ProtocolViolation when it is not one."""
    return m.decode(_request_class(APIS[call.api_key]), call.version, frame, position)
