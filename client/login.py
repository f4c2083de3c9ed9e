"""The login of a client at a broker: sends the requests of `SaslLogin`.

For OAUTHBEARER with an authorization server `OwnLogin` gets an access token first, and uses it until most of its
lifetime has passed.
"""

import logging
from collections.abc import Awaitable, Callable

from barnabas.security.sasl.client import Credentials, LoggedIn, SaslLogin, log_in_again_after_ms
from barnabas.security.sasl.exchange import Compute, LoginFailed
from barnabas.security.sasl.mechanisms import nonce
from barnabas.security.sasl.oauth_login import AccessTokens
from barnabas.storage.disk import InThread
from barnabas.wire import messages as m
from barnabas.world.net import ConnectionLost
from barnabas.world.world import World

logger = logging.getLogger(__name__)

Ask = Callable[[m.Message], Awaitable[m.Message]]


class OwnLogin:
    """Logs a client in at brokers. `post` sends the form for an access token; it blocks, in a thread."""

    def __init__(
        self,
        world: World,
        credentials: Credentials,
        access_tokens: AccessTokens | None = None,
        post: Callable[[AccessTokens], bytes] | None = None,
    ) -> None:
        self._world = world
        self._credentials = credentials
        self._access_tokens = access_tokens
        self._post = post
        self._failures: dict[str, str] = {}  # peer -> why the last login failed

    async def log_in(self, ask: Ask, peer: str) -> float | None:
        """Log in, or again; after how many seconds to log in again. ConnectionLost, and what `ask` raises.

        `ask` sends a request on the connection and returns its response. `peer` is for the log.
        """
        try:
            after_seconds = await self._log_in(ask)
        except LoginFailed as failure:
            # The failure is logged once, not at each of the attempts that follow.
            if self._failures.get(peer) != str(failure):
                logger.warning("cannot log in at %s: %s", peer, failure, extra={"peer": peer})
            self._failures[peer] = str(failure)
            raise ConnectionLost(f"the login failed: {failure}") from None
        self._failures.pop(peer, None)
        return after_seconds

    async def _log_in(self, ask: Ask) -> float | None:
        rng = self._world.rng
        now_ms = self._world.now_ms()
        login = self._credentials.login(lambda: nonce(rng), now_ms, await self._access_token(now_ms))
        lifetime_ms = (await log_in(ask, login, self._world.in_thread)).session_lifetime_ms
        return None if lifetime_ms is None else log_in_again_after_ms(lifetime_ms, rng) / 1000

    async def _access_token(self, now_ms: int) -> str | None:
        tokens = self._access_tokens
        post = self._post
        if tokens is None or post is None:
            return None
        current = tokens.current(now_ms)
        if current is not None:
            return current
        try:
            answer = await self._world.in_thread(post, tokens)
        except (OSError, ValueError) as error:
            raise LoginFailed(f"no access token: {error}") from None
        return tokens.take(answer, now_ms)


async def log_in(ask: Ask, login: SaslLogin, in_thread: InThread) -> LoggedIn:
    """Log in, or again. `ask` sends a request on the connection and returns its response. LoginFailed."""
    step: m.Message | Compute[m.Message] | LoggedIn = login.begin()
    while not isinstance(step, LoggedIn):
        step = step.then(await in_thread(step.run)) if isinstance(step, Compute) else login.take(await ask(step))
    return step
