"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and IP addresses (KIP-546).

Behaviour: quotas are stored at Kafka's paths in the metadata store, with a change notification, so that every broker of
    the cluster and Kafka's tools see them. Each entity of a request succeeds or fails on its own. An entity that is
    named twice is altered twice and answered once. A non-strict filter also matches entities with further names; a
    filter without components matches all. Entities without any rate are not described.
Versions: 0-1, which differ only in their encoding.
Not done: nothing that is known. `quotas/` enforces them.
"""

import logging
from collections.abc import AsyncIterator, Mapping

from barnabas.broker.call import Broker, Call
from barnabas.controller.admin.entity_configs import CLIENTS, USERS, change_entity, list_entities, read_entity
from barnabas.controller.store.store import DataTooLarge, MetadataStore, StoreError
from barnabas.quotas.client_quotas import (
    CLIENT_ID,
    FOLDERS,
    IP,
    USER,
    Entity,
    QuotaRefused,
    RateChange,
    change_rates,
    from_path,
    in_path,
    parse_entity,
    parse_filter,
    read_rates,
)
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse, shortened
from barnabas.world.freeing import emptied
from barnabas.world.net import resolves
from barnabas.world.pacing import paced

logger = logging.getLogger(__name__)

KINDS_IN_ANSWER = (CLIENT_ID, USER, IP)  # Kafka's order of an entity's names in the response to an alteration

# Components of a filter, or names and rates of one entity. Valid ones are few: three kinds of names, five rates. The
# limit bounds the step of the event loop that handles them.
PARTS_MAX = 1000

Asked = m.AlterClientQuotasRequest.EntryData
AlteredRow = m.AlterClientQuotasResponse.EntryData


# -- DescribeClientQuotas


async def describe_client_quotas(
    broker: Broker, call: Call, request: m.DescribeClientQuotasRequest
) -> m.DescribeClientQuotasResponse:
    """Every entity that matches the filter, with its rates.

    Raises Refuse: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
    """
    if not call.authorize("DescribeConfigs", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if len(request.components) > PARTS_MAX:
        raise Refuse(ErrorCode.INVALID_REQUEST)
    components = [(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        wanted = parse_filter(components, strict=request.strict)
    except QuotaRefused as refused:
        return m.DescribeClientQuotasResponse(error_code=refused.code, error_message=refused.message, entries=None)

    entries = []
    async for entity in _entities(broker.store):
        if wanted.fits(entity):
            # A user's node may hold SCRAM credentials alone, and a parent node only client ids.
            rates = read_rates(await read_entity(broker.store, entity.path))
            if rates:
                entries.append(_described(entity, rates))

    return m.DescribeClientQuotasResponse(error_message="", entries=entries)


def refuse_describe_client_quotas(
    request: m.DescribeClientQuotasRequest, version: int, code: ErrorCode
) -> m.DescribeClientQuotasResponse:
    """An error without entries."""
    message = None if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code.message  # as in Kafka
    return m.DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


async def _entities(store: MetadataStore) -> AsyncIterator[Entity]:
    """All entities in the store that may have quotas: users, client ids of users, client ids, IP addresses."""
    # The store may change between two reads: an entity that is removed meanwhile has no rates when it is read, and is
    # not described.
    for part in await list_entities(store, USERS):
        user = from_path(part)
        yield Entity(user=user)
        for client in await list_entities(store, f"{USERS}/{in_path(user)}/{CLIENTS}"):
            yield Entity(user=user, client_id=from_path(client))
    for part in await list_entities(store, CLIENTS):
        yield Entity(client_id=from_path(part))
    for part in await list_entities(store, FOLDERS[IP]):
        yield Entity(ip=from_path(part))


def _described(entity: Entity, rates: Mapping[str, float]) -> m.DescribeClientQuotasResponse.EntryData:
    return m.DescribeClientQuotasResponse.EntryData(
        entity=[
            m.DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.names.items()
        ],
        values=[m.DescribeClientQuotasResponse.ValueData(key=key, value=rate) for key, rate in rates.items()],
    )


# -- AlterClientQuotas


async def alter_client_quotas(
    broker: Broker, call: Call, request: m.AlterClientQuotasRequest
) -> m.AlterClientQuotasResponse:
    """Alter the quotas of each entity; each has its own error.

    Raises Refuse: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST for an entity with too many parts.
    """
    if not call.authorize("AlterConfigs", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # There is one row for each entity: if a request names one twice, both alterations are written,
    # and the row of the second one remains.
    rows: dict[tuple[tuple[str, str | None], ...], AlteredRow] = {}

    # This is a pass of its own: Refuse fails the whole request, so nothing may have been written
    # before.
    async for asked in paced(request.entries):
        if len(asked.entity) + len(asked.ops) > PARTS_MAX:
            raise Refuse(ErrorCode.INVALID_REQUEST)
    async for asked in paced(request.entries):
        named = _names(asked)
        row = rows[tuple(named.items())] = _row(named)
        try:
            await _alter(broker, asked, validate_only=request.validate_only)
        except QuotaRefused as refused:
            row.error_code = refused.code
            row.error_message = refused.message
        # This precedes StoreError, of which it is a kind: the store works, but the client sent too
        # much for a node.
        except DataTooLarge as error:
            row.error_code, row.error_message = ErrorCode.INVALID_REQUEST, shortened(str(error))
        except ValueError:  # the name makes no valid node path; Kafka answers the same
            row.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            row.error_message = None
        except StoreError as error:
            logger.warning("quotas cannot be altered: %s", error, extra={"peer": "metadata store"})
            row.error_code, row.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, shortened(str(error))

    entries = list(rows.values())
    await emptied(rows)
    return m.AlterClientQuotasResponse(entries=entries)


def refuse_alter_client_quotas(
    request: m.AlterClientQuotasRequest, version: int, code: ErrorCode
) -> m.AlterClientQuotasResponse:
    """The same error for every entity."""
    rows = [_row(_names(asked)) for asked in request.entries]
    for row in rows:
        row.error_code = code
        row.error_message = code.message
    return m.AlterClientQuotasResponse(entries=rows)


async def _alter(broker: Broker, asked: Asked, *, validate_only: bool) -> None:
    entity = parse_entity([(each.entity_type, each.entity_name) for each in asked.entity])
    # Kafka accepts host names as addresses if they resolve. They are resolved here, because `change_rates` cannot wait:
    # it runs within the write, and again if another broker has changed the node in between.
    if entity.ip and not await resolves(in_path(entity.ip)):
        message = f"{in_path(entity.ip)} is not a valid IP or resolvable host."
        raise QuotaRefused(ErrorCode.INVALID_REQUEST, message)
    changes = [RateChange(op.key, None if op.remove else op.value) for op in asked.ops]
    # `change_rates` validates; its result is what would be written.
    if validate_only:
        change_rates(await read_entity(broker.store, entity.path), entity, changes)
    else:
        await change_entity(broker.store, entity.path, lambda texts: change_rates(texts, entity, changes))


def _names(asked: Asked) -> dict[str, str | None]:
    names = {each.entity_type: each.entity_name for each in asked.entity}
    # An unknown kind is refused, and its row must still name the entity as the request did.
    unknown = [kind for kind in names if kind not in FOLDERS]
    return {kind: names[kind] for kind in (*unknown, *KINDS_IN_ANSWER) if kind in names}


def _row(names: Mapping[str, str | None]) -> AlteredRow:
    return AlteredRow(
        error_message=None,
        entity=[
            m.AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
        ],
    )
