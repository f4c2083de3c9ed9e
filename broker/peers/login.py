"""The login of this broker on a connection to another one: sends the requests of `SaslLogin`."""

from collections.abc import Awaitable, Callable

from barnabas.broker.security.client import LoggedIn, SaslLogin
from barnabas.broker.security.exchange import Compute
from barnabas.storage.disk import InThread
from barnabas.wire import messages as m


async def log_in(ask: Callable[[m.Message], Awaitable[m.Message]], login: SaslLogin, in_thread: InThread) -> LoggedIn:
    """Log in, or again. `ask` sends a request on the connection and returns its response. LoginFailed."""
    step: m.Message | Compute[m.Message] | LoggedIn = login.begin()
    while not isinstance(step, LoggedIn):
        step = step.then(await in_thread(step.run)) if isinstance(step, Compute) else login.take(await ask(step))
    return step
