"""Client quotas (pure): entities, their form in the store, and filters (KIP-55, KIP-546).

An entity is a user, a client id, a client id of a user, or an address; each name may be the default (None), which
applies to all without a quota of their own. The path in the store is Kafka's, with URL-encoded names:

    users/U   clients/C   users/U/clients/C   ips/ADDRESS   (U, C, ADDRESS may be the literal <default>)

Rates are stored as text: integers for bytes and connections, decimals for request percentage and controller mutations.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.config.checks import show_number
from barnabas.controller.admin.entity_configs import ADDRESSES, CLIENTS, USERS
from barnabas.controller.store.paths import DEFAULT_ENTITY, desanitize, sanitize
from barnabas.security.sasl.scram import MECHANISMS
from barnabas.wire.errors import ErrorCode, shortened

USER, CLIENT_ID, IP = "user", "client-id", "ip"
FOLDERS = {USER: USERS, CLIENT_ID: CLIENTS, IP: ADDRESSES}
PRECISION = 1e-6  # tolerance when a float must be an integer

LONG_RATES = ("producer_byte_rate", "consumer_byte_rate")
DECIMAL_RATES = ("request_percentage", "controller_mutation_rate")
INT_RATES = ("connection_creation_rate",)
RATES = {USER: LONG_RATES + DECIMAL_RATES, CLIENT_ID: LONG_RATES + DECIMAL_RATES, IP: INT_RATES}
# A user's config node also has SCRAM credentials: they are no rates, and a change of rates must keep them.
SCRAM = frozenset(mechanism.name for mechanism in MECHANISMS.values())


class QuotaRefused(Exception):
    """Why an entity, a rate or a filter is refused, in Kafka's words."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = shortened(message)


class Entity(NamedTuple):
    """A quota entity, in one of the four forms above."""

    user: str | None = ""  # "": not part of the entity; None: the default
    client_id: str | None = ""
    ip: str | None = ""

    @property
    def names(self) -> dict[str, str | None]:
        """Kind -> name, of the kinds that the entity has."""
        return {kind: name for kind, name in zip((USER, CLIENT_ID, IP), self, strict=True) if name != ""}

    @property
    def path(self) -> str:
        """The node below /config."""
        return "/".join(f"{FOLDERS[kind]}/{in_path(name)}" for kind, name in self.names.items())

    @property
    def rates(self) -> tuple[str, ...]:
        """The names of the rates that it may have."""
        # The first kind decides: users and client ids have the same rates, and an address stands alone.
        return RATES[next(iter(self.names))]


def in_path(name: str | None) -> str:
    """A name in its form in the store."""
    # `sanitize` URL-encodes "<", so a user who is called "<default>" is not taken for the default.
    return DEFAULT_ENTITY if name is None else sanitize(name)


def from_path(part: str) -> str | None:
    """The reverse of `in_path`."""
    return None if part == DEFAULT_ENTITY else desanitize(part)


def parse_entity(named: Sequence[tuple[str, str | None]]) -> Entity:
    """The entity of a request. If a kind of name occurs twice, the last one counts."""
    # The order of the checks is Kafka's: a request with several mistakes gets the same message.
    if not named:
        raise _refused("Invalid empty client quota entity")
    names = dict(named)
    unknown = [kind for kind in names if kind not in FOLDERS]
    if unknown:
        raise _refused(f"Unhandled client quota entity type: {unknown[0]}")
    for kind, name in names.items():
        if name == "":
            raise _refused(f"Empty {kind} not supported")
    if IP in names and len(names) > 1:
        raise _refused("Invalid quota entity combination, IP entity should not be used with user/client ID entity.")
    return Entity(names.get(USER, ""), names.get(CLIENT_ID, ""), names.get(IP, ""))


class RateChange(NamedTuple):
    """One rate to set, or with None to remove."""

    name: str
    rate: float | None


def change_rates(texts: Mapping[str, str], entity: Entity, changes: Sequence[RateChange]) -> dict[str, str]:
    """The texts of an entity after these changes, in order."""
    changed = dict(texts)
    for change in changes:
        # Any name may be removed, also an unknown one, so this precedes the check of the name, as
        # in Kafka.
        if change.rate is None:
            changed.pop(change.name, None)
        elif change.name in entity.rates:
            changed[change.name] = _text(change.name, change.rate)
        # Kafka knows these names as properties of a user, and fails on their type, with an IllegalStateException.
        elif entity.user != "" and change.name in SCRAM:
            raise QuotaRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        else:
            raise _refused(f"Invalid configuration key {change.name}")
    return changed


def _text(name: str, rate: float) -> str:
    if name in DECIMAL_RATES:
        return show_number(float(rate))
    kind, bound = ("INT", 1 << 31) if name in INT_RATES else ("LONG", 1 << 63)

    # In Java a comparison with NaN is false, so Kafka's check passes, and the cast of NaN to a long is 0.
    if math.isnan(rate):
        return "0"
    # A cast ends at the bounds of its type. The double next to the highest long is 2^63, which therefore passes.
    whole = 0 if math.isinf(rate) else max(-bound, min(math.trunc(rate + PRECISION), bound - 1))
    if abs(whole - rate) > PRECISION:
        raise _refused(f"Configuration {name} must be a {kind} value")
    return str(whole)


def read_rates(texts: Mapping[str, str]) -> dict[str, float]:
    """The rates among the texts of an entity."""
    return {name: float(text) for name, text in texts.items() if name not in SCRAM}


# -- filters


class Component(NamedTuple):
    """One component of a filter."""

    kind: str
    match: str | None  # this name; None: the default
    any: bool = False  # any name, the default included; `match` does not count then

    def fits(self, name: str | None) -> bool:
        return self.any or name == self.match


class Filter(NamedTuple):
    """A filter of entities. A strict filter matches only entities without further kinds of names."""

    components: tuple[Component, ...]
    strict: bool

    @property
    def kinds(self) -> set[str]:
        return {component.kind for component in self.components}

    def fits(self, entity: Entity) -> bool:
        """Whether the filter matches this entity."""
        names = entity.names
        if self.strict and names.keys() != self.kinds:
            return False
        return all(each.kind in names and each.fits(names[each.kind]) for each in self.components)


EXACT, DEFAULT, ANY = 0, 1, 2


def parse_filter(components: Sequence[tuple[str, int, str | None]], *, strict: bool) -> Filter:
    """The filter of a request, whose components are (kind, how to match, name to match)."""
    # This pass over all components comes first: Kafka throws for these while it converts the
    # request, before it checks the kinds.
    if any(how not in (EXACT, DEFAULT, ANY) or (how == EXACT and match is None) for _, how, match in components):
        raise QuotaRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    parsed: dict[str, Component] = {}
    for kind, how, match in components:
        if kind == "":
            raise _refused("Unexpected empty filter component entity type")
        if kind not in FOLDERS:
            raise QuotaRefused(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in parsed:
            # The message is Kafka's, which does not use the kind's own name here.
            called = "client" if kind == CLIENT_ID else kind
            raise _refused(f"Duplicate {called} filter component entity type")
        parsed[kind] = Component(kind, match if how == EXACT else None, any=how == ANY)

    if IP in parsed and len(parsed) > 1:
        raise _refused(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component."
        )

    return Filter(tuple(parsed.values()), strict)


def _refused(message: str) -> QuotaRefused:
    return QuotaRefused(ErrorCode.INVALID_REQUEST, message)
