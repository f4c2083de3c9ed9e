"""A broker's registration, the ephemeral node that shows the controller that the broker is alive (reference A.3).

The czxid of the node is the *broker epoch*, which identifies this registration in every request between controller and
brokers.
"""

import logging

import trio

from barnabas.controller.image.loading import broker_ids_of, parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import BrokerRegistration
from barnabas.controller.store.store import Create, Delete, MetadataStore, NodeExists, NoNode, SetData, Stat

logger = logging.getLogger(__name__)


class CannotRegister(Exception):
    """Another broker has the same id or address; an operator must act."""


async def register_broker(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    *,
    previous_session_id: int | None = None,
    patience_seconds: float = 0,
) -> int:
    """Register, and return the broker epoch.

    `previous_session_id` is the expired session of this process, if it had one. If an earlier process of this broker is
    still registered, wait up to `patience_seconds` until it is gone. CannotRegister if another broker has the id or an
    address.
    """
    await _refuse_shared_address(store, broker_id, registration)
    path = paths.broker(broker_id)
    deadline = trio.current_time() + patience_seconds
    while True:
        # The node is created empty and filled in the same multi, as in Kafka: the stat of the
        # second operation has the czxid.
        try:
            _, written = await store.multi(
                [Create(path, None, ephemeral=True), SetData(path, registration.encode(), version=0)]
            )
        except NodeExists:
            stat = await store.exists(path)

            # The node is gone in between, because its session has ended.
            if stat is None:
                continue

            # A node of this session exists if the response to an earlier attempt was lost, or if
            # this is the second call. The registration keeps its epoch, which the controller may
            # have read already.
            if stat.owner == store.session_id:
                return stat.czxid

            # The node belongs to the expired session of this process, and the store has not
            # removed it yet. Nothing else uses that session any more.
            if stat.owner == previous_session_id:
                await _remove(store, path, stat)
            else:
                await _outlive(store, broker_id, registration, deadline)
        else:
            # This is the stat of the second operation, because some versions of ZooKeeper leave
            # that of a created node out of the result.
            assert isinstance(written, Stat), written
            return written.czxid


async def _remove(store: MetadataStore, path: str, stat: Stat) -> None:
    try:
        await store.multi([Delete(path, version=stat.version)])
    except NoNode:
        return


async def _outlive(store: MetadataStore, broker_id: int, registration: BrokerRegistration, deadline: float) -> None:
    """Wait until the registration of an earlier process is gone; CannotRegister if it is another broker's, or stays."""
    path = paths.broker(broker_id)
    touched = trio.Event()
    try:
        data, stat = await store.get(path, touched.set)
    except NoNode:
        return
    found = parse(BrokerRegistration.decode, data, path)
    # The same id and the same endpoints are those of an earlier process of this broker, whose
    # session has not expired yet.
    is_of_earlier_process = found is not None and found.endpoints == registration.endpoints
    if not is_of_earlier_process or trio.current_time() >= deadline:
        raise CannotRegister(f"broker id {broker_id} is in use: {path} belongs to another session")
    logger.warning("%s belongs to an earlier process, session %#x: waiting until it is gone", path, stat.owner)
    with trio.move_on_at(deadline):
        await touched.wait()


async def _refuse_shared_address(store: MetadataStore, broker_id: int, registration: BrokerRegistration) -> None:
    """CannotRegister if another broker advertises one of our addresses."""
    # Clients would reach the wrong broker half of the time.
    addresses = {(endpoint.host, endpoint.port) for endpoint in registration.endpoints}
    for other in broker_ids_of(await store.children(paths.BROKER_IDS)):
        if other == broker_id:
            continue
        try:
            data, _ = await store.get(paths.broker(other))
        except NoNode:
            continue
        registered = parse(BrokerRegistration.decode, data, paths.broker(other))
        for endpoint in () if registered is None else registered.endpoints:
            if (endpoint.host, endpoint.port) in addresses:
                raise CannotRegister(f"broker {other} is registered at {endpoint.host}:{endpoint.port} already")
