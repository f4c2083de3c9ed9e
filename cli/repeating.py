"""A cluster as commands ask it: it notes whether a request was sent again because no answer had come.

A request without an answer may have been carried out all the same. The second one is refused then: the topic is there
already, or is there no more. That is no failure of the command, whose aim is reached.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from barnabas.client.cluster import Access, Cluster
from barnabas.client.errors import Refused, Unreachable
from barnabas.storage.disk import InThread
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.net import Net

# The metadata and the coordinator are asked for between two attempts, and these requests may be lost as well.
LOST_MAX = 16


class RepeatingCluster(Cluster):
    """`is_repeated`: whether the request that was answered last had been sent before, and its answer was lost."""

    def __init__(
        self,
        net: Net,
        bootstrap: Sequence[tuple[str, int]],
        access: Access,
        *,
        timeout_seconds: float,
        in_thread: InThread,
    ) -> None:
        super().__init__(net, bootstrap, access, timeout_seconds=timeout_seconds, in_thread=in_thread)
        self.is_repeated = False
        # A bound, because a command that follows a topic on a bad network loses requests for as long as it runs.
        self._lost: deque[m.Message] = deque(maxlen=LOST_MAX)

    async def ask_broker(
        self, broker_id: int, request: m.Message, version_min: int = 0, *, seconds: float | None = None
    ) -> m.Message:
        try:
            response = await super().ask_broker(broker_id, request, version_min, seconds=seconds)
        except Unreachable as error:
            # A batch that is written twice is in the log once, and its records would stay in memory here.
            is_left_out = isinstance(request, m.ProduceRequest) or self._is_lost(request)
            if not is_left_out and not _is_unsent(error):
                self._lost.append(request)
            raise
        self.is_repeated = self._is_lost(request)
        return response

    def _is_lost(self, request: m.Message) -> bool:
        # Messages are equal if their fields are, but two of them are two requests.
        return any(request is each for each in self._lost)


def _is_unsent(error: Unreachable) -> bool:
    """Whether nothing listened at the address."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConnectionRefusedError):
        cause = cause.__cause__
    return cause is not None


@contextmanager
def done_before(cluster: RepeatingCluster, code: ErrorCode) -> Iterator[None]:
    """A repeated request that is refused with this code is no failure: the first one has done what it asks for."""
    try:
        yield
    except Refused as refused:
        if refused.code != code or not cluster.is_repeated:
            raise
