"""Planted bugs of logins and ACLs (`bugs.py`), which the histories of the kind `secured` must find.

open_door          take any password of PLAIN
any_rights         allow everything to everybody
lost_acls          write ACLs without looking whether another broker has changed them
unannounced_acls   change ACLs and tell no other broker
forgotten_acls     do not read the ACLs again after the session with the metadata store was lost
forgotten_credentials
                   do not follow changes of credentials
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.controller.store.store import ANY_VERSION, Create, Delete, SetData
from barnabas.security import secured
from barnabas.security.acls import authorization
from barnabas.security.acls.acls import encode_entries
from barnabas.security.acls.authorizer import Authorizer
from barnabas.security.sasl import plain

if TYPE_CHECKING:
    from barnabas.controller.store.store import MetadataStore, Op, Stat
    from barnabas.security.acls.acls import ResourcePattern
    from barnabas.security.acls.authorization import Authorization, Entries

Replacement = tuple[object, str, object]


def _open_door() -> list[Replacement]:
    return [(plain.PlainServer, "_is_right", lambda self, username, password: True)]


def _any_rights() -> list[Replacement]:
    return [(Authorizer, "authorize", lambda self, *question: True)]


def _lost_acls() -> list[Replacement]:
    def write_of(path: str, entries: "Entries", stat: "Stat | None") -> "Op":
        if stat is None:
            return Create(path, encode_entries(entries))
        return SetData(path, encode_entries(entries), ANY_VERSION) if entries else Delete(path, ANY_VERSION)

    return [(authorization, "_write_of", write_of)]


def _unannounced_acls() -> list[Replacement]:
    async def announced(self: "Authorization", path: str) -> "ResourcePattern | None":
        return None

    return [(authorization.Authorization, "_announced", announced)]


def _forgotten_acls() -> list[Replacement]:
    right = authorization.Authorization._load

    async def load(self: "Authorization") -> None:
        if not self.authorizer.acls.patterns():
            await right(self)

    return [(authorization.Authorization, "_load", load)]


def _forgotten_credentials() -> list[Replacement]:
    async def user_changed(self: secured.SecuredListeners, store: "MetadataStore", name: str) -> None:
        pass

    return [(secured.SecuredListeners, "user_changed", user_changed)]


SECURED_BUGS: Mapping[str, Callable[[], list[Replacement]]] = {
    "open_door": _open_door,
    "any_rights": _any_rights,
    "lost_acls": _lost_acls,
    "unannounced_acls": _unannounced_acls,
    "forgotten_acls": _forgotten_acls,
    "forgotten_credentials": _forgotten_credentials,
}
