"""This broker's login at another one (pure): the messages of a SASL login, between brokers (reference S.8, S.9).

The connection sends `begin()`, and gives each response to `take`, which returns the next request, work for a thread, or
`LoggedIn`. The login is one SaslHandshake of version 1, then SaslAuthenticate requests. Every failure is a
`LoginFailed`, whose text is for the log; the peer's own message is in it.

    mechanism            options of the JAAS entry of the listener and mechanism
    PLAIN, SCRAM-SHA-*   username, password; for SCRAM also tokenauth="true", for a delegation token
    OAUTHBEARER          unsecuredLogin...: `oauth.unsecured_claims`; or a token of `oauth_login.py`
"""

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.config.listener_settings import SERVED_MECHANISMS
from barnabas.security.sasl.exchange import ClientExchange, Compute, LoginFailed
from barnabas.security.sasl.oauth import OAUTHBEARER, OAuthClient, unsecured_claims, unsecured_token
from barnabas.security.sasl.plain import PLAIN, PlainClient
from barnabas.security.sasl.scram import MECHANISMS
from barnabas.security.sasl.scram_exchange import ScramClient
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_name

HANDSHAKE_VERSION = 1  # the only one with SaslAuthenticate; every broker since 1.0 has it
SCRAM = {mechanism.name: mechanism for mechanism in MECHANISMS.values()}
# A client logs in again when a share of the session's lifetime between these two has passed, as
# Java's does.
LIFETIME_SHARE_MIN, LIFETIME_SHARE_MAX = 0.85, 0.95


class LoggedIn(NamedTuple):
    """The connection serves ordinary requests, for this time; None: as long as it lasts."""

    session_lifetime_ms: int | None


class SaslLogin:
    """One login, or one re-authentication of a connection."""

    def __init__(self, mechanism: str, exchange: ClientExchange) -> None:
        self._mechanism = mechanism
        self._exchange = exchange
        self._is_accepted = False  # whether the peer has accepted the mechanism

    def begin(self) -> m.Message:
        """The first request."""
        return m.SaslHandshakeRequest(mechanism=self._mechanism)

    def take(self, response: m.Message) -> m.Message | Compute[m.Message] | LoggedIn:
        """What follows this response. LoginFailed."""
        if isinstance(response, m.SaslHandshakeResponse) and not self._is_accepted:
            return self._take_handshake(response)
        if isinstance(response, m.SaslAuthenticateResponse) and self._is_accepted:
            return self._take_token(response)
        raise LoginFailed(f"{type(response).__name__} is no answer to a login")

    def _take_handshake(self, response: m.SaslHandshakeResponse) -> m.Message:
        if response.error_code:
            raise LoginFailed(
                f"{self._mechanism} is answered with {error_name(response.error_code)}; the peer has"
                f" {', '.join(map(repr, response.mechanisms)) or 'none'}"
            )
        self._is_accepted = True
        return _request(self._exchange.begin())

    def _take_token(self, response: m.SaslAuthenticateResponse) -> m.Message | Compute[m.Message] | LoggedIn:
        if response.error_code:
            text = response.error_message or ErrorCode.SASL_AUTHENTICATION_FAILED.message
            raise LoginFailed(f"{error_name(response.error_code)}: {text!r:.300}")
        token = self._exchange.evaluate(bytes(response.auth_bytes))
        if isinstance(token, Compute):
            then = token.then
            return Compute(token.run, lambda result: _request(then(result)))
        if token is not None:
            return _request(token)
        lifetime_ms = response.session_lifetime_ms
        return LoggedIn(lifetime_ms if lifetime_ms > 0 else None)


def _request(token: bytes) -> m.Message:
    return m.SaslAuthenticateRequest(auth_bytes=token)


class Credentials(NamedTuple):
    """The mechanism of `sasl.mechanism.inter.broker.protocol`, and its JAAS options on the inter-broker listener."""

    mechanism: str
    options: Mapping[str, str]

    # The options hold a password, and a traceback may show this value.
    def __repr__(self) -> str:
        return f"Credentials({self.mechanism})"

    def login(self, nonce: Callable[[], str], now_ms: int, access_token: str | None = None) -> SaslLogin:
        """A new login; OAUTHBEARER makes an unsecured token if it is given none. LoginFailed for unfit options."""
        return SaslLogin(self.mechanism, self._exchange(nonce, now_ms, access_token))

    def _exchange(self, nonce: Callable[[], str], now_ms: int, access_token: str | None) -> ClientExchange:
        if self.mechanism == OAUTHBEARER:
            if access_token is None:
                access_token = unsecured_token(unsecured_claims(self.options, now_ms))
            return OAuthClient(access_token)
        username = self.options.get("username")
        password = self.options.get("password")
        if username is None or password is None:
            raise LoginFailed(f"username and password of {self.mechanism} are not both set in sasl.jaas.config")
        if self.mechanism == PLAIN:
            return PlainClient(username, password)
        if self.mechanism in SCRAM:
            is_token = self.options.get("tokenauth", "").lower() == "true"
            return ScramClient(SCRAM[self.mechanism], username, password, nonce(), is_token=is_token)
        raise LoginFailed(f"the mechanism {self.mechanism} is not served: only {', '.join(SERVED_MECHANISMS)}")


def log_in_again_after_ms(lifetime_ms: int, rng: random.Random) -> float:
    """When to log in again, in a session of this lifetime; not the same for all connections."""
    return lifetime_ms * rng.uniform(LIFETIME_SHARE_MIN, LIFETIME_SHARE_MAX)
