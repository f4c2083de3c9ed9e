"""What is done for the heap while a broker serves."""

import gc
import itertools
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.process import heap
from barnabas.world.world import NO_THREAD

REAL_SECONDS_MAX = 60.0


async def test_what_lives_is_frozen_when_it_has_doubled_and_collected_now_and_then(
    nursery, autojump_clock, monkeypatch
):
    done, load = [], heap.FREEZE_LOAD_MIN
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(gc, "collect", lambda: done.append("collected"))
    monkeypatch.setattr(heap, "resident_bytes", lambda: 0)
    nursery.start_soon(heap.keep_small, lambda: load, lambda: 0)
    await trio.sleep(2.5 * heap.LOOK_SECONDS)
    assert done == []
    load = 2 * heap.FREEZE_LOAD_MIN + 1
    await trio.sleep(2 * heap.LOOK_SECONDS)
    assert done == ["frozen"]
    await trio.sleep(heap.LOOKS_A_COLLECTION * heap.LOOK_SECONDS)
    assert done == ["frozen", "collected"]


async def test_a_collection_waits_until_requests_hold_little_but_not_for_ever(nursery, autojump_clock, monkeypatch):
    async def trimmed() -> int:
        return 0  # in a thread, for which the virtual clock does not wait

    collected_at, held_bytes = [], heap.HELD_BYTES_MAX + 1
    monkeypatch.setattr(gc, "collect", lambda: collected_at.append(trio.current_time() - began))
    monkeypatch.setattr(heap, "resident_bytes", lambda: 0)
    monkeypatch.setattr(heap, "_trimmed", trimmed)
    began = trio.current_time()
    nursery.start_soon(heap.keep_small, lambda: 0, lambda: held_bytes)
    await trio.sleep(1000 + heap.LOOK_SECONDS / 2)  # between two looks: tasks that wake together run in any order
    assert collected_at == []
    held_bytes = heap.HELD_BYTES_MAX
    await trio.sleep(heap.LOOK_SECONDS)
    assert len(collected_at) == 1
    held_bytes += 1
    await trio.sleep(3600 + heap.LOOK_SECONDS)
    assert len(collected_at) == 2


@pytest.mark.parametrize(("seconds", "expected"), [(0.001, []), (0.1, ["frozen"])])
async def test_what_made_a_collection_long_is_frozen_after_it(nursery, autojump_clock, monkeypatch, seconds, expected):
    done, clock = [], itertools.count()
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(gc, "collect", lambda: None)
    monkeypatch.setattr(heap, "resident_bytes", lambda: 0)
    monkeypatch.setattr(heap, "time", SimpleNamespace(perf_counter=lambda: seconds * next(clock)))
    nursery.start_soon(heap.keep_small, lambda: 0, lambda: 0)
    await trio.sleep((heap.LOOKS_A_COLLECTION + 0.5) * heap.LOOK_SECONDS)
    assert done == expected


@pytest.mark.parametrize("sign", [1, -1])
async def test_free_memory_is_given_back_when_the_process_has_changed(nursery, autojump_clock, monkeypatch, sign):
    trimmed, was_trimmed, resident = [], threading.Event(), 100 << 20
    monkeypatch.setattr(heap, "trim_heap", lambda: (trimmed.append(resident), was_trimmed.set()))
    monkeypatch.setattr(heap, "resident_bytes", lambda: resident)
    monkeypatch.setattr(gc, "collect", lambda: None)
    nursery.start_soon(heap.keep_small, lambda: 0, lambda: 0)
    await trio.sleep(2.5 * heap.LOOK_SECONDS)
    assert trimmed == []
    resident += sign * (heap.TRIM_CHANGED_BYTES + 1)
    # It runs in a thread, for which the virtual clock does not wait.
    assert await trio.to_thread.run_sync(was_trimmed.wait, REAL_SECONDS_MAX)
    assert trimmed[:1] == [resident]


async def test_free_memory_is_given_back_after_a_full_collection(nursery, autojump_clock, monkeypatch):
    done, was_trimmed = [], threading.Event()
    monkeypatch.setattr(heap, "trim_heap", lambda: (done.append("trimmed"), was_trimmed.set()))
    monkeypatch.setattr(heap, "resident_bytes", lambda: 100 << 20)
    monkeypatch.setattr(gc, "collect", lambda: done.append("collected"))
    nursery.start_soon(heap.keep_small, lambda: 0, lambda: 0)
    assert await trio.to_thread.run_sync(was_trimmed.wait, REAL_SECONDS_MAX)
    assert done[:2] == ["collected", "trimmed"]


def test_memory_is_given_back():
    kept = [bytes(1000) for _ in range(100_000)]
    grown = heap.resident_bytes()
    del kept
    heap.trim_heap()
    assert heap.resident_bytes() < grown


def test_threads_allocate_from_one_heap():
    code = """
import ctypes, re, threading
from barnabas.broker.process.heap import share_one_heap
share_one_heap()
for _ in range(4):
    threading.Thread(target=lambda: [bytes(100_000) for _ in range(10)]).start()
ctypes.CDLL(None).malloc_stats()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.findall(r"Arena (\d+):", ran.stderr) in (["0"], []), "glibc has one; another C library says nothing"


async def test_a_system_that_starts_no_thread_does_not_end_the_broker(nursery, autojump_clock, monkeypatch):
    run_sync, refused, was_trimmed = trio.to_thread.run_sync, [], threading.Event()

    async def run_when_there_are_threads(*asked, **options):
        if not refused:
            refused.append(asked)
            raise RuntimeError(NO_THREAD)
        return await run_sync(*asked, **options)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_when_there_are_threads)
    monkeypatch.setattr(heap, "trim_heap", was_trimmed.set)
    monkeypatch.setattr(heap, "resident_bytes", lambda: 100 << 20)
    monkeypatch.setattr(gc, "collect", lambda: None)
    nursery.start_soon(heap.keep_small, lambda: 0, lambda: 0)
    await trio.sleep((heap.LOOKS_A_COLLECTION + 1) * heap.LOOK_SECONDS)
    assert refused
    assert await run_sync(was_trimmed.wait, REAL_SECONDS_MAX)
