"""One restore at a time: what a killed one left at work is waited for."""

import subprocess
import sys

import pytest

from barnabas.pipeline.fencing import alone, at_work
from barnabas.pipeline.plan import RestoreError

TASK = """
import pathlib, sys
from barnabas.pipeline.fencing import at_work

with at_work(pathlib.Path(sys.argv[1])):
    print("at work", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def task_left_behind(tmp_path):
    """A task of a restore whose driver is gone, as a process of its own."""
    with alone(tmp_path):
        process = subprocess.Popen(
            [sys.executable, "-c", TASK, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "at work\n"
    yield process
    process.kill()
    process.communicate()


def test_a_restore_does_not_begin_while_a_task_of_an_earlier_one_is_at_work(task_left_behind, tmp_path):
    with pytest.raises(RestoreError, match="or a task of one that was killed"), alone(tmp_path, wait_seconds=0):
        raise AssertionError("it began")


def test_a_restore_begins_when_the_last_task_of_an_earlier_one_was_killed(task_left_behind, tmp_path):
    task_left_behind.kill()
    with alone(tmp_path):
        assert task_left_behind.wait(10) == -9


def test_tasks_of_one_restore_work_beside_each_other(tmp_path):
    with alone(tmp_path), at_work(tmp_path), at_work(tmp_path):
        pass


def test_two_restores_with_one_state_do_not_run_at_once(tmp_path):
    with alone(tmp_path), pytest.raises(RestoreError, match="another restore"), alone(tmp_path, wait_seconds=0):
        raise AssertionError("both began")
