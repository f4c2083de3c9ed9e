"""A client's properties, under the names of Apache Kafka's Java client: addresses, TLS and login (edge).

Those of a file that `--command-config` of Kafka's tools takes have their effect here, too. Properties that tune a
client in other ways are left aside: such files are shared with programs that need them.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.cluster import PLAIN_ACCESS, Access
from barnabas.client.errors import ClientError
from barnabas.world.net import Stream
from barnabas.world.world import World

if TYPE_CHECKING:
    import ssl

    from barnabas.client.login import OwnLogin

DEFAULT_PORT = 9092
PORT_MAX = 65535
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NO_HOST_NAME_CHECK = ""  # of ssl.endpoint.identification.algorithm


class SettingsError(ClientError):
    """A property that cannot be used; the text names it."""


def bootstrap_of(text: str) -> Sequence[tuple[str, int]]:
    """The addresses of `bootstrap.servers`: host:port, comma separated; without a port it is 9092. SettingsError."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = re.fullmatch(r"(?:[A-Z_]+://)?(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]/]+))(?::([0-9]{1,5}))?", part)
        if match is None or int(match[3] or 0) > PORT_MAX:
            raise SettingsError(f"bootstrap servers: {part!r} is no host:port")
        found.append((match[1] or match[2], int(match[3] or DEFAULT_PORT)))
    if not found:
        raise SettingsError("bootstrap servers: at least one host:port is needed")
    return found


class Security(NamedTuple):
    """What protects the connections."""

    protocol: str
    mechanism: str
    properties: Mapping[str, str]


def security_of(properties: Mapping[str, str]) -> Security:
    """The security of a client with these properties. SettingsError."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise SettingsError(f"security.protocol is {protocol!r}, and has to be one of {', '.join(PROTOCOLS)}")
    # The default is Kafka's, which is refused below with the mechanisms that there are.
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    return Security(protocol, mechanism, properties)


async def access_of(security: Security, world: World) -> Access:
    """How a client gets into the cluster. SettingsError."""
    if security.protocol == "PLAINTEXT":
        return PLAIN_ACCESS
    # The stores are read in a thread: a PKCS12 store takes a tenth of a second to decrypt.
    handshake = None
    if security.protocol in ("SSL", "SASL_SSL"):
        handshake = partial(_shake_hands, await world.in_thread(_tls_context, security.properties))
    login = _login_of(security, world) if security.protocol.startswith("SASL") else None
    return Access(handshake, login)


async def _shake_hands(context: "ssl.SSLContext", stream: Stream, host: str) -> Stream:
    from barnabas.world.tls import connect_tls

    return await connect_tls(stream, context, host)


def _tls_context(properties: Mapping[str, str]) -> "ssl.SSLContext":
    # The imports are here, because most clients need no TLS, and a command must begin quickly.
    from barnabas.security.tls.ciphers import choose
    from barnabas.security.tls.contexts import client_context, load_stores
    from barnabas.security.tls.stores import KeyStoreSettings, StoreError, TrustStoreSettings

    get = properties.get
    # The defaults are those of Kafka's client, so that a file for its tools means the same here.
    key_store = KeyStoreSettings(
        type=get("ssl.keystore.type", "JKS"),
        location=get("ssl.keystore.location"),
        password=get("ssl.keystore.password"),
        key_password=get("ssl.key.password"),
        key=get("ssl.keystore.key"),
        certificate_chain=get("ssl.keystore.certificate.chain"),
    )
    trust_store = TrustStoreSettings(
        type=get("ssl.truststore.type", "JKS"),
        location=get("ssl.truststore.location"),
        password=get("ssl.truststore.password"),
        certificates=get("ssl.truststore.certificates"),
    )
    enabled = _texts(get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"))
    checks_host_name = get("ssl.endpoint.identification.algorithm", "https") != NO_HOST_NAME_CHECK
    try:
        choice = choose(get("ssl.protocol", "TLSv1.3"), enabled, _texts(get("ssl.cipher.suites", "")))
        return client_context(load_stores(key_store, trust_store), choice, checks_host_name=checks_host_name)
    except (StoreError, ValueError) as error:
        raise SettingsError(str(error)) from error


def _login_of(security: Security, world: World) -> "OwnLogin":
    from barnabas.client.login import OwnLogin
    from barnabas.security.jaas import LOGIN_MODULES, JaasError, parse_jaas_config
    from barnabas.security.sasl.client import Credentials

    if security.mechanism not in LOGIN_MODULES:
        raise SettingsError(f"sasl.mechanism is {security.mechanism}, and has to be one of {', '.join(LOGIN_MODULES)}")
    text = security.properties.get("sasl.jaas.config")
    # A login without this property comes from Java's system properties, which do not exist here.
    if text is None:
        raise SettingsError("sasl.jaas.config is not set: it has the username and the password")
    try:
        module = parse_jaas_config(text, security.mechanism)
    except JaasError as error:
        raise SettingsError(f"sasl.jaas.config: {error}") from error
    return OwnLogin(world, Credentials(security.mechanism, module.options))


def _texts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
