"""What `LocalBroker` raises."""

from barnabas.wire.errors import ErrorCode


class LocalBrokerError(Exception):
    """The broker could not be started, has ended, or refused what it was asked for; the message says why."""


class NotThere(LocalBrokerError):
    """There is no broker, topic, partition or group of the name that was given."""


class TopicRefused(LocalBrokerError):
    """The broker refused to create a topic; `code` is Kafka's code for the reason."""

    def __init__(self, name: str, code: int, message: str | None) -> None:
        self.code = ErrorCode(code)
        super().__init__(f"topic {name!r} cannot be created: {self.code.name}{f' ({message})' if message else ''}")


class FaultError(LocalBrokerError):
    """A fault makes no sense, or the broker that it is for is closed; the message says why."""


class FaultMissed(FaultError):
    """A fault never fired: the test has not tested what it says. The message has the requests that were seen."""
