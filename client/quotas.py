"""Client quotas of a cluster: DescribeClientQuotas, AlterClientQuotas (KIP-546). Each raises Refused and Unreachable.

An entity is a mapping of the kinds `user`, `client-id` and `ip` to names; None is the default of all that have no quota
of their own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.wire import messages as m

EXACT, DEFAULT = 0, 1  # how a component of a filter matches

Entity = Mapping[str, str | None]


class Quotas(NamedTuple):
    """The quotas of one entity: name -> rate, in the unit of the name (bytes a second, percent, changes a second)."""

    entity: Entity
    rates: Mapping[str, float]


async def list_quotas(cluster: Cluster, entity: Entity, *, exactly: bool = False) -> list[Quotas]:
    """The quotas of all entities with these names among theirs; `exactly`: of the entity with no other ones."""
    request = m.DescribeClientQuotasRequest(
        components=[
            m.DescribeClientQuotasRequest.ComponentData(
                entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name
            )
            for kind, name in entity.items()
        ],
        strict=exactly,
    )
    response = await cluster.ask_any(request)
    assert isinstance(response, m.DescribeClientQuotasResponse)
    check("quotas", response.error_code, response.error_message)
    found = [
        Quotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
        )
        for entry in response.entries or ()
    ]
    # A broker keeps entities in no order. A default, which has no name, comes before the names.
    return sorted(found, key=lambda each: sorted((kind, name or "") for kind, name in each.entity.items()))


async def set_quotas(
    cluster: Cluster, entity: Entity, rates: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas of one entity; None removes one. The others stay as they are."""
    entry = m.AlterClientQuotasRequest.EntryData(
        entity=[
            m.AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[
            m.AlterClientQuotasRequest.OpData(key=key, value=rate or 0.0, remove=rate is None)
            for key, rate in rates.items()
        ],
    )
    request = m.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.AlterClientQuotasResponse)
    for row in response.entries:
        check("quotas", row.error_code, row.error_message)
