"""`Interceptor`: the one `Interception` that a broker in a test is started with.

It is idle until a test asks for the faults or the request log, and imports their code only then: most tests need
neither. A request costs the broker two comparisons meanwhile.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.broker.call import Broker
from barnabas.broker.interception import Caller, Handle, Seen
from barnabas.wire.messages import Message

if TYPE_CHECKING:
    from barnabas.testing.faults.faults import Faults
    from barnabas.testing.faults.intercepting import Intercepting
    from barnabas.testing.faults.requests import RequestLog


class Interceptor:
    """What is between clients and one broker; in its next life as well."""

    def __init__(self, faults: "Faults | None" = None, log: "RequestLog | None" = None) -> None:
        """Brokers of one cluster share both."""
        self.is_active = False  # for the broker: these change when a fault or the log does
        self.armed_keys: frozenset[int] = frozenset()
        self._inner: Intercepting | None = None
        self._broker: tuple[Broker, trio.lowlevel.TrioToken] | None = None
        if faults is not None or log is not None:
            self._make(faults, log)

    @property
    def inner(self) -> "Intercepting":
        """What acts; made at the first call."""
        return self._make(None, None) if self._inner is None else self._inner

    @property
    def faults(self) -> "Faults":
        """What the broker does wrong to clients."""
        return self.inner.faults

    @property
    def log(self) -> "RequestLog":
        """What clients send."""
        return self.inner.log

    def want_pictures(self) -> None:
        """From now on the metadata of before their last change are kept, for stale responses."""
        self.inner.want_pictures()

    def built(self, broker: Broker) -> None:
        """A broker is about to run. Called on its loop."""
        self._broker = (broker, trio.lowlevel.current_trio_token())
        if self._inner is not None:
            self._inner.attach(*self._broker)
            self._note_change()

    # For the broker, while this is active.
    see: Callable[[Caller, Message | None, bytes | memoryview, int, int], Seen | None]

    async def intercept(self, call: Caller, request: Message, handle: Handle) -> Message | None:
        """For the broker."""
        return await self.inner.intercept(call, request, handle)

    def close(self) -> None:
        """The broker will not be started again."""
        if self._inner is not None:
            self._inner.close()

    def _make(self, faults: "Faults | None", log: "RequestLog | None") -> "Intercepting":
        from barnabas.testing.faults.intercepting import Intercepting

        made = Intercepting(faults, log)
        if self._broker is not None:
            made.attach(*self._broker)
        self._inner = made
        for each in (made.faults, made.log):
            each.on_change.append(self._note_change)
        self._note_change()
        return made

    def _note_change(self) -> None:
        # The broker reads two attributes for each request; a property would cost it several calls.
        faults, log = self.inner.faults, self.inner.log
        self.armed_keys = faults.armed_keys
        self.inner.is_logging = log.is_on
        self.inner.is_armed = bool(faults.armed_keys)
        self.is_active = self.inner.is_logging or self.inner.is_armed
        # `see` runs for each request, so it is the method itself: a wrapper would cost a call.
        self.see = self.inner.see if self.inner.is_armed else self.inner.note
