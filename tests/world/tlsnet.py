"""TLS over the network in memory, both sides with one certificate: what holds for every `Stream` is tested over it."""

from functools import cache

import trio

from barnabas.security.tls.contexts import client_context, load_stores, server_context
from barnabas.security.tls.stores import KeyStoreSettings, TrustStoreSettings
from barnabas.world.tls import TlsStream, accept_tls, connect_tls
from tests.broker.memnet import MemNet, MemStream
from tests.security.key_material import BOTH_VERSIONS, authority_pem, chain_pem, key_pem, leaf


@cache
def stores():
    keys = KeyStoreSettings(type="PEM", key=key_pem(leaf()), certificate_chain=chain_pem(leaf()))
    return load_stores(keys, TrustStoreSettings(type="PEM", certificates=authority_pem()))


async def shake_hands(raw_client, raw_server, *, client=None, server=None) -> tuple[TlsStream, TlsStream]:
    """Both ends of a connection, the client's first."""
    ends = {}

    async def accept():
        ends["server"] = await accept_tls(raw_server, server or server_context(stores(), BOTH_VERSIONS, "requested"))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            context = client or client_context(stores(), BOTH_VERSIONS)
            ends["client"] = await connect_tls(raw_client, context, "localhost")
    return ends["client"], ends["server"]


class TlsNet(MemNet):
    """A `Net` of TLS connections."""

    async def listen(self, host: str, port: int, *, backlog: int):
        listener = await super().listen(host, port, backlog=backlog)
        serve = listener.serve

        async def serve_tls(handle, nursery):
            async def handle_tls(raw: MemStream) -> None:
                await handle(await accept_tls(raw, server_context(stores(), BOTH_VERSIONS, "requested")))

            await serve(handle_tls, nursery)

        listener.serve = serve_tls
        return listener

    async def connect(self, host: str, port: int, *, address: str = "127.0.0.1"):
        raw = await super().connect(host, port, address=address)
        return await connect_tls(raw, client_context(stores(), BOTH_VERSIONS), "localhost")
