"""The levels of this process' loggers, under the names that Kafka has for levels (KIP-412).

Levels are changed for the running process alone and are forgotten when it ends, as in Kafka. A logger without a level
of its own has that of the nearest one above it. Python has no TRACE: it stands for whatever is below DEBUG.
"""

import logging
from collections.abc import Mapping, Sequence

from barnabas.config.alter import Change, ConfigRefused, Operation
from barnabas.wire.errors import ErrorCode

ROOT = "root"
LEVELS: Mapping[str, int] = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
OURS = logging.getLogger("barnabas")  # the parent of all our loggers: one level for all of them


def levels() -> dict[str, str]:
    """Logger -> its effective level."""
    return {name: _level_name(logger) for name, logger in _loggers().items()}


def change_levels(changes: Sequence[Change], *, validate_only: bool) -> None:
    """Set or remove the levels of loggers: all of them or, with ConfigRefused, none."""
    for change in changes:
        _check(change)
    if validate_only:
        return
    loggers = _loggers()
    for change in changes:
        loggers[change.name].setLevel(
            logging.NOTSET if change.operation == Operation.DELETE else LEVELS[change.text or ""]
        )


def _check(change: Change) -> None:
    if change.operation in (Operation.APPEND, Operation.SUBTRACT):
        name = Operation(change.operation).name
        message = f"{name} operation is not allowed for the BROKER_LOGGER resource"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)

    if change.operation not in (Operation.SET, Operation.DELETE):
        raise ConfigRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    if change.name not in _loggers():
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == Operation.DELETE and change.name == ROOT:
        message = "Removing the log level of the root logger is not allowed"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
    if change.operation == Operation.SET and change.text not in LEVELS:
        message = (
            f"Cannot set the log level of {change.name} to {change.text} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, message)


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict
    return {ROOT: logging.root} | {
        name: logger for name, logger in sorted(known.items()) if isinstance(logger, logging.Logger)
    }


def _level_name(logger: logging.Logger) -> str:
    """The lowest of Kafka's levels that the logger emits."""
    effective = logger.getEffectiveLevel()
    return next((name for name, level in LEVELS.items() if effective <= level), "FATAL")
