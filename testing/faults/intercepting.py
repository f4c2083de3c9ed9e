"""What happens to each request while faults are set or the request log is used: both are joined here.

`Interceptor` (`interceptor.py`) makes it when a test first asks for one of them.
"""

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.interception import Caller, Dropped, Handle
from barnabas.broker.server.dispatch import answer, refused
from barnabas.testing.asking import CLIENT_ID
from barnabas.testing.faults.faults import Choice, Fault, Faults
from barnabas.testing.faults.kinds import Occasion, Response, sessionless
from barnabas.testing.faults.matching import is_of_broker
from barnabas.testing.faults.noted import Noted
from barnabas.testing.faults.requests import RequestLog
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode, ProtocolViolation
from barnabas.world.metadata import ClusterMetadata
from barnabas.world.net import ConnectionLost

logger = logging.getLogger(__name__)


class Intercepting:
    """The faults and the log of one broker; of its next life as well."""

    def __init__(self, faults: Faults | None = None, log: RequestLog | None = None) -> None:
        """Brokers of one cluster share both."""
        self.faults = Faults() if faults is None else faults
        self.log = RequestLog() if log is None else log
        self.is_logging = False  # whether the log is on; `Interceptor` keeps this up to date
        self.is_armed = False  # whether there are faults; the same
        self._broker: Broker | None = None
        self._before: ClusterMetadata | None = None  # the picture of the cluster before its last change
        self._wants_pictures = False
        self._keeping = trio.CancelScope()  # of the task that keeps them
        self._token: trio.lowlevel.TrioToken | None = None
        self.note = self.log.noting(-1, lambda: 0)

    def want_pictures(self) -> None:
        """From now on the metadata of before their last change are kept, for stale responses."""
        if self._wants_pictures:
            return
        self._wants_pictures = True
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(trio.lowlevel.spawn_system_task, self._keep_pictures)

    def attach(self, broker: Broker, token: trio.lowlevel.TrioToken) -> None:
        """A broker runs, or is about to, on the loop of this token."""
        self._broker = broker
        self.note = self.log.noting(broker.broker_id, broker.world.now_ms)
        self._before = None
        self._token = token
        if self._wants_pictures:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(trio.lowlevel.spawn_system_task, self._keep_pictures)

    async def _keep_pictures(self) -> None:
        assert self._broker is not None
        metadata = self._broker.metadata
        # What an earlier life of the broker had does not change any more, and one loop may see thousands of them.
        self._keeping.cancel()
        with trio.CancelScope() as self._keeping:
            now = metadata.copy()
            while True:
                await metadata.changed()
                self._before = now
                now = metadata.copy()

    def see(
        self, call: Caller, request: m.Message | None, frame: bytes | memoryview, body_start: int, size_bytes: int
    ) -> Noted | None:
        """For the broker."""
        # The requests of this package are no client's.
        is_hit = self.is_armed and call.client_id != CLIENT_ID and self.faults.may_hit(call)
        # Even without the log a request is noted that a fault may hit, because the fault remembers
        # it.
        return self.note(call, request, frame, body_start, size_bytes, is_hit) if is_hit or self.is_logging else None

    async def intercept(self, call: Caller, request: m.Message, handle: Handle) -> m.Message | None:
        """For the broker."""
        noted = call.seen
        if not isinstance(noted, Noted) or self._broker is None:
            return await handle(request)
        try:
            request_or_response = self._sessionless(call, request)
            if isinstance(request_or_response, m.FetchResponse):
                return request_or_response
            request = request_or_response
            choice = self.faults.choose(call, request, self._broker.metadata.topic_name)
            if choice is None:
                return await handle(request)
            return await carry_out(
                self.faults, choice.fault, self._occasion(choice, call, request, handle, noted), noted
            )
        except (Dropped, ProtocolViolation):
            raise
        # A bug of this package: it ends this request.
        except Exception:
            return _failed(call, request, "the choice of a fault")

    def close(self) -> None:
        """The broker will not be started again."""
        self.faults.close()

    def _sessionless(self, call: Caller, request: m.Message) -> m.Message:
        if not isinstance(request, m.FetchRequest):
            return request
        of_broker = is_of_broker(call.api_key, request)
        return sessionless(request, call.version) if self.faults.names_fetched_rows(of_broker=of_broker) else request

    def _occasion(self, choice: Choice, call: Caller, request: m.Message, handle: Handle, noted: Noted) -> Occasion:
        assert self._broker is not None
        return Occasion(
            call=call,
            request=request,
            match=choice.match,
            handle=handle,
            handle_stale=partial(self._handle_stale, call),
            topic_name=self._broker.metadata.topic_name,
            removed=choice.fault.removed,
            fire=partial(self.faults.fire, choice.fault, noted),
        )

    async def _handle_stale(self, call: Caller, request: m.Message) -> Response:
        assert self._broker is not None
        assert isinstance(call, Call)
        picture = self._before or self._broker.metadata
        return await answer(replace(self._broker, metadata=picture), call, request)


async def carry_out(faults: Faults, fault: Fault, on: Occasion, noted: Noted) -> Response:
    """What the fault makes of this request, in a broker or in front of another Kafka. Dropped, ProtocolViolation."""
    try:
        with faults.hitting(fault, noted):
            return await fault.act(on)
    except (Dropped, ProtocolViolation, ConnectionLost):
        raise
    # A bug of this package, or of the function that a test has given: it ends this request.
    except Exception:
        return _failed(on.call, on.request, str(fault))


def _failed(call: Caller, request: m.Message, what: str) -> Response:
    logger.exception("%s v%d from client %r: %s failed", *_about(call), what)
    return refused(call.api_key, request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)


def _about(call: Caller) -> tuple[str, int, str | None]:
    return APIS[call.api_key].name, call.version, call.client_id
