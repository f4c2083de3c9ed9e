"""The embedded metadata store (edge): ZooKeeper's data model in one SQLite file, or in memory.

Theory of operation
-------------------
`_Tree` is the blocking half: the nodes in one table, and every rule of `store.py` as SQL. It runs in a worker thread,
never in two at once, and has neither tasks nor watches. `SqliteDatabase` is the half on the loop: it owns the tree, the
sessions and their watches. `SqliteStore` is one session.

Calls queue in the order in which they were made. The first call that gets the lock takes the whole queue and carries it
out in one visit to the thread and one transaction: tasks share one sync (group commit), and reads one thread hop.
Within the transaction each item of a batch is a savepoint. After the commit the watches of reads are set and those that
writes triggered are fired, in the order of the calls.

Durability: the file is in WAL mode with synchronous=FULL. An answered write survives a power failure, at the cost of
one sync for each transaction.

A file belongs to one process: SQLite's exclusive locking mode keeps others out. So sessions end with their process, and
opening the file deletes the ephemeral nodes that an earlier process left.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import trio

from barnabas.controller.store.store import (
    Create,
    Created,
    Delete,
    EphemeralParent,
    InThread,
    Item,
    MetadataStore,
    NodeError,
    NodeExists,
    Nodes,
    NoNode,
    NoParent,
    NotEmpty,
    Outcome,
    SessionExpired,
    SetData,
    Stat,
    StoreUnavailable,
    Watch,
    check_op,
    check_path,
    ops_of,
    refuse_large,
)

if TYPE_CHECKING:
    import sqlite3

IN_MEMORY = ":memory:"
PRIVATE_MODE = 0o600  # among the nodes are SCRAM keys and stored passwords

APPLICATION_ID = 0x4261726E  # "Barn", in the file's header: the file is ours
SCHEMA_VERSION = 1
# A session's id is `openings` times this, plus a number that counts the sessions of one opening.
# So no session has the id of an earlier one, or owns its nodes.
SESSIONS_OF_ONE_OPENING = 1 << 20
STORE_MAX_BYTES = 1 << 30  # some million partitions; stops a runaway writer before it fills the disk of the logs

_SCHEMA = (
    """CREATE TABLE nodes (
        parent TEXT NOT NULL,
        name TEXT NOT NULL,
        data BLOB,
        version INTEGER NOT NULL,
        czxid INTEGER NOT NULL,
        mzxid INTEGER NOT NULL,
        owner INTEGER NOT NULL,
        ctime_ms INTEGER NOT NULL,
        children_created INTEGER NOT NULL,
        PRIMARY KEY (parent, name)
    ) WITHOUT ROWID""",
    "CREATE INDEX ephemerals ON nodes (owner) WHERE owner != 0",
    "INSERT INTO nodes VALUES ('', '', x'', 0, 0, 0, 0, 0, 0)",  # the root
    "CREATE TABLE counters (zxid INTEGER NOT NULL, openings INTEGER NOT NULL)",
    "INSERT INTO counters VALUES (0, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_STAT = "version, czxid, mzxid, owner, ctime_ms"
_THIS = "parent = ? AND name = ?"

Answer = TypeVar("Answer")
WatchKey = tuple[str, str]  # "data" or "children", and a path


async def open_sqlite_store(path: str, in_thread: InThread, now_ms: Callable[[], int]) -> "SqliteStore":
    """One session of the store in this file, which is created if missing, or IN_MEMORY. Closing it closes the file.

    StoreUnavailable when another process has the file open, when it cannot be read, or when it is not such a store.
    """
    database = await open_sqlite_database(path, in_thread, now_ms)
    return SqliteStore(database, owns_database=True)


async def open_sqlite_database(
    path: str,
    in_thread: InThread,
    now_ms: Callable[[], int],
    *,
    max_bytes: int = STORE_MAX_BYTES,
    content: bytes | None = None,
) -> "SqliteDatabase":
    """The store without a session, for several sessions in one process. StoreUnavailable as above.

    `content` is that of a store in memory (`SqliteDatabase.content`): a new one begins with it, its sessions ended.
    """
    # Cancelled here, the file would stay open and locked, with nothing left to close it.
    with trio.CancelScope(shield=True):
        tree = await in_thread(_Tree, path, max_bytes, content)
    return SqliteDatabase(tree, in_thread, now_ms)


@dataclass(eq=False, slots=True)
class _Call:
    """One request to the thread, which fills in the outcome."""

    session_id: int
    work: "Callable[[_Tree], None]"
    watch: tuple[WatchKey, Watch] | None = None  # set if the work succeeds
    ends_session: bool = False
    taken: bool = False  # out of the queue: cancelling its task does not withdraw it any more
    error: NodeError | SessionExpired | None = None
    changed: list[WatchKey] = field(default_factory=list)  # whose watches must fire
    failure: str | None = "the call was not carried out"  # why nothing of it was written; None once it is committed


class SqliteStore(MetadataStore):
    """One session of an embedded store."""

    def __init__(self, database: "SqliteDatabase", *, owns_database: bool = False) -> None:
        self._database = database
        self._owns_database = owns_database
        self._on_expired: list[Callable[[], None]] = []
        self._closed = False
        self._session_id = 0
        self._begin()

    def _begin(self) -> None:
        self._session_id = self._database.begin_session()

    @property
    def session_id(self) -> int:
        return self._session_id

    def another_session(self) -> "SqliteStore":
        """A further session of the same store, as another broker would have one."""
        return SqliteStore(self._database)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        check_path(path)
        return await self._call(lambda tree: tree.get(path), ("data", path), watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        return await self._call(lambda tree: tree.stat(path), ("data", path), watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        return await self._call(lambda tree: tree.children(path), ("children", path), watch)

    async def batch(self, items: Sequence[Item]) -> list[Outcome]:
        for item in items:
            for op in ops_of(item):
                check_op(op)
        # The id is read now: `renew` may give this object another one before the thread carries the
        # call out.
        session_id = self._session_id
        return await self._call(lambda tree: [tree.write(item, session_id) for item in items])

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def expire(self) -> None:
        """End the session as ZooKeeper does when a broker is silent for too long (for tests)."""
        if self._database.is_over(self._session_id):
            return
        await self._database.end_session(self._session_id)
        for callback in list(self._on_expired):
            callback()

    async def renew(self) -> None:
        if self._closed:
            raise SessionExpired(self._session_id)
        if self._database.is_over(self._session_id):
            self._begin()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Cancelled here, the session would keep its ephemeral nodes, and could not be ended any more.
        with trio.CancelScope(shield=True):
            try:
                if not self._database.is_over(self._session_id):
                    await self._database.end_session(self._session_id)
            finally:
                if self._owns_database:
                    await self._database.close()

    async def _call(
        self, work: "Callable[[_Tree], Answer]", key: WatchKey | None = None, watch: Watch | None = None
    ) -> Answer:
        if self._closed:
            raise SessionExpired(self._session_id)
        return await self._database.call(self._session_id, work, key, watch)


class SqliteDatabase:
    """The store on the loop's side: the queue of calls, the sessions and their watches."""

    def __init__(self, tree: "_Tree", in_thread: InThread, now_ms: Callable[[], int]) -> None:
        self._tree = tree
        self._in_thread = in_thread
        self._now_ms = now_ms
        self._turn = trio.Lock()  # held while the thread is in the tree
        self._queue: list[_Call] = []
        self._next_session_id = tree.openings * SESSIONS_OF_ONE_OPENING + 1
        self._watches: dict[int, dict[WatchKey, dict[Watch, None]]] = {}  # by session id; every live session is a key

    def session(self) -> SqliteStore:
        """A new session."""
        return SqliteStore(self)

    def begin_session(self) -> int:
        """Begin a session; returns its id."""
        session_id = self._next_session_id
        self._next_session_id += 1
        self._watches[session_id] = {}
        return session_id

    def is_over(self, session_id: int) -> bool:
        """Whether this session has ended."""
        return session_id not in self._watches

    def content(self) -> bytes:
        """A copy of a store in memory, between two calls."""
        return self._tree.content()

    async def end_session(self, session_id: int) -> None:
        """Delete the session's ephemeral nodes and drop its watches."""
        call = _Call(session_id, lambda tree: tree.end_session(session_id), ends_session=True)
        try:
            await self._perform(call)
        # An earlier call in the queue has ended it.
        except SessionExpired:
            return

    async def close(self) -> None:
        """Close the file. Every later call raises StoreUnavailable; closing twice is allowed."""
        with trio.CancelScope(shield=True):
            async with self._turn:
                await self._in_thread(self._tree.close)

    async def call(
        self,
        session_id: int,
        work: "Callable[[_Tree], Answer]",
        key: WatchKey | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        """What `work` returns or raises, once that is committed. `watch` is set for `key` if it returns.

        SessionExpired; StoreUnavailable.
        """
        answers: list[Answer] = []
        armed = (key, watch) if key is not None and watch is not None else None
        await self._perform(_Call(session_id, lambda tree: answers.append(work(tree)), armed))
        return answers[0]

    async def _perform(self, call: _Call) -> None:
        self._queue.append(call)
        try:
            async with self._turn:
                # If the call was taken, the task that held the lock before has carried it out with
                # its own.
                if not call.taken:
                    await self._run_queue()
        finally:
            # The call was cancelled while it waited for the lock.
            if not call.taken:
                self._queue.remove(call)
        if call.failure is not None:
            raise StoreUnavailable(self._tree.path, call.failure)
        if call.error is not None:
            raise call.error

    async def _run_queue(self) -> None:
        calls = self._queue
        self._queue = []
        for call in calls:
            call.taken = True
        # Some of the calls belong to other tasks, and must not be cancelled with this one.
        with trio.CancelScope(shield=True):
            failure = await self._in_thread(self._tree.run, calls, self._now_ms())
        due: list[Watch] = []
        for call in calls:
            call.failure = failure
            if failure is None:
                self._settle(call, due)
        # The watches come last: what they do must find all the calls settled.
        for watch in due:
            watch()

    def _settle(self, call: _Call, due: list[Watch]) -> None:
        """Set the watch of a committed call, and move the watches that it triggered to `due`."""
        # A watch fires once, so it is removed here; the watches of all sessions see the change.
        for key in call.changed:
            for watches in self._watches.values():
                due.extend(watches.pop(key, ()))
        if call.error is not None:
            return
        if call.ends_session:
            self._watches.pop(call.session_id, None)
        elif call.watch is not None:
            key, watch = call.watch
            self._watches[call.session_id].setdefault(key, {})[watch] = None


def _create_private(path: str) -> None:
    """Create the file, if it is not there, so that only its owner may read it."""
    # An existing file is not opened: to close it again would end the locks of this process on it.
    # An error is left to SQLite.
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE))


def _make_private(path: str) -> None:
    """The same of a file that was there, and of its log."""
    for each in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):
            os.chmod(each, PRIVATE_MODE)


class _Tree(Nodes):
    """The nodes in SQLite. Every method blocks; one thread at a time may call them.

    All but the constructor, `run` and `close` are called by the `work` of a call, inside `run`, and raise `NodeError`.
    """

    def __init__(self, path: str, max_bytes: int, content: bytes | None) -> None:
        import sqlite3

        self.path = path
        self._final_failure: str | None = None  # once set, the store stays unavailable
        self._ended: dict[int, None] = {}

        # These belong to the transaction that is running.
        self._ending: dict[int, None] = {}
        self._changed: list[WatchKey] = []
        self._now_ms = 0
        if path != IN_MEMORY:
            _create_private(path)
        try:
            # The timeout is 0, because the holder of the lock keeps it until its process ends.
            # Threads are not checked, because each call may run in another worker thread.
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                if content is not None:
                    self._connection.deserialize(content)
                self._zxid, self.openings = self._open(max_bytes)
                if path != IN_MEMORY:
                    _make_private(path)
            except (sqlite3.Error, StoreUnavailable):
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise StoreUnavailable(path, _explain(error)) from error

    def _open(self, max_bytes: int) -> tuple[int, int]:
        """Lock the file, create or check its tables, end the sessions of earlier processes: (zxid, openings)."""
        execute = self._connection.execute

        # Locking is made exclusive before the first access in WAL mode: then SQLite needs no
        # shared-memory file.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")

        # One transaction creates all tables: a crash leaves a file without tables, or one that is
        # complete.
        execute("BEGIN IMMEDIATE")
        if execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in _SCHEMA:
                execute(statement)
        self._check_kind()

        # The end of the earlier sessions is a write transaction of its own, so it takes a zxid.
        execute("UPDATE counters SET zxid = zxid + 1, openings = openings + 1")
        execute("DELETE FROM nodes WHERE owner != 0")
        zxid, openings = execute("SELECT zxid, openings FROM counters").fetchone()
        execute("COMMIT")

        # A write beyond the limit fails as on a full disk (SQLITE_FULL).
        (page_size,) = execute("PRAGMA page_size").fetchone()
        execute(f"PRAGMA max_page_count = {max_bytes // page_size}")
        return zxid, openings

    def _check_kind(self) -> None:
        (application_id,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise StoreUnavailable(self.path, "this is a database of another application")
        if version != SCHEMA_VERSION:
            raise StoreUnavailable(self.path, f"its format is {version}, and this program reads {SCHEMA_VERSION}")

    def content(self) -> bytes:
        """A copy of all nodes."""
        return self._connection.serialize()

    def close(self) -> None:
        """Close the file; SQLite folds its write-ahead log into it."""
        self._final_failure = "it is closed"
        self._connection.close()

    def run(self, calls: Sequence[_Call], now_ms: int) -> str | None:
        """Carry out the calls in one transaction and commit it. None, or the reason why nothing of it was written."""
        import sqlite3

        if self._final_failure is not None:
            return self._final_failure
        zxid = self._zxid
        self._now_ms = now_ms
        self._ending = {}
        try:
            self._run_transaction(calls)
        except sqlite3.DatabaseError as error:
            # The transaction was rolled back, and the counter in the file with it.
            self._zxid = zxid
            if not _is_of_the_file(error):
                raise

            # A full disk fails this transaction alone, and may have room later. After any other error it is unknown
            # what the disk holds (a failed sync drops dirty pages), so nothing more is written.
            if _primary_code(error) != sqlite3.SQLITE_FULL:
                self._final_failure = _explain(error)
            return _explain(error)

        # The sessions end after the commit: had it failed, they would still own their nodes.
        self._ended.update(self._ending)
        return None

    def _run_transaction(self, calls: Sequence[_Call]) -> None:
        zxid = self._zxid
        try:
            for call in calls:
                self._carry_out(call)
            # The counter is written once for all writes of the transaction. If the calls only
            # read, there is no transaction, and no sync.
            if self._zxid != zxid:
                self._connection.execute("UPDATE counters SET zxid = ?", (self._zxid,))
            self._connection.commit()
        finally:
            if self._connection.in_transaction:
                self._connection.rollback()

    def _carry_out(self, call: _Call) -> None:
        # An earlier call of this transaction may have ended the session, because calls are carried
        # out in order.
        if call.session_id in self._ended or call.session_id in self._ending:
            call.error = SessionExpired(call.session_id)
            return
        self._changed = call.changed
        try:
            call.work(self)
        except NodeError as error:
            call.error = error

    def _begin(self) -> None:
        # The transaction begins at the first write, so calls that only read need none.
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")

    # Operations, for the `work` of calls.

    def get(self, path: str) -> tuple[bytes | None, Stat]:
        """A node's data and stat."""
        row = self._select(f"data, {_STAT}", path).fetchone()
        if row is None:
            raise NoNode(path)
        return row[0], Stat(*row[1:])

    def stat(self, path: str) -> Stat | None:
        """A node's stat, if it exists."""
        row = self._select(_STAT, path).fetchone()
        return None if row is None else Stat(*row)

    def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted."""
        self.expect(path)
        rows = self._connection.execute("SELECT name FROM nodes WHERE parent = ? ORDER BY name", (path,))
        return [name for (name,) in rows]

    def write(self, item: Item, session_id: int) -> Outcome:
        """Carry out an operation, or a sequence as a multi: all or nothing, and one zxid. The outcome as in `batch`."""
        ops = ops_of(item)
        too_large = refuse_large(ops)
        if too_large is not None:
            return too_large
        self._begin()
        self._connection.execute("SAVEPOINT item")
        changed_before = len(self._changed)
        self._zxid += 1
        try:
            results = [self.apply(op, session_id) for op in ops]
        except NodeError as refusal:
            # The operation is undone as if it had not been tried: nodes, triggered watches and
            # zxid.
            self._connection.execute("ROLLBACK TO item")
            self._connection.execute("RELEASE item")
            del self._changed[changed_before:]
            self._zxid -= 1
            # With its traceback the error would be in a reference cycle: the traceback holds the
            # caller's frame, and the frame holds the list of all outcomes. Only a full collection
            # frees a cycle, and after `gc.freeze` none does.
            return refusal.with_traceback(None)

        self._connection.execute("RELEASE item")

        # A multi's outcome is a list, also of one result.
        return results if ops is item else results[0]

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session; its later calls are refused (SessionExpired)."""
        self._begin()
        self._ending[session_id] = None
        # The second condition is that of the partial index `ephemerals`, so SQLite can use it.
        owned = "owner = ? AND owner != 0"
        rows = self._connection.execute(f"SELECT parent, name FROM nodes WHERE {owned}", (session_id,)).fetchall()
        if rows:
            self._zxid += 1
            self._connection.execute(f"DELETE FROM nodes WHERE {owned}", (session_id,))
        for parent, name in rows:
            self._deleted(parent, _join(parent, name))

    # One operation.

    def create(self, op: Create, session_id: int) -> Created:
        parent, name = _split(op.path)
        found = self._select("owner, children_created", parent).fetchone()
        if found is None:
            raise NoParent(op.path)
        parent_owner, children_created = found
        if op.sequential:
            name = f"{name}{children_created:010d}"
        path = _join(parent, name)
        if self._select("1", path).fetchone() is not None:
            raise NodeExists(op.path)
        if parent_owner != 0:
            raise EphemeralParent(op.path)
        stat = Stat(0, self._zxid, self._zxid, session_id if op.ephemeral else 0, self._now_ms)
        row = (parent, name, op.data, stat.version, stat.czxid, stat.mzxid, stat.owner, stat.ctime_ms, 0)
        self._connection.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

        # This number never falls: a sequential node must not get the number of one that was
        # deleted.
        self._connection.execute(
            f"UPDATE nodes SET children_created = children_created + 1 WHERE {_THIS}", _split(parent)
        )
        self._changed += ("data", path), ("children", parent)
        return Created(path, stat)

    def set(self, op: SetData) -> Stat:
        before = self.expect(op.path, op.version)
        stat = replace(before, version=before.version + 1, mzxid=self._zxid)
        values = (op.data, stat.version, stat.mzxid, *_split(op.path))
        self._connection.execute(f"UPDATE nodes SET data = ?, version = ?, mzxid = ? WHERE {_THIS}", values)
        self._changed.append(("data", op.path))
        return stat

    def delete(self, op: Delete) -> None:
        self.expect(op.path, op.version)
        if self._connection.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (op.path,)).fetchone():
            raise NotEmpty(op.path)
        parent, name = _split(op.path)
        self._connection.execute(f"DELETE FROM nodes WHERE {_THIS}", (parent, name))
        self._deleted(parent, op.path)

    def _deleted(self, parent: str, path: str) -> None:
        # As in ZooKeeper, a watch on a node's children fires when the node itself is deleted, too.
        self._changed += ("data", path), ("children", path), ("children", parent)

    def _select(self, columns: str, path: str) -> "sqlite3.Cursor":
        return self._connection.execute(f"SELECT {columns} FROM nodes WHERE {_THIS}", _split(path))


def _split(path: str) -> tuple[str, str]:
    """A path as (parent, name). Both are empty for the root, so it is not listed as its own child."""
    parent, _, name = path.rpartition("/")
    return (parent or "/", name) if name or parent else ("", "")


def _join(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def _is_of_the_file(error: "sqlite3.DatabaseError") -> bool:
    """Whether the cause is the file (I/O, space, damage) and not our SQL or our use of the library."""
    import sqlite3

    # SQLITE_ERROR is SQLite's code for wrong SQL; damage is a plain DatabaseError, I/O an OperationalError.
    is_outside = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
    return is_outside and _primary_code(error) != sqlite3.SQLITE_ERROR


def _primary_code(error: "sqlite3.Error") -> int | None:
    """SQLite's result code without its extension; None when the error is of Python's module itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _explain(error: "sqlite3.Error") -> str:
    import sqlite3

    if _primary_code(error) == sqlite3.SQLITE_BUSY:
        return "another process has it open"
    return f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
