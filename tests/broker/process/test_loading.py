"""How far the loading of logs is: a line a second for a person, one in ten seconds in a log file."""

import logging

import pytest
import trio

from barnabas.broker.life import BrokerState, Life
from barnabas.broker.process.run import tell_loading
from barnabas.replication.logs.directory import Loading
from tests.replication.logs.logs_scene import T0, T1, T2, TOPIC_ID, Scene


class Start:
    """A start that loads a log every two seconds, after 3.5 s in which it waits for its store."""

    def __init__(self, logs):
        self.life = Life(state=BrokerState.STARTING)
        self._logs = logs

    async def run(self):
        await trio.sleep(3.5)
        self.life.state = BrokerState.RECOVERY
        self.life.loading = Loading(total=self._logs)
        for _ in range(self._logs):
            await trio.sleep(2)
            self.life.loading.done += 1
        await trio.sleep(5)
        self.life.state = BrokerState.RUNNING


async def test_a_person_sees_each_second_how_many_logs_are_loaded(autojump_clock, nursery):
    start = Start(3)
    seen = []
    nursery.start_soon(start.run)
    with trio.fail_after(60):
        await tell_loading(start.life, lambda done, total, seconds: seen.append((round(seconds), done)))
    # When all are loaded, nothing is left to say.
    assert seen == [(4, 0), (5, 0), (6, 1), (7, 1), (8, 2), (9, 2)]


async def test_a_log_file_has_a_line_every_ten_seconds(autojump_clock, nursery, caplog):
    caplog.set_level(logging.INFO)
    start = Start(20)
    nursery.start_soon(start.run)
    await tell_loading(start.life, None)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"{done} of 20 logs are loaded" for done in (3, 8, 13, 18)]


async def test_a_start_of_less_than_a_second_says_nothing(autojump_clock, caplog):
    caplog.set_level(logging.INFO)
    life = Life(state=BrokerState.RUNNING, loading=Loading(total=2, done=2))
    await tell_loading(life, lambda *_: pytest.fail("nothing is to be said"))
    assert caplog.records == []


async def test_the_logs_of_all_directories_are_counted(autojump_clock):
    scene = await Scene().start()
    assert scene.logs.loading == Loading(0, 0)
    for key in (T0, T1, T2):
        await scene.logs.create(key, TOPIC_ID, scene.topic)
    again = await Scene(scene.disk.crash_process()).start()
    assert again.logs.loading == Loading(total=3, done=3)
