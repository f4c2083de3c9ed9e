"""Who asks for the page: a login by HTTP Basic over the credentials of Kafka's listeners.

The page shows what Kafka's port would show to the same caller. So it asks for a login if a listener does: the password
is checked by the exchange of that listener, PLAIN or SCRAM, whose client's side runs here too. If a listener lets
callers in without a login, the page does, and its caller is User:ANONYMOUS. If there are only listeners whose login a
browser cannot do (certificates, tokens), the page is off.

A failed login is answered after `connection.failed.authentication.delay.ms`, as on Kafka's port.
"""

import base64
import binascii
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import trio

from barnabas.broker.call import ANONYMOUS, Broker
from barnabas.console.exchange import Answer, HttpRequest, error_answer
from barnabas.security.sasl.authenticator import SaslSettings
from barnabas.security.sasl.exchange import Challenge, ClientExchange, Complete, Compute, LoginFailed, ServerExchange
from barnabas.security.sasl.mechanisms import nonce
from barnabas.security.sasl.plain import PLAIN, PlainClient
from barnabas.security.sasl.scram import MECHANISMS
from barnabas.security.sasl.scram_exchange import ScramClient

logger = logging.getLogger(__name__)

CHALLENGE = ("www-authenticate", 'Basic realm="barnabas", charset="UTF-8"')
REQUIRED = "required"  # of ssl.client.auth: without a certificate no connection is accepted
SCRAM = {mechanism.name: mechanism for mechanism in MECHANISMS.values()}
STEPS_MAX = 4  # tokens of a client; SCRAM takes three


class Credentials(NamedTuple):
    """What a person has typed."""

    username: str
    password: str

    # A traceback may show this object, and must not show the password.
    def __repr__(self) -> str:
        return f"Credentials({self.username!r})"


async def admit(broker: Broker, request: HttpRequest) -> str | Answer:
    """The principal of the caller; an answer if it may not ask: 401 or 403."""
    logins = list(logins_of(broker))
    if not logins:
        if lets_anonymous_in(broker):
            return ANONYMOUS
        return error_answer(403, "no listener has a login that a browser can do: PLAIN or SCRAM; the page is off")

    credentials = credentials_of(request)
    if credentials is None:
        return error_answer(401, "a name and a password are needed", [CHALLENGE])

    # A user of any listener may log in: the principal is the same, and the authorizer decides what it may do.
    for _, settings in logins:
        for server, client in exchanges(broker, settings, credentials):
            principal = await _principal(broker, server, client)
            if principal is not None:
                return principal

    # To guess passwords is as slow here as on Kafka's port, and the guesses count as failed logins, too.
    listener, settings = logins[0]
    broker.tally.listeners[listener].failed_logins += 1
    await trio.sleep(settings.failure_delay_ms / 1000)
    logger.info("a login to the page failed from %s", request.peer_address)
    return error_answer(401, "the name or the password is wrong", [CHALLENGE])


def logins_of(broker: Broker) -> Iterator[tuple[str, SaslSettings]]:
    """The logins of all listeners that a browser can do, with the listeners' names."""
    if broker.secured is None:
        return
    # Every broker has the same users, but a listener may have users of its own (PLAIN).
    for endpoint in broker.config.listener_endpoints:
        listener = broker.secured.get(endpoint.listener)
        sasl = None if listener is None else listener.sasl
        if sasl is not None and any(name == PLAIN or name in SCRAM for name in sasl.mechanisms):
            yield endpoint.listener, sasl


def lets_anonymous_in(broker: Broker) -> bool:
    """Whether a listener serves callers without a login."""
    for endpoint in broker.config.listener_endpoints:
        listener = None if broker.secured is None else broker.secured.get(endpoint.listener)

        # A listener of PLAINTEXT is in no table of secured ones.
        if listener is None:
            return True
        settings = listener.security.settings
        if not settings.uses_sasl and settings.client_auth != REQUIRED:
            return True
    return False


def credentials_of(request: HttpRequest) -> Credentials | None:
    """What the Authorization header says; None if it is missing, or no Basic one."""
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None

    # A name has no colon, a password may (RFC 7617).
    username, colon, password = text.partition(":")
    return Credentials(username, password) if colon and username and password else None


def exchanges(
    broker: Broker, settings: SaslSettings, credentials: Credentials
) -> Iterator[tuple[ServerExchange, ClientExchange]]:
    """Both sides of each login that these credentials may be for."""
    clients: dict[str, Callable[[], ClientExchange]] = {PLAIN: partial(PlainClient, *credentials)}
    for name, mechanism in SCRAM.items():
        clients[name] = partial(ScramClient, mechanism, *credentials, nonce(broker.world.rng))
    for name, mechanism_settings in settings.mechanisms.items():
        if name in clients:
            yield mechanism_settings.begin(), clients[name]()


async def _principal(broker: Broker, server: ServerExchange, client: ClientExchange) -> str | None:
    """Let both sides talk; None if the login fails."""
    # SCRAM's client side computes thousands of hashes for any stranger who asks, so it runs in a request thread.
    in_thread = broker.world.in_request_thread
    token: bytes | None = client.begin()
    for _ in range(STEPS_MAX):
        if token is None:
            return None
        decided = server.evaluate(token, broker.world.now_ms())
        if isinstance(decided, Compute):
            decided = decided.then(await in_thread(decided.run))
        match decided:
            case Complete():
                return str(decided.principal)
            case Challenge():
                try:
                    answered = client.evaluate(decided.token)
                    if isinstance(answered, Compute):
                        answered = answered.then(await in_thread(answered.run))
                # The server's texts are our own, so this is a password that SCRAM cannot carry.
                except LoginFailed:
                    return None
                token = answered
            case _:
                return None
    return None
