"""Passwords among a broker's properties in the metadata store: encoded when written, decoded when read.

A broker keeps them as Apache Kafka does, encoded with `password.encoder.secret`, so that a broker of either kind reads
what the other wrote. Each value costs thousands of iterations, thus milliseconds in a thread; a value that is read
again costs none. Without the secret nothing is written, and what is stored is ignored with a line in the log.
Reference security.md, S.22.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.alter import is_stored_password
from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError
from barnabas.world.world import World

if TYPE_CHECKING:
    from barnabas.security.encoder import Encoding

SECRET, OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"
NO_SECRET = "Password encoder secret not configured"


class PasswordRefused(Exception):
    """A password cannot be encoded or decoded; the text says why, without the password."""


class Decoded(NamedTuple):
    """The properties of a broker as they are read."""

    texts: dict[str, str]  # without the passwords that cannot be decoded
    problems: dict[str, str]  # of those: name -> why


class StoredPasswords:
    """The passwords in the store, of one broker."""

    def __init__(self, config: BrokerConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._known: dict[str, str] = {}  # stored text -> password

    def check(self) -> None:
        """Raise ConfigError if the encoder cannot work as its properties say."""
        if self._config.password_encoder_secret is None:
            return
        # The import is here, because few brokers have such passwords, and start-up must be fast.
        from barnabas.security.encoder import encoding_problem

        problem = encoding_problem(self._encoding())
        if problem is not None:
            raise ConfigError([self._config.located(problem, problem.partition(":")[0])])

    async def decoded(self, stored: Mapping[str, str]) -> Decoded:
        """The properties with their passwords."""
        texts = dict(stored)
        problems = dict[str, str]()
        for name in filter(is_stored_password, stored):
            try:
                texts[name] = await self._decoded(stored[name])
            except PasswordRefused as refused:
                problems[name] = str(refused)
                del texts[name]
        return Decoded(texts, problems)

    async def encoded(self, texts: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """The properties as they are to be stored. PasswordRefused if that cannot be.

        A password that `stored` has already stays as it is there.
        """
        result = dict(texts)
        for name in filter(is_stored_password, texts):
            # To encode an unchanged password again would cost a PBKDF2, and its new salt would
            # change the stored text.
            before = stored.get(name)
            is_unchanged = before is not None and self._known.get(before) == texts[name]
            result[name] = before if before is not None and is_unchanged else await self._encoded(texts[name])
        # Passwords that are not among these properties are forgotten: none should stay in memory
        # after its last use.
        kept = {result[name] for name in filter(is_stored_password, result)}
        self._known = {text: password for text, password in self._known.items() if text in kept}
        return result

    async def encoded_again(self, stored: Mapping[str, str]) -> dict[str, str]:
        """The properties with all passwords of the old secret encoded with the new one. Raises ConfigError."""
        from barnabas.security.encoder import EncoderError, decode

        old_secret = self._config.password_encoder_old_secret
        result = dict(stored)
        if old_secret is None:
            return result
        for name in filter(is_stored_password, stored):
            try:
                password = await self._world.in_thread(decode, stored[name], old_secret)
            # This password is encoded with the new secret already: the old one may still be set at
            # a later start.
            except EncoderError:
                continue
            try:
                result[name] = await self._encoded(password)
            except PasswordRefused as refused:
                why = f"{OLD_SECRET} decodes {name} in the metadata store, which cannot be encoded: {refused}"
                raise ConfigError([self._config.located(why, OLD_SECRET)]) from None

        return result

    async def _decoded(self, text: str) -> str:
        from barnabas.security.encoder import EncoderError, decode

        if text in self._known:
            return self._known[text]
        secret = self._config.password_encoder_secret
        if secret is None:
            raise PasswordRefused(NO_SECRET)
        try:
            password = await self._world.in_thread(decode, text, secret)
        except EncoderError as error:
            raise PasswordRefused(str(error)) from None
        self._known[text] = password
        return password

    async def _encoded(self, password: str) -> str:
        from barnabas.security.encoder import EncoderError, encode

        secret = self._config.password_encoder_secret
        if secret is None:
            raise PasswordRefused(NO_SECRET)
        try:
            # A client chooses how many passwords there are, so they are encoded in the threads for
            # requests.
            text = await self._world.in_request_thread(
                encode, password, secret, self._encoding(), self._world.rng.randbytes
            )
        except EncoderError as error:
            raise PasswordRefused(str(error)) from None
        self._known[text] = password
        return text

    def _encoding(self) -> "Encoding":
        from barnabas.security.encoder import DEFAULT_KEY_FACTORY, Encoding

        config = self._config
        return Encoding(
            config.password_encoder_keyfactory_algorithm or DEFAULT_KEY_FACTORY,
            config.password_encoder_cipher_algorithm,
            config.password_encoder_key_length,
            config.password_encoder_iterations,
        )
