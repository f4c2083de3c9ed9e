"""How a broker connects to ZooKeeper, and who may read the nodes that it creates (pure).

Reference security.md, S.21.
"""

from typing import NamedTuple

# These nodes, and those below them, hold credentials: with `zookeeper.set.acl` they are for their
# creators alone.
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
OPEN = "/consumers"  # old consumers create their nodes in it, without a login


class DigestLogin(NamedTuple):
    """A user of ZooKeeper, who logs in with DIGEST-MD5."""

    username: str
    password: str

    # The password is left out, because a traceback may show this value.
    def __repr__(self) -> str:
        return f"DigestLogin({self.username!r})"


class ZooKeeperAccess(NamedTuple):
    """The properties `zookeeper.ssl.*` and `zookeeper.set.acl`, and the login of the JAAS file's context `Client`."""

    tls: object | None = None  # an `ssl.SSLContext`, which this file does not import
    login: DigestLogin | None = None
    restricts: bool = False  # nodes that are created are for this user alone to change


PLAIN = ZooKeeperAccess()


def is_open(path: str) -> bool:
    """Whether everybody may change this node, although others are restricted."""
    # As in Kafka, only this path itself is open: a node below it may be changed by its creator.
    return path == OPEN


def is_sensitive(path: str) -> bool:
    """Whether this node is for its creator alone to read."""
    return path.startswith(SENSITIVE)
