"""A broker's registration, the ephemeral node by which the controller knows that it lives (reference A.3).

The node is created empty and filled in the same multi, as Kafka does it; its czxid is the *broker epoch*, which names
this life of the broker in every request between controller and brokers.
"""

import logging

import trio

from barnabas.controller.image.loading import broker_ids_of, parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import BrokerRegistration
from barnabas.controller.store.store import Create, Delete, MetadataStore, NodeExists, NoNode, SetData, Stat

logger = logging.getLogger(__name__)


class CannotRegister(Exception):
    """Another broker is in the way: same id, or same address. A person must act."""


async def register_broker(
    store: MetadataStore,
    broker_id: int,
    registration: BrokerRegistration,
    *,
    previous_session_id: int | None = None,
    patience_seconds: float = 0,
) -> int:
    """Register, and return the broker epoch.

    Called again in the same session it finds its own node and keeps it, which also covers a lost response. A node of
    `previous_session_id`, which was this process's and expired, is replaced. One with our own addresses is of an
    earlier process: its end is waited for, for `patience_seconds`. CannotRegister in every other case.
    """
    await _refuse_shared_address(store, broker_id, registration)
    path = paths.broker(broker_id)
    deadline = trio.current_time() + patience_seconds
    while True:
        try:
            _, written = await store.multi(
                [Create(path, None, ephemeral=True), SetData(path, registration.encode(), version=0)]
            )
        except NodeExists:
            stat = await store.exists(path)
            if stat is None:
                continue  # gone in between: its session ended
            if stat.owner == store.session_id:
                return stat.czxid
            if stat.owner == previous_session_id:
                await _remove(store, path, stat)
            else:
                await _outlive(store, broker_id, registration, deadline)
        else:
            # Not the stat of the created node, which some versions of ZooKeeper leave out of the result.
            assert isinstance(written, Stat), written
            return written.czxid


async def _remove(store: MetadataStore, path: str, stat: Stat) -> None:
    try:
        await store.multi([Delete(path, version=stat.version)])
    except NoNode:
        return


async def _outlive(store: MetadataStore, broker_id: int, registration: BrokerRegistration, deadline: float) -> None:
    """Wait for the end of an earlier life; CannotRegister when it is none, or does not end in time."""
    path = paths.broker(broker_id)
    touched = trio.Event()
    try:
        data, stat = await store.get(path, touched.set)
    except NoNode:
        return
    found = parse(BrokerRegistration.decode, data, path)
    is_an_earlier_life = found is not None and found.endpoints == registration.endpoints
    if not is_an_earlier_life or trio.current_time() >= deadline:
        raise CannotRegister(f"broker id {broker_id} is in use: {path} belongs to another session")
    logger.warning("%s is still there from an earlier life, session %#x: waiting for its end", path, stat.owner)
    with trio.move_on_at(deadline):
        await touched.wait()


async def _refuse_shared_address(store: MetadataStore, broker_id: int, registration: BrokerRegistration) -> None:
    """A client that is sent to an address which two brokers claim would reach the wrong one half of the time."""
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
