"""The JAAS file that Java's options name, in the variable KAFKA_OPTS (edge)."""

import os

from barnabas.config.parse import ConfigError
from barnabas.security.jaas import (
    JaasError,
    LoginModule,
    ZooKeeperContext,
    jaas_file_in,
    parse_jaas_file,
    zookeeper_context,
)


def jaas_contexts() -> dict[str, tuple[LoginModule, ...]]:
    """The entries of each context; none without a file. Blocking: short. Raises ConfigError."""
    path = None
    try:
        path = jaas_file_in(_options())
        if path is None:
            return {}
        with open(path, encoding="utf-8") as file:
            return parse_jaas_file(file.read())
    except OSError as error:
        raise ConfigError([f"KAFKA_OPTS: {path}: {error.strerror}"]) from None
    except (JaasError, UnicodeDecodeError) as error:
        raise ConfigError([f"KAFKA_OPTS: {error}"]) from None


def context_for_zookeeper() -> ZooKeeperContext:
    """The context of the login to ZooKeeper. Blocking: short. Raises ConfigError."""
    contexts = jaas_contexts()
    try:
        return zookeeper_context(contexts, _options())
    except JaasError as error:
        raise ConfigError([f"KAFKA_OPTS: {error}"]) from None


def _options() -> str:
    return os.environ.get("KAFKA_OPTS", "")
