"""Values that a properties file takes from elsewhere (edge): config providers, KIP-297 and KIP-421.

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    ssl.keystore.password=${file:/run/secrets/castle.properties:password}

Only the server's own properties are resolved, once, when it starts; in a request `${…}` is just text (CVE-2024-31141).
Where Kafka leaves a reference that leads nowhere as it is, this refuses it: a password would be that text.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import javaproperties

from barnabas.config.parse import ConfigError, Setting

PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider"
_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")  # provider, perhaps a path, and a key
FILE_BYTES_MAX = 1 << 20


class ProviderError(ValueError):
    """A value cannot be taken from its provider. No value is in the message."""


class Provider(NamedTuple):
    """A named provider: how it looks a key up, and what the properties allow it."""

    find: Callable[["Provider", str, str], str]
    allowed_paths: tuple[str, ...]  # none: every path is allowed
    allowed_names: re.Pattern[str]
    environment: Mapping[str, str]

    def check_path(self, path: str) -> None:
        """ProviderError unless the path is within one that is allowed."""
        allowed = self.allowed_paths
        # `..` is resolved before the comparison: otherwise a path could leave an allowed directory
        # by it (KIP-993).
        plain = os.path.normpath(path)
        if allowed and not any(os.path.commonpath((each, plain)) == each for each in allowed if os.path.isabs(plain)):
            raise ProviderError(f"the path {path} is not within allowed.paths")


def resolve(settings: Sequence[Setting], environment: Mapping[str, str]) -> list[Setting]:
    """The settings with every reference replaced, without those of the providers. Blocking: short.

    ConfigError has all problems and their places. The origin of a replaced setting names its references.
    """
    # The last one of several settings of a name applies.
    texts = {each.name: each.text for each in settings}
    origins = {each.name: each.origin for each in settings}
    if PROVIDERS not in texts:
        return list(settings)
    try:
        providers = _providers(texts, environment)
    except ProviderError as error:
        origin = origins.get(str(error).partition(":")[0], origins[PROVIDERS])
        raise ConfigError([f"{origin}: {error}"]) from None

    resolved = []
    problems = []
    for setting in settings:
        if setting.name == PROVIDERS or setting.name.startswith(f"{PROVIDERS}."):
            continue
        try:
            resolved.append(_resolved(setting, providers))
        except ProviderError as error:
            problems.append(setting.problem(f"{setting.name}: {error}"))

    if problems:
        raise ConfigError(problems)
    return resolved


def _resolved(setting: Setting, providers: Mapping[str, Provider]) -> Setting:
    references = [each[0] for each in _REFERENCE.finditer(setting.text) if each[1] in providers]
    if not references:
        return setting
    return Setting(setting.name, _replaced(setting.text, providers), f"{setting.origin} {' '.join(references)}")


def _replaced(text: str, providers: Mapping[str, Provider]) -> str:
    def found(reference: re.Match[str]) -> str:
        provider = providers.get(reference[1])
        # As in Kafka, a `${…}` that names no provider is plain text.
        if provider is None:
            return reference[0]
        try:
            return provider.find(provider, reference[2] or "", reference[3])
        except OSError as error:
            raise ProviderError(f"{reference[0]}: {error.strerror}") from error
        except ProviderError as error:
            raise ProviderError(f"{reference[0]}: {error}") from error

    # There is one pass, so a `${…}` in a value that a provider has returned stays text.
    return _REFERENCE.sub(found, text) if "${" in text else text


def _providers(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Provider]:
    providers = {}
    for name in filter(None, (part.strip() for part in texts[PROVIDERS].split(","))):
        prefix = f"{PROVIDERS}.{name}."
        kind = texts.get(f"{prefix}class", "").strip()
        if kind not in CLASSES:
            raise ProviderError(f"{prefix}class: {kind or 'nothing'} is not served: {', '.join(CLASSES)} are")
        paths = filter(None, (part.strip() for part in texts.get(f"{prefix}param.allowed.paths", "").split(",")))
        pattern = texts.get(f"{prefix}param.allowlist.pattern", ".*")
        try:
            allowed_names = re.compile(pattern, re.ASCII)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise ProviderError(f"{prefix}param.allowlist.pattern: {error}") from error
        providers[name] = Provider(CLASSES[kind], _allowed(paths, prefix), allowed_names, environment)
    return providers


def _allowed(paths: "filter[str]", prefix: str) -> tuple[str, ...]:
    allowed = tuple(paths)
    for path in allowed:
        if not os.path.isabs(path):
            raise ProviderError(f"{prefix}param.allowed.paths: Path {path} is not absolute")
        if not os.path.exists(path):
            raise ProviderError(f"{prefix}param.allowed.paths: Path {path} does not exist")
    return tuple(map(os.path.normpath, allowed))


def _from_file(provider: Provider, path: str, key: str) -> str:
    """A key of a properties file."""
    provider.check_path(path)
    try:
        values = javaproperties.loads(_contents(path))
    except ValueError as error:
        raise ProviderError("it is no properties file") from error
    if key not in values:
        raise ProviderError("there is no such key")
    return str(values[key])


def _from_directory(provider: Provider, path: str, key: str) -> str:
    """A file of a directory, its name being the key."""
    provider.check_path(path)
    if key not in os.listdir(path):  # which also keeps `..` and slashes out
        raise ProviderError("there is no such file")
    return _contents(os.path.join(path, key))


def _from_environment(provider: Provider, path: str, key: str) -> str:
    if path:
        raise ProviderError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
    if key not in provider.environment or not provider.allowed_names.fullmatch(key):
        raise ProviderError("there is no such variable, or it is not allowed")
    return provider.environment[key]


def _contents(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ProviderError("it is no text") from error
    if len(data) > FILE_BYTES_MAX:
        raise ProviderError("the file is too large")
    return text


CLASSES: dict[str, Callable[[Provider, str, str], str]] = {
    f"{_PACKAGE}.FileConfigProvider": _from_file,
    f"{_PACKAGE}.DirectoryConfigProvider": _from_directory,
    f"{_PACKAGE}.EnvVarConfigProvider": _from_environment,
}
