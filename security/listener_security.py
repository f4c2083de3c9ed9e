"""What a listener's settings mean for TLS and SASL (pure): stores, versions, rules for names, logins.

Everything that can be found wrong without reading a store is found here, at the start and before a dynamic change, with
Kafka's texts where it has them. `contexts.py` makes TLS contexts of the result.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.config.listener_rules import Problem
from barnabas.config.listener_settings import (
    JAAS,
    OAUTHBEARER,
    VALIDATORS,
    ListenerSettings,
    mechanism_prefix,
    problems_of,
    warnings_of,
)
from barnabas.security.jaas import LOGIN_MODULES, JaasError, LoginModule, parse_jaas_config
from barnabas.security.principals import MappingRules, parse_mapping_rules
from barnabas.security.tls.ciphers import TlsChoice, choose
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.tls.stores import (
    KeyStoreSettings,
    TrustStoreSettings,
    key_store_problem,
    trust_store_problem,
)

SERVER_CONTEXT = "KafkaServer"  # of a JAAS file
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
MAPPING_RULES = "ssl.principal.mapping.rules"
KEY_STORE = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
)
TRUST_STORE = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
TLS_CHOICE = ("ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites")

Contexts = Mapping[str, Sequence[LoginModule]]  # of a JAAS file


class ListenerSecurity(NamedTuple):
    """What a listener demands of its clients, and shows them."""

    settings: ListenerSettings
    tls: TlsSettings | None
    logins: Mapping[str, LoginModule]  # for each enabled mechanism
    warnings: tuple[str, ...]


def security_of(
    settings: ListenerSettings, problems: list[Problem], *, contexts: Contexts, inter_broker: str | None = None
) -> ListenerSecurity | None:
    """The security of a listener; None, and the reasons in `problems`.

    `inter_broker` is the mechanism that brokers use at it among themselves.
    """
    found = problems_of(settings, inter_broker=inter_broker)
    tls = _tls_of(settings, found) if settings.uses_tls else None
    logins = {mechanism: _login_of(settings, mechanism, contexts, found) for mechanism in settings.by_mechanism}
    problems += found
    if found:
        return None
    warnings = (*warnings_of(settings), *(tls.choice.warnings if tls is not None else ()))
    return ListenerSecurity(
        settings, tls, {mechanism: login for mechanism, login in logins.items() if login is not None}, warnings
    )


def _tls_of(settings: ListenerSettings, problems: list[Problem]) -> TlsSettings | None:
    # All problems of the listener are collected before it is given up, so that an operator sees
    # them at once.
    before = len(problems)
    key_store = KeyStoreSettings(
        type=settings.text("ssl.keystore.type") or "",
        location=settings.text("ssl.keystore.location"),
        password=settings.password("ssl.keystore.password"),
        key_password=settings.password("ssl.key.password"),
        key=settings.text("ssl.keystore.key"),
        certificate_chain=settings.text("ssl.keystore.certificate.chain"),
        prefix=_prefix(settings, KEY_STORE),
    )
    trust_store = TrustStoreSettings(
        type=settings.text("ssl.truststore.type") or "",
        location=settings.text("ssl.truststore.location"),
        password=settings.password("ssl.truststore.password"),
        certificates=settings.text("ssl.truststore.certificates"),
        prefix=_prefix(settings, TRUST_STORE),
    )
    # Each store has one problem at most, so that one missing file does not make several messages.
    for names, problem in (
        (KEY_STORE, key_store_problem(key_store) or _missing_key(settings, key_store)),
        (TRUST_STORE, trust_store_problem(trust_store)),
    ):
        if problem is not None:
            problems.append(Problem(_set(settings, names), problem))

    choice = _choice(settings, problems)
    rules = _rules(settings, problems)
    algorithm = settings.text(IDENTIFICATION)
    if algorithm is not None and algorithm.lower() != "https":
        name = settings.name_of(IDENTIFICATION)
        problems.append(
            Problem((name,), f"{name}: {algorithm} is not served: https is, or an empty value for no check")
        )

    if choice is None or rules is None or len(problems) > before:
        return None
    return TlsSettings(
        key_store,
        trust_store,
        choice,
        settings.client_auth,
        rules,
        algorithm is not None,
        settings.is_true("ssl.allow.dn.changes"),
        settings.is_true("ssl.allow.san.changes"),
    )


def _missing_key(settings: ListenerSettings, key_store: KeyStoreSettings) -> str | None:
    # Kafka starts without a key, and then fails every handshake.
    if key_store.location is not None or key_store.key is not None:
        return None
    return (
        f"the listener {settings.listener} uses {settings.protocol}, and has no key: set"
        f" {settings.prefix}ssl.keystore.location, or {settings.prefix}ssl.keystore.key and"
        f" {settings.prefix}ssl.keystore.certificate.chain"
    )


def _choice(settings: ListenerSettings, problems: list[Problem]) -> TlsChoice | None:
    try:
        return choose(
            settings.text("ssl.protocol") or "",
            settings.texts("ssl.enabled.protocols"),
            settings.texts("ssl.cipher.suites"),
            _prefix(settings, TLS_CHOICE),
        )
    except ValueError as error:
        problems.append(Problem(_set(settings, TLS_CHOICE), str(error)))
        return None


def _rules(settings: ListenerSettings, problems: list[Problem]) -> MappingRules | None:
    try:
        return parse_mapping_rules(settings.text(MAPPING_RULES) or "")
    except ValueError as error:
        name = settings.name_of(MAPPING_RULES)
        problems.append(Problem((name,), f"{name}: {error}"))
        return None


def _login_of(
    settings: ListenerSettings, mechanism: str, contexts: Contexts, problems: list[Problem]
) -> LoginModule | None:
    own = settings.by_mechanism[mechanism]
    name = f"{mechanism_prefix(settings.listener, mechanism)}{JAAS}"
    text = own.text(JAAS)
    try:
        login = parse_jaas_config(text, mechanism) if text is not None else _from_file(settings, mechanism, contexts)
    except JaasError as error:
        problems.append(Problem((name,), f"{name}: {error}"))
        return None
    checks_tokens = mechanism == OAUTHBEARER and own.text("sasl.server.callback.handler.class") in VALIDATORS
    # Without a key set every token would have to be refused, or, as in CVE-2026-33557, none would be.
    if checks_tokens and own.text(JWKS_URL) is None:
        url = f"{mechanism_prefix(settings.listener, mechanism)}{JWKS_URL}"
        problems.append(Problem((url,), f"{url} is not set: without the keys of the provider no token can be verified"))
    return login


def _from_file(settings: ListenerSettings, mechanism: str, contexts: Contexts) -> LoginModule:
    # What is set for one listener wins over what is set for all.
    names = (f"{settings.listener.lower()}.{SERVER_CONTEXT}", SERVER_CONTEXT)
    entries = next((contexts[name] for name in names if name in contexts), ())
    for entry in entries:
        if entry.module == LOGIN_MODULES[mechanism]:
            return entry
    raise JaasError(
        f"Could not find a '{names[1]}' or '{names[0]}' entry in the JAAS configuration with the module"
        f" {LOGIN_MODULES[mechanism]}, and the property is not set"
    )


def _prefix(settings: ListenerSettings, names: Sequence[str]) -> str:
    """What the names of these properties begin with in messages."""
    is_own = any(settings.name_of(name) != name for name in names)
    return f"{settings.prefix}ssl." if is_own else "ssl."


def _set(settings: ListenerSettings, names: Sequence[str]) -> tuple[str, ...]:
    """The full names of those that are set: one of them is the cause of a problem."""
    return tuple(settings.names[name] for name in names if name in settings.names)
