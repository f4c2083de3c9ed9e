"""The access to ZooKeeper that the configuration describes (edge): TLS, a login, ACLs of new nodes.

zookeeper.ssl.*       stores as those of listeners, but PKCS12, JKS and PEM by the end of the file's name
KAFKA_OPTS            the JAAS file, whose context `Client` has the user for DIGEST-MD5; -Dzookeeper.sasl.clientconfig=
                      names another context, and -Dzookeeper.sasl.client=false beside a context is refused
zookeeper.set.acl     needs one of the two, a user or a certificate: without, the creator of a node is unknown
"""

from typing import TYPE_CHECKING

from barnabas.config.parse import ConfigError
from barnabas.controller.store.zkaccess import DigestLogin, ZooKeeperAccess
from barnabas.security.jaas import ZooKeeperContext
from barnabas.security.tls.ciphers import choose
from barnabas.security.tls.contexts import client_context, load_stores
from barnabas.security.tls.stores import KeyStoreSettings, StoreError, TrustStoreSettings

if TYPE_CHECKING:
    import ssl

    from barnabas.config.live import BrokerConfig

PREFIX = "zookeeper.ssl."
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
TYPES = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".pem": "PEM"}


def read_access(config: "BrokerConfig", context: ZooKeeperContext) -> ZooKeeperAccess:
    """The access to ZooKeeper; `context` is that of the login, in the JAAS file.

    Blocking: short. Raises ConfigError, which names the property.
    """
    login = _login_of(context)
    tls = None
    has_certificate = False
    if config.zookeeper_ssl_client_enable:
        try:
            tls, has_certificate = _tls_of(config)
        except (StoreError, ValueError) as error:
            raise ConfigError([str(error)]) from None

    if config.zookeeper_set_acl and login is None and not has_certificate:
        why = (
            f"zookeeper.set.acl is true, and this broker neither logs in to ZooKeeper (the context {context.name} of"
            " the JAAS file in KAFKA_OPTS) nor shows it a certificate (zookeeper.ssl.keystore.location)"
        )
        raise ConfigError([config.located(why, "zookeeper.set.acl")])

    return ZooKeeperAccess(tls, login, config.zookeeper_set_acl)


def _login_of(context: ZooKeeperContext) -> DigestLogin | None:
    if not context.modules:
        return None
    entry = context.modules[0]
    if entry.module != DIGEST:
        raise ConfigError(
            [f"KAFKA_OPTS: the context {context.name} has {entry.module}, which is not served: {DIGEST} is"]
        )
    username = entry.options.get("username")
    password = entry.options.get("password")
    if username is None or password is None:
        raise ConfigError([f"KAFKA_OPTS: the context {context.name} needs username and password"])
    return DigestLogin(username, password)


def _tls_of(config: "BrokerConfig") -> "tuple[ssl.SSLContext, bool]":
    """The context, and whether it has a certificate to show."""
    key_store = KeyStoreSettings(
        type=_type_of(config.zookeeper_ssl_keystore_type, config.zookeeper_ssl_keystore_location),
        location=config.zookeeper_ssl_keystore_location,
        password=config.zookeeper_ssl_keystore_password,
        prefix=PREFIX,
    )
    trust_store = TrustStoreSettings(
        type=_type_of(config.zookeeper_ssl_truststore_type, config.zookeeper_ssl_truststore_location),
        location=config.zookeeper_ssl_truststore_location,
        password=config.zookeeper_ssl_truststore_password,
        prefix=PREFIX,
    )
    protocol = config.zookeeper_ssl_protocol
    enabled = config.zookeeper_ssl_enabled_protocols or (protocol,)
    choice = choose(protocol, enabled, config.zookeeper_ssl_cipher_suites or (), PREFIX)
    algorithm = config.zookeeper_ssl_endpoint_identification_algorithm
    if algorithm.lower() not in ("https", ""):
        name = f"{PREFIX}endpoint.identification.algorithm"
        raise ValueError(f"{name}: {algorithm} is not served: HTTPS is, or an empty value for no check")
    stores = load_stores(key_store, trust_store)
    return client_context(stores, choice, checks_host_name=algorithm != "", prefix=PREFIX), stores.keys is not None


def _type_of(named: str | None, location: str | None) -> str:
    if named:
        return named.upper()
    return TYPES.get("." + (location or "").rpartition(".")[2].lower(), "JKS")
