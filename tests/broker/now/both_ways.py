"""One history of frames, answered by a broker that answers ordinary requests now, and by one that never does."""

import struct
from typing import NamedTuple

import trio
from trio.testing import MockClock

from barnabas.storage.producers import encode_snapshot
from barnabas.world.net import ConnectionLost
from barnabas.world.tally import COUNTS
from tests.broker.harness import Machine


class Never:
    """In the place of a connection's shapes: every request takes the general way."""

    def answer(self, broker, frame, began):
        return None

    def learn(self, *_):
        """Forget it."""

    def forget(self):
        """There is nothing."""

    def take_seen(self):
        """No test looks."""


class Watching:
    """Counts what a connection's shapes have answered."""

    def __init__(self, shapes):
        self.shapes, self.answered = shapes, 0

    def answer(self, broker, frame, began):
        answer = self.shapes.answer(broker, frame, began)
        self.answered += answer is not None
        return answer

    def learn(self, *arguments):
        self.shapes.learn(*arguments)

    def forget(self):
        self.shapes.forget()

    def take_seen(self):
        return self.shapes.take_seen()

    @property
    def latest(self):
        return self.shapes.latest


class Seen(NamedTuple):
    """What can be seen of a history from outside, and of the state that it leaves."""

    answers: list
    logs: dict
    states: dict
    counts: dict


class Client:
    """A connection that sends bytes; a new one where the broker has closed the last."""

    def __init__(self, machine, is_now):
        self.machine, self.is_now = machine, is_now
        self.connection = self.shapes = None
        self.answered_now = 0

    async def ask(self, *frames):
        """The responses to frames that arrive together; None behind the one at which the broker closes."""
        if self.connection is None:
            before = set(self.machine.broker.tally.connections)
            self.connection = await self.machine.connect()
            await trio.testing.wait_all_tasks_blocked()
            (mine,) = set(self.machine.broker.tally.connections) - before
            mine.shapes = self.shapes = Watching(mine.shapes) if self.is_now else Never()
        await self.connection.send_bytes(b"".join(struct.pack(">i", len(each)) + each for each in frames))
        answers = []
        for _ in frames:
            try:
                with trio.move_on_after(60):
                    answers.append(await self.connection.receive_frame())
            except ConnectionLost:
                self.close()
                return [*answers, None]
        return answers

    def close(self):
        if self.is_now and self.shapes is not None:
            self.answered_now += self.shapes.answered
        self.connection.stream.close()
        self.connection = self.shapes = None


def seen_of(machine, answers) -> Seen:
    """The log bytes, the producers, the offsets and the counts of all partitions."""
    logs, states = {}, {}
    for partition in machine.broker.replicas:
        log = partition.log or machine.broker.replicas.logs.get(partition.topic_partition)  # it may have resigned
        key = str(partition.topic_partition)
        logs[key] = [bytes(machine.disk.read_file(f"{log.directory}/{name}")) for name in _names(machine, log)]
        states[key] = (
            *(log.log_start_offset, log.log_end_offset, log.acknowledgeable_offset, log.recovery_point),
            *(partition.high_watermark, partition.leader_epoch, len(partition.waiters)),
            bytes(encode_snapshot(log.producers.entries())),
        )
    tally = machine.broker.tally
    counts = {
        topic: [getattr(each, name) for name in COUNTS] for topic, each in machine.broker.replicas.tallies.items()
    }
    for key, api in tally.apis.items():
        waited = api.waiting.remote.count if api.waiting else 0
        counts[key] = (api.versions, api.error_counts(), api.sizes.counts, api.direct.count, waited)
    return Seen(answers, logs, states, counts)


def _names(machine, log):
    return sorted(name for name in machine.disk.list(log.directory) if name.endswith(".log"))


def damaged(frame, damage):
    """This frame with another bit at (place from its end, bit), without so many bytes of its end, or as it is."""
    if isinstance(damage, int):
        return frame[:-damage] or frame
    if damage is not None and damage[0] <= len(frame) - 8:
        changed = bytearray(frame)
        changed[-damage[0]] ^= 1 << damage[1]
        return bytes(changed)
    return frame


async def nothing_happens(partition):
    """Until the request times out."""


def see(history, *, is_now, **properties):
    """What a broker makes of a history: `await history(machine, client)` returns the answers."""
    seen = []

    async def run():
        async with trio.open_nursery() as nursery:
            machine = await Machine(nursery, **properties).start()
            client = Client(machine, is_now)
            answers = await history(machine, client)
            if client.connection is not None:
                client.close()
            seen.append((seen_of(machine, answers), client.answered_now))
            nursery.cancel_scope.cancel()

    trio.run(run, clock=MockClock(autojump_threshold=0))
    return seen[0]
