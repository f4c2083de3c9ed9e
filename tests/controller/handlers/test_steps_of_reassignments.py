"""Reassignments of many partitions hold the event loop for no long step."""

import trio

from barnabas.controller.events import ReassignmentsAsked
from barnabas.wire.topics import TopicPartition
from tests.broker.steps import StepMeter, outside_steps

COUNT = 300  # of partitions of each topic: as many as one request of the controller names
MOVED = [TopicPartition(topic, index) for topic in ("s", "t") for index in range(COUNT)]


async def in_thread(function, *args):
    await trio.lowlevel.checkpoint()
    with outside_steps():
        return function(*args)


async def test_moves_of_many_partitions_begin_and_are_cancelled_in_many_steps(cluster):
    cluster.database._in_thread = in_thread
    await cluster.start(1, 2, 3)
    for topic in ("s", "t"):
        await cluster.create(topic, [[1, 2]] * COUNT)
    with StepMeter() as meter:
        await cluster.ask(ReassignmentsAsked(dict.fromkeys(MOVED, (1, 3))))
        assert len(cluster.image.moving) == len(MOVED)
        await cluster.ask(ReassignmentsAsked(dict.fromkeys(MOVED)))
        assert not cluster.image.moving
    meter.check()
