"""Access tokens for this broker's own logins, from an authorization server (pure): RFC 6749 4.4, KIP-768.

With `sasl.login.callback.handler.class=...OAuthBearerLoginCallbackHandler` and `sasl.oauthbearer.token.endpoint.url` a
broker asks that address for a token, with the JAAS options clientId, clientSecret and, if the server needs it, scope.
The token is used for all logins until most of its lifetime has passed.
"""

import base64
import json
from collections.abc import Mapping
from urllib.parse import quote_plus

from barnabas.security.sasl.exchange import LoginFailed
from barnabas.security.sasl.oauth import InvalidToken, parse_jwt, times_of

LIFETIME_SHARE = 0.8  # `sasl.login.refresh.window.factor`; Java refreshes in the background, we at the next login


class AccessTokens:
    """The requests for tokens, and the last one that was issued."""

    def __init__(self, options: Mapping[str, str], sub_claim: str = "sub") -> None:
        client_id = options.get("clientId", "")
        secret = options.get("clientSecret", "")
        if not client_id or not secret:
            raise LoginFailed("clientId and clientSecret of OAUTHBEARER are not both set in sasl.jaas.config")
        scope = options.get("scope", "")
        self.form = f"grant_type=client_credentials{f'&scope={quote_plus(scope)}' if scope else ''}".encode()
        self.headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(f'{client_id}:{secret}'.encode()).decode()}",
        }
        self._sub_claim = sub_claim
        self._token = ""
        self._used_until_ms = 0.0

    def current(self, now_ms: int) -> str | None:
        """The token to log in with; None if a new one is to be asked for."""
        return self._token if now_ms < self._used_until_ms else None

    def take(self, answer: bytes, now_ms: int) -> str:
        """The token of the server's answer. LoginFailed."""
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError):
            raise LoginFailed("the token endpoint does not answer with JSON") from None

        token = value.get("access_token") if isinstance(value, dict) else None
        if not isinstance(token, str):
            raise LoginFailed("the token endpoint answers without an access_token")

        # The other broker verifies the token. As in Java, a token that it would refuse in any case
        # is refused here already.
        try:
            claims = parse_jwt(token).claims
            expires_at_ms = times_of(claims)["exp"]
        except InvalidToken as invalid:
            raise LoginFailed(f"the token endpoint issues no JWT: {invalid}") from None

        if expires_at_ms is None or not isinstance(claims.get(self._sub_claim), str):
            raise LoginFailed(f"the token endpoint issues a token without exp or {self._sub_claim}")
        self._token = token
        self._used_until_ms = now_ms + LIFETIME_SHARE * (expires_at_ms - now_ms)
        return token
