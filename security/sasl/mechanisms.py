"""The SASL of a listener (pure): from its settings to what authenticators, the refresh of keys and own logins use.

    settings = sasl_settings(security, shared, failure_delay_ms, signed)
    authenticator = Authenticator(settings, answers)         # of each connection

`signed` is None, unless OAUTHBEARER verifies signatures (`verifies_signatures`): then `jwks_cache` and
`signed_token_rules` make it, with a `JwksRefresher`. `own_credentials` is for connections to the inter-broker listener.
"""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from barnabas.config.listener_settings import VALIDATORS, Settings
from barnabas.security.listener_security import ListenerSecurity
from barnabas.security.sasl.authenticator import SaslMechanism, SaslSettings
from barnabas.security.sasl.client import SCRAM, Credentials
from barnabas.security.sasl.exchange import ServerExchange
from barnabas.security.sasl.jwks import JwksCache, SignedTokenRules
from barnabas.security.sasl.oauth import OAUTHBEARER, OAuthServer, UnsecuredValidator, Validator
from barnabas.security.sasl.plain import PLAIN, PlainServer
from barnabas.security.sasl.scram import Mechanism
from barnabas.security.sasl.scram_credentials import ScramCredentials
from barnabas.security.sasl.scram_exchange import NONCE_BITS, ScramServer
from barnabas.security.sasl.tokens import DelegationTokens

TOKEN_SALT_BITS = 256  # of the credentials that are made of delegation tokens
PLAIN_USER = "user_"  # the beginning of an option that names a user of PLAIN


class Shared(NamedTuple):
    """What all listeners share: credentials that change while the broker runs, and randomness."""

    scram: ScramCredentials
    tokens: DelegationTokens
    rng: random.Random


def sasl_settings(
    security: ListenerSecurity, shared: Shared, failure_delay_ms: int, signed: Validator | None = None
) -> SaslSettings:
    """What the authenticators of a listener use. ValueError for options of OAUTHBEARER that make no sense."""
    settings = security.settings
    mechanisms = {
        name: SaslMechanism(
            _beginner(name, login.options, shared, signed),
            settings.by_mechanism[name].number("connections.max.reauth.ms"),
        )
        for name, login in security.logins.items()
    }
    return SaslSettings(mechanisms, failure_delay_ms, settings.number("sasl.server.max.receive.size"))


def own_credentials(security: ListenerSecurity, mechanism: str) -> Credentials:
    """This broker's login at other brokers, at their listener of the same name and by this mechanism."""
    return Credentials(mechanism, security.logins[mechanism].options)


def nonce(rng: random.Random) -> str:
    """A nonce of SCRAM: printable, without a comma, and not to be guessed."""
    return f"{rng.getrandbits(NONCE_BITS):x}"


# -- signed access tokens


def verifies_signatures(own: Settings) -> bool:
    """Whether OAUTHBEARER with these settings takes signed tokens only; else it takes unsecured ones only."""
    return own.text("sasl.server.callback.handler.class") in VALIDATORS


def signed_token_rules(own: Settings) -> SignedTokenRules:
    """What a signed token must say."""
    return SignedTokenRules(
        audiences=own.texts("sasl.oauthbearer.expected.audience"),
        issuer=own.text("sasl.oauthbearer.expected.issuer"),
        skew_ms=own.number("sasl.oauthbearer.clock.skew.seconds") * 1000,
        scope_claim=own.text("sasl.oauthbearer.scope.claim.name") or "scope",
        sub_claim=own.text("sasl.oauthbearer.sub.claim.name") or "sub",
    )


def jwks_cache(own: Settings) -> JwksCache:
    """The keys that verify signed tokens, none yet."""
    return JwksCache(
        own.number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        own.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        own.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )


def _beginner(
    name: str, options: Mapping[str, str], shared: Shared, signed: Validator | None
) -> Callable[[], ServerExchange]:
    if name == PLAIN:
        users = {
            option.removeprefix(PLAIN_USER): password
            for option, password in options.items()
            if option.startswith(PLAIN_USER)
        }
        return partial(PlainServer, users)
    if name == OAUTHBEARER:
        return partial(OAuthServer, signed or UnsecuredValidator(options))
    return partial(_scram, SCRAM[name], shared)


def _scram(mechanism: Mechanism, shared: Shared) -> ServerExchange:
    salt = shared.rng.getrandbits(TOKEN_SALT_BITS).to_bytes(TOKEN_SALT_BITS // 8, "big")
    find = partial(shared.scram.find, mechanism)
    find_token = partial(shared.tokens.login, mechanism)
    return ScramServer(mechanism, find, find_token, nonce(shared.rng), salt)
