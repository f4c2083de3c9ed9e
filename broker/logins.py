"""The parts of a broker with TLS, SASL or delegation tokens, made when its configuration asks for them.

Few brokers have them, and start-up must be fast: the functions import what they need.
"""

from typing import TYPE_CHECKING

from barnabas.broker.call import Broker
from barnabas.config.live import BrokerConfig
from barnabas.controller.store.store import MetadataStore
from barnabas.controller.store.zkaccess import PLAIN, ZooKeeperAccess
from barnabas.storage.disk import InThread
from barnabas.world.world import World

if TYPE_CHECKING:
    from barnabas.broker.cluster.token_store import TokenStore
    from barnabas.security.secured import SecuredListeners


async def secured_listeners(config: BrokerConfig, world: World) -> "SecuredListeners | None":
    """The listeners with TLS or SASL; None if every listener is of PLAINTEXT. Raises ConfigError."""
    if all(endpoint.protocol == "PLAINTEXT" for endpoint in config.listener_endpoints):
        return None
    from barnabas.security.secured import SecuredListeners

    secured = SecuredListeners(config, world)
    await secured.open()
    return secured


async def zookeeper_access(config: BrokerConfig, in_thread: InThread) -> ZooKeeperAccess:
    """How this broker connects to ZooKeeper. Raises ConfigError."""
    if config.zookeeper_connect is None:
        return PLAIN
    from barnabas.security.jaas_file import context_for_zookeeper

    context = await in_thread(context_for_zookeeper)
    if not (context.modules or config.zookeeper_ssl_client_enable or config.zookeeper_set_acl):
        return PLAIN
    from barnabas.security.zookeeper import read_access

    return await in_thread(read_access, config, context)


def allow_logins(broker: Broker) -> None:
    """Let clients log in at the listeners with SASL, and this broker at those of other brokers. Raises ConfigError."""
    secured = broker.secured
    if secured is None:
        return
    from barnabas.broker.peers.login import own_handshakes, own_logins

    secured.allow_logins(broker.tokens().known)
    broker.dynamic_config.secured = secured
    broker.peers.logins = own_logins(broker.world, broker.config, secured)
    broker.peers.handshakes = own_handshakes(secured)


def token_secret(config: BrokerConfig) -> str | None:
    """The secret that makes delegation tokens; None if there are none."""
    return config.delegation_token_secret_key or config.delegation_token_master_key


def token_store(store: MetadataStore, config: BrokerConfig, world: World) -> "TokenStore":
    """The delegation tokens of the cluster; empty without a secret."""
    from barnabas.broker.cluster.token_store import TokenStore
    from barnabas.security.sasl.tokens import DelegationTokens, TokenRules

    secret = token_secret(config)
    rules = TokenRules(
        secret,
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
        config.delegation_token_owner_max_bytes,
    )
    known = DelegationTokens(rules)
    return TokenStore(
        store, known, world.in_thread, world.now_ms, lambda: config.delegation_token_expiry_check_interval_ms
    )
