"""Asking a broker something: `ask(request, deadline_ms) -> response`.

The controller, producer-id allocation and later the fetchers speak to brokers through this one shape and never see a
socket. The request to oneself goes straight to dispatch, without bytes in between: a single node is a cluster of one,
with no second code path.
"""

from collections.abc import Callable

import trio

from barnabas.broker.call import ANONYMOUS, Broker, Call
from barnabas.broker.dispatch import answer
from barnabas.wire import messages as m
from barnabas.wire.apis import inter_broker_versions
from barnabas.wire.errors import PeerLost


class SelfPeer:
    """The broker as its own peer. `broker` is called at each request: the peer is made before the broker is whole."""

    def __init__(self, broker: Callable[[], Broker], listener: str) -> None:
        self._broker = broker
        self._listener = listener

    async def ask(self, request: m.Message, deadline_ms: float) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms`."""
        broker = self._broker()
        key = request.API_KEY
        if key is None:
            raise TypeError(f"{type(request).__name__} is not a request")
        call = Call(
            api_key=key,
            version=inter_broker_versions(broker.config.inter_broker_protocol_version)[key],
            client_id=str(broker.broker_id),
            principal=ANONYMOUS,
            client_address="localhost",
            listener=self._listener,
        )
        with trio.move_on_after(deadline_ms / 1000):
            response = await answer(broker, call, request)
            if response is not None:
                return response
        raise PeerLost(f"broker {broker.broker_id} did not answer {type(request).__name__}")
