"""The real world: its threads."""

import gc
import threading
import weakref

import pytest
import trio

from barnabas.world.world import in_worker_thread, request_threads


@pytest.fixture
def no_threads(monkeypatch):
    """The operating system starts no thread for the first two times that it is asked."""
    refusals = ["can't start new thread"] * 2
    start = threading.Thread.start

    def start_if_possible(thread):
        if refusals:
            raise RuntimeError(refusals.pop())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_possible)
    monkeypatch.setattr(trio._core._thread_cache, "THREAD_CACHE", trio._core._thread_cache.ThreadCache())
    return refusals


@pytest.mark.parametrize("make", [lambda: in_worker_thread, request_threads], ids=["disk", "requests"])
async def test_work_waits_for_a_thread_where_none_can_be_started(autojump_clock, no_threads, make):
    assert await make()(sum, [1, 2]) == 3
    assert no_threads == []


async def test_the_disk_does_not_wait_for_work_that_clients_choose(nursery):
    in_request_thread, goes_on = request_threads(), threading.Event()
    for _ in range(100):
        nursery.start_soon(in_request_thread, goes_on.wait)
    try:
        with trio.fail_after(60):
            assert await in_worker_thread(sum, [1, 2]) == 3
    finally:
        goes_on.set()


async def test_a_failure_of_the_work_itself_is_its_own(autojump_clock):
    with pytest.raises(RuntimeError, match="ours"):
        await in_worker_thread(fail)


def fail():
    raise RuntimeError("ours")


@pytest.mark.parametrize("make", [lambda: in_worker_thread, request_threads], ids=["disk", "requests"])
async def test_what_a_failed_work_held_is_freed_without_a_collection(make):
    gc.collect()
    gc.disable()  # an exception that refers to itself would wait for it
    try:
        held = weakref.ref(data := Bytes(1000))
        try:
            await make()(fail_on, data)
        except RuntimeError:
            del data
        with trio.fail_after(10):  # the thread itself may need a moment to let go
            while held() is not None:
                await trio.sleep(0.001)
    finally:
        gc.enable()


class Bytes(bytearray):
    """To which a reference can be weak."""


def fail_on(data):
    fail()
