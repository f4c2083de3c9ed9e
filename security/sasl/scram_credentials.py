"""The SCRAM credentials of all users (pure), as every broker keeps them for logins (reference security.md, S.12).

They are properties of users in the store: `replace` takes all of them at the start, and after a session with the store
was lost; `changed` takes one user's, named by a notification. A user whose credential goes keeps its open connections
until they log in again.
"""

import logging
from collections.abc import Mapping

from barnabas.controller.store.paths import DEFAULT_ENTITY, desanitize
from barnabas.security.sasl.scram import MECHANISMS, Mechanism, ScramCredential, parse_credential

logger = logging.getLogger(__name__)


class ScramCredentials:
    """(user, mechanism) -> credential."""

    def __init__(self) -> None:
        self._users: dict[str, dict[Mechanism, ScramCredential]] = {}

    def find(self, mechanism: Mechanism, user: str) -> ScramCredential | None:
        """The credential of a user, if it has one for this mechanism."""
        return self._users.get(user, {}).get(mechanism)

    def changed(self, name: str, texts: Mapping[str, str]) -> None:
        """The properties of users/<name> in the store are these now; none if the node is gone.

        `name` is as in the path. Entities that have no credentials are ignored: <default>, and a user's client ids.
        """
        if name == DEFAULT_ENTITY or "/" in name:
            return
        user = desanitize(name)
        credentials = {
            mechanism: credential
            for mechanism in MECHANISMS.values()
            if mechanism.name in texts and (credential := _parsed(user, texts[mechanism.name], mechanism)) is not None
        }
        if credentials:
            self._users[user] = credentials
        else:
            self._users.pop(user, None)

    def replace(self, users: Mapping[str, Mapping[str, str]]) -> None:
        """Name as in the path -> properties, of all users."""
        self._users.clear()
        for name, texts in users.items():
            self.changed(name, texts)


def _parsed(user: str, text: str, mechanism: Mechanism) -> ScramCredential | None:
    try:
        return parse_credential(text, mechanism)
    # Another program wrote this credential. Its user cannot log in; all others can.
    except ValueError as error:
        logger.error("the %s credential of user %r in the store is ignored: %s", mechanism.name, user, error)
        return None
