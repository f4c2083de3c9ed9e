"""The embedded store as a file: what outlives a process, who may open it, and what happens when the disk fails."""

import gc
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import weakref
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from barnabas.controller.store.paths import PERSISTENT_PARENTS
from barnabas.controller.store.sqlitestore import open_sqlite_database, open_sqlite_store
from barnabas.controller.store.store import Create, NodeExists, SessionExpired, SetData, StoreUnavailable

NOW_MS = 1_700_000_000_000


async def inline(function, *args):
    await trio.lowlevel.checkpoint()
    return function(*args)


async def reopened(store, path):
    """The store after its process stopped cleanly and another one began."""
    await store.close()
    return await open_sqlite_store(str(path), inline, lambda: NOW_MS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
async def store(path):
    store = await open_sqlite_store(str(path), inline, lambda: NOW_MS)
    yield store
    await store.close()


async def test_what_was_written_is_there_after_a_restart(store, path):
    await store.batch([Create("/null"), Create("/empty", b""), [Create("/p"), Create("/p/c", b"\0data")]])
    await store.set("/p/c", b"again")
    before = [await store.get(each) for each in ("/null", "/empty", "/p/c")]
    again = await reopened(store, path)
    assert [await again.get(each) for each in ("/null", "/empty", "/p/c")] == before
    assert before[2][1].ctime_ms == NOW_MS
    await again.close()


async def test_sessions_end_with_their_process(store, path, tmp_path):
    await store.multi([Create("/p"), Create("/p/e", ephemeral=True)])
    for suffix in ("", "-wal"):  # what a killed process leaves behind
        shutil.copy(f"{path}{suffix}", f"{tmp_path}/killed.db{suffix}")
    again = await open_sqlite_store(f"{tmp_path}/killed.db", inline, lambda: NOW_MS)
    assert await again.children("/p") == []
    await again.close()


async def test_a_batch_with_refusals_is_freed_without_the_garbage_collector(store):
    await store.batch([Create("/p")])
    gc.collect()
    gc.disable()
    try:
        outcomes = await store.batch([Create("/q"), Create("/p")])
        assert isinstance(outcomes[1], NodeExists)
        refused = weakref.ref(outcomes[1])
        del outcomes
        assert refused() is None
    finally:
        gc.enable()


async def test_zxids_numbers_and_session_ids_go_on_after_a_restart(store, path):
    await store.create("/p")
    first = await store.create("/p/n", sequential=True)
    again = await reopened(store, path)
    second = await again.create("/p/n", sequential=True, ephemeral=True)
    assert (first.path, second.path) == ("/p/n0000000000", "/p/n0000000001")
    assert second.stat.czxid > first.stat.czxid
    assert second.stat.owner == again.session_id != store.session_id
    await again.close()


async def test_a_clean_stop_leaves_one_file(store, path):
    await store.create("/a")
    await store.close()
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]


async def test_only_its_owner_may_read_the_file_and_its_log(path):
    def modes():
        return {each.stat().st_mode & 0o777 for each in path.parent.iterdir()}

    before = os.umask(0o022)
    try:
        store = await open_sqlite_store(str(path), inline, lambda: NOW_MS)
        await store.create("/a", b"secret")
        assert modes() == {0o600}
        # As an earlier version left it.
        path.chmod(0o644)
        store = await reopened(store, path)
        await store.create("/b", b"secret")
        assert modes() == {0o600}
        await store.close()
    finally:
        os.umask(before)


async def test_memory_holds_a_store_of_its_own_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = [await open_sqlite_store(":memory:", inline, lambda: NOW_MS) for _ in range(2)]
    await one.create("/a")
    assert await other.exists("/a") is None
    await one.close()
    await other.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_second_opening_in_the_same_process_is_refused(store, path):
    with pytest.raises(StoreUnavailable, match=r"store\.db: another process has it open"):
        await open_sqlite_store(str(path), inline, lambda: NOW_MS)
    await store.create("/a")


OPEN_IT = """
import sys, trio
from barnabas.controller.store.sqlitestore import open_sqlite_store
async def in_thread(function, *args):
    return function(*args)
async def main():
    store = await open_sqlite_store(sys.argv[1], in_thread, lambda: 0)
    await store.create("/from_another_process")
    print("written", flush=True)
    sys.stdin.read()
trio.run(main)
"""


async def test_a_second_process_is_refused(store, path):
    other = await trio.run_process([sys.executable, "-c", OPEN_IT, str(path)], capture_stderr=True, check=False)
    assert other.returncode == 1
    assert b"store.db: another process has it open" in other.stderr
    assert await store.exists("/from_another_process") is None


async def test_a_write_that_was_answered_survives_the_kill_of_its_process(path):
    command = [sys.executable, "-c", OPEN_IT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"written\n"
        other.send_signal(signal.SIGKILL)
    store = await open_sqlite_store(str(path), inline, lambda: NOW_MS)
    assert await store.exists("/from_another_process") is not None
    await store.close()


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["CREATE TABLE theirs (a)"], "another application"),
        (["PRAGMA application_id = 0x4261726E", "PRAGMA user_version = 99", "CREATE TABLE nodes (a)"], "format is 99"),
    ],
)
async def test_a_database_of_others_is_refused_and_left_alone(path, statements, why):
    with sqlite3.connect(path) as theirs:
        for statement in statements:
            theirs.execute(statement)
    theirs.close()
    with pytest.raises(StoreUnavailable, match=why):
        await open_sqlite_store(str(path), inline, lambda: NOW_MS)
    with sqlite3.connect(path) as theirs:
        assert theirs.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    theirs.close()


async def test_what_cannot_be_opened_is_named(tmp_path, path):
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreUnavailable, match=r"store\.db: file is not a database"):
        await open_sqlite_store(str(path), inline, lambda: NOW_MS)
    with pytest.raises(StoreUnavailable, match=r"missing/x\.db: unable to open"):
        await open_sqlite_store(str(tmp_path / "missing" / "x.db"), inline, lambda: NOW_MS)


async def test_a_full_store_refuses_the_write_and_goes_on(path):
    database = await open_sqlite_database(str(path), inline, lambda: NOW_MS, max_bytes=200_000)
    store, fired = database.session(), []
    await store.create("/big", bytes(100_000))
    await store.exists("/more", lambda: fired.append("more"))
    with pytest.raises(StoreUnavailable, match=r"store\.db: database or disk is full"):
        await store.batch([Create("/small"), Create("/more", bytes(100_000))])
    assert (await store.exists("/small"), fired) == (None, [])
    before = await store.exists("/big")
    await store.delete("/big")
    assert (await store.create("/more", bytes(100_000))).stat.czxid == before.mzxid + 2  # the lost write took no zxid
    assert fired == ["more"]
    await database.close()


@contextmanager
def files_limited_to(size_bytes):
    """Every write beyond this size fails with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_failing_file_makes_the_store_unavailable_for_good(store, path):
    with files_limited_to(50_000), pytest.raises(StoreUnavailable, match=r"store\.db: disk I/O error"):
        await store.create("/a", bytes(100_000))
    for attempt in (store.exists("/a"), store.create("/b")):
        with pytest.raises(StoreUnavailable, match=r"store\.db: disk I/O error"):
            await attempt
    with pytest.raises(StoreUnavailable):
        await store.close()
    again = await open_sqlite_store(str(path), inline, lambda: NOW_MS)
    assert await again.exists("/a") is None
    await again.close()


async def test_a_closed_database_is_unavailable(path):
    database = await open_sqlite_database(str(path), inline, lambda: NOW_MS)
    session = database.session()
    await database.close()
    await database.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await session.exists("/")


async def test_sessions_of_one_database_outlive_each_other_but_not_it(store):
    other = store.another_session()
    await other.close()
    await store.create("/a")
    third = store.another_session()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await third.exists("/a")


class CountedThread:
    """Runs functions in one real thread at a time, and counts them."""

    def __init__(self):
        self.visits = 0
        self._inside = False

    async def __call__(self, function, *args):
        self.visits += 1
        return await trio.to_thread.run_sync(self._alone, function, *args)

    def _alone(self, function, *args):
        assert not self._inside, "two threads at once"
        self._inside = True
        try:
            return function(*args)
        finally:
            self._inside = False


async def test_many_tasks_share_a_visit_to_the_thread(path):
    in_thread = CountedThread()
    store = await open_sqlite_store(str(path), in_thread, lambda: NOW_MS)
    before = in_thread.visits
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(store.create, f"/n{number}")
            nursery.start_soon(store.exists, f"/n{number}")
    assert in_thread.visits - before <= 3
    assert len(await store.children("/")) == 100
    await store.close()


async def test_a_start_is_one_visit_to_open_and_one_to_make_the_parents(path):
    in_thread = CountedThread()
    store = await open_sqlite_store(str(path), in_thread, lambda: NOW_MS)
    outcomes = await store.batch([Create(each) for each in PERSISTENT_PARENTS])
    assert in_thread.visits == 2
    assert [each.path for each in outcomes] == list(PERSISTENT_PARENTS)
    again = await reopened(store, path)
    assert {type(each) for each in await again.batch([Create(each) for each in PERSISTENT_PARENTS])} == {NodeExists}
    await again.close()


async def slow(function, *args):
    """A disk that takes a second."""
    await trio.sleep(1)
    return function(*args)


async def test_cancelling_the_one_whose_turn_it_is_harms_no_other(autojump_clock):
    store = await open_sqlite_store(":memory:", slow, lambda: NOW_MS)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            nursery.start_soon(store.create, "/others")
            await store.create("/mine")
    assert await store.exists("/others") is not None
    await store.close()


async def test_a_call_that_was_cancelled_before_its_turn_is_not_carried_out(autojump_clock):
    store = await open_sqlite_store(":memory:", slow, lambda: NOW_MS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.create, "/first")
        await trio.sleep(0.1)
        with trio.move_on_after(0.5):
            await store.create("/second")
    assert await store.children("/") == ["first"]
    await store.close()


async def test_a_session_ends_even_when_its_owner_is_cancelled(autojump_clock):
    database = await open_sqlite_database(":memory:", slow, lambda: NOW_MS)
    store, other = database.session(), database.session()
    await store.create("/e", ephemeral=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.exists, "/")  # the end has to wait for its turn
        await trio.sleep(0.1)
        with trio.move_on_after(0.1):
            await store.close()
    assert await other.exists("/e") is None


async def test_calls_that_wait_behind_an_expiry_find_the_session_over(autojump_clock):
    database = await open_sqlite_database(":memory:", slow, lambda: NOW_MS)
    store, other, refused = database.session(), database.session(), []

    async def create():
        with pytest.raises(SessionExpired) as error:
            await store.create("/e", ephemeral=True)
        refused.append(error.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.exists, "/")
        await trio.sleep(0.1)
        nursery.start_soon(store.expire)
        await trio.sleep(0.1)
        nursery.start_soon(create)  # in one visit with the expiry, after it
    assert len(refused) == 1
    assert await other.exists("/e") is None


async def test_a_watch_sees_a_write_of_the_same_visit_only_if_it_came_before(autojump_clock):
    store = await open_sqlite_store(":memory:", slow, lambda: NOW_MS)
    fired = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.exists, "/")
        await trio.sleep(0.1)
        for call in (
            (store.create, "/a"),
            (store.exists, "/a", lambda: fired.append("after the create")),
            (store.exists, "/b", lambda: fired.append("before the create")),
            (store.create, "/b"),
        ):
            nursery.start_soon(*call)
            await trio.sleep(0.01)
    assert fired == ["before the create"]
    await store.close()


async def test_a_session_must_be_renewed_by_its_owner(store):
    await store.expire()
    with pytest.raises(SessionExpired, match=f"{store.session_id:#x}"):
        await store.set("/", b"")
    await store.renew()
    assert (await store.multi([SetData("/", b"")]))[0].version == 1
    await store.close()
    with pytest.raises(SessionExpired):
        await store.renew()


async def test_a_batch_of_refusals_writes_nothing(store, path):
    await store.batch([Create(each) for each in PERSISTENT_PARENTS])
    written = Path(f"{path}-wal").read_bytes()
    outcomes = await store.batch([Create(each) for each in PERSISTENT_PARENTS])
    assert {type(each) for each in outcomes} == {NodeExists}
    assert Path(f"{path}-wal").read_bytes() == written


def test_sqlite_is_imported_only_when_a_store_is_opened():
    check = "import sys, barnabas.controller.store.sqlitestore; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
