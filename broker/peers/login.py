"""How this broker logs in at other brokers, and begins TLS there: by the settings of each listener."""

from collections.abc import Awaitable, Callable
from functools import partial

from barnabas.client.login import OwnLogin
from barnabas.config.listener_settings import LOGIN_HANDLERS, Settings
from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError
from barnabas.security.sasl.client import Credentials
from barnabas.security.sasl.exchange import LoginFailed
from barnabas.security.sasl.mechanisms import own_credentials
from barnabas.security.sasl.oauth import OAUTHBEARER
from barnabas.security.sasl.oauth_login import AccessTokens
from barnabas.security.secured import SecuredListeners, fetcher
from barnabas.security.tls.contexts import ListenerTls
from barnabas.world.net import Stream
from barnabas.world.tls import connect_tls
from barnabas.world.world import World

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"


def own_logins(world: World, config: BrokerConfig, secured: SecuredListeners) -> dict[str, OwnLogin]:
    """How this broker logs in at other brokers: listener -> login. Raises ConfigError."""
    logins = {}
    mechanism = config.sasl_mechanism_inter_broker_protocol
    for name, listener in secured.of_brokers():
        if listener.sasl is None:
            continue
        credentials = own_credentials(listener.security, mechanism)
        own = listener.security.settings.by_mechanism[mechanism]
        fetches = mechanism == OAUTHBEARER and own.text("sasl.login.callback.handler.class") in LOGIN_HANDLERS
        try:
            logins[name] = _fetching(world, credentials, own) if fetches else OwnLogin(world, credentials)
        except LoginFailed as failure:
            raise ConfigError([f"listener {name}: {failure}"]) from None
    return logins


def own_handshakes(secured: SecuredListeners) -> dict[str, Callable[[Stream, str], Awaitable[Stream]]]:
    """How this broker begins TLS at other brokers: listener -> handshake."""
    return {
        name: partial(_shake_hands, listener.tls) for name, listener in secured.of_brokers() if listener.tls is not None
    }


def _fetching(world: World, credentials: Credentials, own: Settings) -> OwnLogin:
    """A login whose access tokens an authorization server issues. LoginFailed."""
    url = own.text(TOKEN_URL)
    if url is None:
        raise LoginFailed(f"{own.name_of(TOKEN_URL)} is not set")
    tokens = AccessTokens(credentials.options, own.text("sasl.oauthbearer.sub.claim.name") or "sub")
    fetch = fetcher(own)
    return OwnLogin(world, credentials, tokens, lambda asked: fetch.post(url, asked.form, asked.headers))


async def _shake_hands(tls: ListenerTls, stream: Stream, host: str) -> Stream:
    # A reload may have replaced the context since the last connection.
    assert tls.client is not None, "a listener of brokers"
    try:
        return await connect_tls(stream, tls.client, host)
    except BaseException:
        stream.close()
        raise
