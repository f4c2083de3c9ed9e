"""One simulated machine with at most one broker: `serve()` in a world of its own.

The machine's disk, clock and address outlive the broker on it. Each run of the broker is a `Life`: a process that can
be paused, a network and a store session that end with it. A crash is immediate, like SIGKILL: the disk is copied at
that moment, connections break, the session sends nothing more. The tasks of the old life are cancelled and end in the
background: they have no access to the new disk, the network or the store.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, TypeVarTuple

import trio

from barnabas.broker.call import Broker
from barnabas.broker.serve import UNFIT_ENVIRONMENT, Serving, serve
from barnabas.config.live import BrokerConfig
from barnabas.controller.admin.registration import CannotRegister
from barnabas.controller.store.store import MetadataStore, StoreError
from barnabas.storage import flusher
from barnabas.storage.memdisk import MemDisk
from barnabas.testing.simulation.disk import SimDisk
from barnabas.testing.simulation.net import PartyNet, SimNet
from barnabas.testing.simulation.schedule import Process, Simulation, VirtualClock
from barnabas.testing.simulation.session import StoreSession
from barnabas.testing.simulation.store import START_MS, StoreServer
from barnabas.world.world import StoreConfig, World

PORT = 9092
FLUSH: object = flusher._sync  # a round of syncs of the flusher, which runs it in a thread
RESTART_SECONDS = 1.0  # a supervisor's pause

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


@dataclass(eq=False, slots=True)
class Life:
    """One run of a broker, from its start to its end or crash."""

    process: Process
    net: PartyNet
    rng: random.Random
    disk: SimDisk
    clock: VirtualClock
    sessions: list[StoreSession] = field(default_factory=list)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    stop: trio.Event = field(default_factory=trio.Event)
    ready_or_ended: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    broker: Broker | None = None
    serving: Serving | None = None
    crashed: bool = False

    async def in_thread(self, function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
        """After the time that a thread takes; as trio does it, what began is waited for, cancelled or not."""
        await trio.lowlevel.checkpoint_if_cancelled()
        task = trio.lowlevel.current_task()
        seconds = self.disk.thread_seconds(is_sync=function is FLUSH)
        self.clock.call_in(seconds, trio.lowlevel.reschedule, task)
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return function(*args)


class Node:
    """A machine. `broker` is the live parts of the broker that runs on it, from the moment when they stand."""

    def __init__(
        self, simulation: Simulation, net: SimNet, store: StoreServer, broker_id: int, properties: dict[str, str]
    ) -> None:
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": "/data",
        } | properties
        self.clock_skew_ms = 0
        self.failure: Exception | None = None  # why the latest life ended by itself
        self.ended_at = -math.inf  # when, on the virtual clock, the latest life ended or crashed
        self.lives = 0
        self.boots = 1  # of the machine
        self.zombies = 0  # crashed lives that have not come to their end yet
        self.on_built: list[Callable[[Broker], None]] = []
        self._simulation = simulation
        self._net = net
        self._store = store
        self._life: Life | None = None
        self.disk = SimDisk(self.name, simulation.trace, simulation.rng(f"{self.name} disk"), self.now_ms)

    def __repr__(self) -> str:
        return self.name

    # -- what is so

    def now_ms(self) -> int:
        """This machine's wall clock."""
        return START_MS + round(self._simulation.clock.now * 1000) + self.clock_skew_ms

    @property
    def broker(self) -> Broker | None:
        """The broker's live parts while it runs."""
        return None if self._life is None else self._life.broker

    @property
    def is_running(self) -> bool:
        """Whether a broker runs here, ready or not, paused or not."""
        return self._life is not None

    @property
    def is_ready(self) -> bool:
        """Whether a broker here said that it serves."""
        return self._life is not None and self._life.serving is not None

    @property
    def is_paused(self) -> bool:
        """Whether the broker's process is stopped."""
        return self._life is not None and self._life.process.is_paused

    @property
    def session_ids(self) -> list[int]:
        """The sessions with the metadata store that the server counts as this machine's."""
        return self._store.sessions_of(self.name)

    @property
    def own_session_ids(self) -> list[int]:
        """Those of the life that runs now, as far as it knows."""
        return [] if self._life is None else [session.session_id for session in self._life.sessions]

    # -- what is done

    def launch(self, nursery: trio.Nursery) -> Life:
        """Start a broker; it is not awaited."""
        if self._life is not None:
            raise RuntimeError(f"{self.name} runs already")
        self.lives += 1
        self.failure = None
        rng = self._simulation.rng(f"{self.name} life {self.lives}")
        clock = self._simulation.clock
        life = self._life = Life(Process(self.name), self._net.party(self.name), rng, self.disk, clock)
        self._simulation.trace.note(f"{self.name} starts")
        nursery.start_soon(self._live, life, name=f"{self.name}")
        return life

    @property
    def has_lost_a_directory(self) -> bool:
        """Whether a log directory of the broker that runs is offline."""
        return self.is_running and self.broker is not None and bool(self.broker.replicas.logs.offline_directories)

    async def start(self, nursery: trio.Nursery) -> None:
        """Start a broker, unless one runs, and wait until it serves; raises what prevented that.

        As a supervisor does it, it is started again while the store is out of reach or still holds the registration of
        the life before, which crashed.
        """
        while True:
            life = self._life or self.launch(nursery)
            if life.stop.is_set():
                await life.ended.wait()
                continue
            await life.ready_or_ended.wait()
            if life.serving is not None or life.crashed or self.failure is None:
                return
            if not isinstance(self.failure, CannotRegister | StoreError):
                raise self.failure
            await trio.sleep(RESTART_SECONDS)

    def ask_to_stop(self) -> None:
        """SIGTERM: a clean stop begins."""
        if self._life is not None:
            self._life.stop.set()

    async def stop(self) -> None:
        """A clean stop, waited for."""
        life = self._life
        if life is not None:
            life.stop.set()
            await life.ended.wait()

    def crash_process(self) -> None:
        """SIGKILL: what was written is on the disk."""
        self._crash(self.disk.crash_process(), machine=False)

    def crash_machine(self, rng: random.Random) -> None:
        """Power is cut: of what was not synced, `rng` decides what is there."""
        self.boots += 1
        self._crash(self.disk.crash_machine(rng), machine=True)

    def pause(self) -> None:
        """SIGSTOP."""
        if self._life is not None:
            self._simulation.trace.note(f"{self.name} is paused")
            self._life.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self._life is not None:
            self._simulation.trace.note(f"{self.name} goes on")
            self._life.process.resume()

    # -- parts

    def _crash(self, disk: MemDisk, *, machine: bool) -> None:
        if not isinstance(disk, SimDisk):
            raise TypeError(f"{self.name} has no simulated disk")
        self._simulation.trace.note(f"{self.name} crashes, machine {machine}")
        self.disk = disk
        self._net.crash(self.name, machine=machine)
        life = self._life
        self._life = None
        if life is None:
            return
        life.crashed = True
        self.ended_at = self._simulation.clock.now
        for session in life.sessions:
            session.die()
        life.scope.cancel()
        life.process.is_dead = True
        life.process.resume()  # the tasks of the dead process must come to their end here
        self.zombies += 1

    async def _live(self, life: Life) -> None:
        try:
            with life.scope:
                await life.process.run(self._serve, life)
        finally:
            life.broker = None
            if life.crashed:
                self.zombies -= 1
            else:
                self._life = None
                self.ended_at = self._simulation.clock.now
                self._net.crash(self.name, machine=False)
                for session in life.sessions:
                    session.die()
                self._simulation.trace.note(f"{self.name} ended: {self.failure!r}")
            life.ended.set()
            life.ready_or_ended.set()

    async def _serve(self, life: Life) -> None:
        world = World(
            now_ms=self.now_ms,
            rng=life.rng,
            disk=life.disk,
            net=life.net,
            open_store=partial(self._open_store, life),
            in_thread=life.in_thread,
            in_request_thread=life.in_thread,
            watches_steps=False,
            boot_id=f"{self.name} boot {self.boots}",
        )
        try:
            await serve(
                BrokerConfig(self.properties),
                world=world,
                stop=life.stop,
                task_status=_Ready(life),
                on_built=partial(self._built, life),
            )
        except (*UNFIT_ENVIRONMENT, OSError) as error:
            if not life.crashed:
                self.failure = error

    def _built(self, life: Life, broker: Broker) -> None:
        if not life.crashed:
            life.broker = broker
            for callback in self.on_built:
                callback(broker)

    async def _open_store(self, life: Life, config: StoreConfig, embedded_path: str) -> MetadataStore:
        session = StoreSession(self._store, life.process, config.zookeeper_session_timeout_ms / 1000)
        life.sessions.append(session)
        return await session.open((config.zookeeper_connection_timeout_ms or math.inf) / 1000)


class _Ready:
    """What is called when the broker serves."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def started(self, value: Serving) -> None:
        self._life.serving = value
        self._life.ready_or_ended.set()
