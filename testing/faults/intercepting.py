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
from barnabas.testing.faults.entries import Entry
from barnabas.testing.faults.faults import Choice, Faults
from barnabas.testing.faults.kinds import Occasion, Response, sessionless
from barnabas.testing.faults.matching import is_of_broker
from barnabas.testing.faults.requests import RequestLog
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode, ProtocolViolation
from barnabas.world.metadata import ClusterMetadata

logger = logging.getLogger(__name__)


class Intercepting:
    """The faults and the log of one broker; of its next life as well."""

    def __init__(self, faults: Faults | None = None, log: RequestLog | None = None) -> None:
        """Brokers of one cluster share both."""
        self.faults = Faults() if faults is None else faults
        self.log = RequestLog() if log is None else log
        self._broker: Broker | None = None
        self._before: ClusterMetadata | None = None  # the picture of the cluster before its last change
        self._wants_pictures = False
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def is_active(self) -> bool:
        """For the broker."""
        return self.log.is_on or self.faults.is_armed

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
        self._before = None
        self._token = token
        if self._wants_pictures:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(trio.lowlevel.spawn_system_task, self._keep_pictures)

    async def _keep_pictures(self) -> None:
        assert self._broker is not None
        metadata = self._broker.metadata
        now = metadata.copy()
        while True:
            await metadata.changed()
            self._before = now
            now = metadata.copy()

    async def intercept(self, call: Caller, request: m.Message, handle: Handle) -> m.Message | None:
        """For the broker."""
        # Requests of this package, such as those of `create_topic`, are no client's.
        if call.client_id == CLIENT_ID or self._broker is None:
            return await handle(request)
        entry: Entry | None = None
        choice: Choice | None = None
        try:
            if self.faults.is_armed:
                request_or_response = self._sessionless(call, request)
                if isinstance(request_or_response, m.FetchResponse):
                    self._end(self._begin(call, request, None), request_or_response)
                    return request_or_response
                request = request_or_response
                choice = self.faults.choose(call, request, self._broker.metadata.topic_name)
            entry = self._begin(call, request, choice)
            response = await (handle(request) if choice is None else self._hit(choice, call, request, handle, entry))
        except Dropped:
            self._end(entry, None, "dropped")
            raise
        except ProtocolViolation:
            self._end(entry, None, "refused")
            raise
        # A bug of this package, or of the function that a test has given: it ends this request.
        except Exception:
            logger.exception("%s v%d from client %r: %s failed", *_about(call), (choice and choice.fault) or "a fault")
            response = refused(call.api_key, request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._end(entry, response)
        return response

    def close(self) -> None:
        """The broker will not be started again."""
        self.faults.close()

    def _sessionless(self, call: Caller, request: m.Message) -> m.Message:
        if not isinstance(request, m.FetchRequest) or is_of_broker(call.api_key, request):
            return request
        return sessionless(request, call.version) if self.faults.names_fetched_rows else request

    def _begin(self, call: Caller, request: m.Message, choice: Choice | None) -> Entry | None:
        is_kept = self.log.is_on and not is_of_broker(call.api_key, request)
        if choice is None and not is_kept:
            return None
        assert self._broker is not None
        entry = self.log.begin(
            call,
            request,
            broker_id=self._broker.broker_id,
            time_ms=self._broker.world.now_ms(),
            is_kept=is_kept,
        )
        if choice is not None:
            entry.fault = str(choice.fault)
        return entry

    def _end(self, entry: Entry | None, response: m.Message | None, outcome: str = "") -> None:
        if entry is not None:
            self.log.end(entry, response, outcome)

    async def _hit(
        self, choice: Choice, call: Caller, request: m.Message, handle: Handle, entry: Entry | None
    ) -> Response:
        assert self._broker is not None
        assert entry is not None
        return await choice.fault.act(
            Occasion(
                call=call,
                request=request,
                match=choice.match,
                handle=handle,
                handle_stale=partial(self._handle_stale, call),
                topic_name=self._broker.metadata.topic_name,
                removed=choice.fault.removed,
                fire=partial(self.faults.fire, choice.fault, entry),
            )
        )

    async def _handle_stale(self, call: Caller, request: m.Message) -> Response:
        assert self._broker is not None
        assert isinstance(call, Call)
        picture = self._before or self._broker.metadata
        return await answer(replace(self._broker, metadata=picture), call, request)


def _about(call: Caller) -> tuple[str, int, str | None]:
    return APIS[call.api_key].name, call.version, call.client_id
