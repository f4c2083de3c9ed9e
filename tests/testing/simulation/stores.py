"""Sessions of the simulated metadata store, for tests that run on a clock of their own."""

import heapq

import trio

from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.schedule import Process, Simulation
from barnabas.testing.simulation.session import StoreSession
from barnabas.testing.simulation.store import StoreServer

STEPS_UNTIL_SETTLED = 50


class HastyClock:
    """The simulation's timers, under any clock of trio's: the next one fires at each turn, whenever it is due."""

    def __init__(self):
        self.now = 1000.0
        self._timers = []
        self._count = 0

    def call_at(self, seconds, callback, *args):
        self._count += 1
        heapq.heappush(self._timers, (seconds, self._count, callback, args))

    def call_in(self, seconds, callback, *args):
        self.call_at(self.now + seconds, callback, *args)

    async def run(self):
        while True:
            await trio.lowlevel.checkpoint()
            if self._timers:
                seconds, _, callback, args = heapq.heappop(self._timers)
                self.now = max(self.now, seconds)
                callback(*args)


class SimulatedStores:
    """Sessions of one store of the simulated world, each of a process of its own."""

    def __init__(self, nursery):
        simulation = Simulation(7)
        simulation.clock = HastyClock()
        self.server = StoreServer(simulation, SimNet(simulation))
        self._count = 0
        nursery.start_soon(simulation.clock.run)

    async def open(self):
        self._count += 1
        return await StoreSession(self.server, Process(f"broker-{self._count}"), 6.0).open()

    async def expire(self, store):
        noticed = trio.Event()
        store.on_expired(noticed.set)
        self.server.expire(store.session_id)
        await noticed.wait()

    async def settle(self):
        """Wait until every watch that will fire has fired."""
        for _ in range(STEPS_UNTIL_SETTLED):
            await trio.lowlevel.checkpoint()
