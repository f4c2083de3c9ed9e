"""SCRAM credentials of users, written into a metadata store without a running broker (edge): `barnabas store scram`.

Brokers that log in to each other by SCRAM need a credential before the first of them serves. The nodes are those that
Kafka's ConfigCommand writes: the user's configuration, and a change notification for brokers that run.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.broker.process.store_transfer import Place, open_store
from barnabas.controller.admin.entity_configs import USERS, change_entity, list_entities, read_entity
from barnabas.controller.store import paths
from barnabas.controller.store.store import Create, MetadataStore, NodeExists, with_ancestors
from barnabas.security.sasl.scram import (
    MECHANISMS,
    Alterations,
    Deletion,
    Upsertion,
    parse_credential,
    salted_password,
)
from barnabas.world.world import in_worker_thread

SALT_BYTES = 32
NUMBERS = {mechanism.name: number for number, mechanism in MECHANISMS.items()}


class Listed(NamedTuple):
    """One credential."""

    user: str
    mechanism: str
    iterations: int | None  # None if it is malformed, and nothing can log in with it


async def add(place: Place, user: str, mechanisms: Sequence[str], iterations: int, password: str) -> None:
    """Set the credentials of a user. Raises StoreError, StorageError."""
    upsertions = [await in_worker_thread(_upsertion, user, name, iterations, password) for name in mechanisms]
    async with open_store(place, to_fill=True) as store:
        await _make_parents(store)
        await change_entity(store, _entity(user), Alterations((), tuple(upsertions)).applied_to)


async def list_all(place: Place) -> list[Listed]:
    """The credentials of all users. Raises StoreError."""
    async with open_store(place, to_fill=False) as store:
        names = [name for name in await list_entities(store, USERS) if name != paths.DEFAULT_ENTITY]
        return [
            Listed(paths.desanitize(name), mechanism, _iterations(texts[mechanism], mechanism))
            for name in sorted(names)
            for texts in [await read_entity(store, f"{USERS}/{name}")]
            for mechanism in NUMBERS
            if mechanism in texts
        ]


async def remove(place: Place, user: str, mechanisms: Sequence[str]) -> list[str]:
    """Remove these credentials of a user, and return the mechanisms of those that were there. Raises StoreError."""
    async with open_store(place, to_fill=False) as store:
        texts = await read_entity(store, _entity(user))
        found = [name for name in mechanisms if name in texts]
        if found:
            deletions = tuple(Deletion(user, NUMBERS[name]) for name in found)
            await change_entity(store, _entity(user), Alterations(deletions, ()).applied_to)
        return found


def _upsertion(user: str, mechanism: str, iterations: int, password: str) -> Upsertion:
    number = NUMBERS[mechanism]
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(password.encode(), salt, iterations, MECHANISMS[number])
    return Upsertion(user, number, iterations, salt, salted)


def _iterations(text: str, mechanism: str) -> int | None:
    try:
        return parse_credential(text, MECHANISMS[NUMBERS[mechanism]]).iterations
    except ValueError:
        return None


def _entity(user: str) -> str:
    return f"{USERS}/{paths.sanitize(user)}"


async def _make_parents(store: MetadataStore) -> None:
    """The folder of change notifications, which no broker may have made yet."""
    for path in with_ancestors([paths.CONFIG_CHANGES]):
        with suppress(NodeExists):
            await store.multi([Create(path)])
