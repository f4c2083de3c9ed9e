"""One connection in the simulated network, from a to b."""

import trio

from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.schedule import simulate

PORT = 9092


def between(scenario, seed=1, *, begin=lambda simulation, net: None):
    """Run `scenario(net, a's end, b's end)`; `begin` is called before anything is connected."""

    async def main(simulation):
        net = SimNet(simulation)
        begin(simulation, net)
        listener, accepted = await net.party("b").listen("b", PORT, backlog=5), []

        async def accept(stream):
            accepted.append(stream)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve, accept, nursery)
            near = await net.party("a").connect("b", PORT)
            await trio.sleep(0.1)
            with trio.fail_after(600):
                await scenario(net, near, accepted[0])
            nursery.cancel_scope.cancel()

    simulate(seed, main)
