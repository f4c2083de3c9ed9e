"""The embedded metadata store: ZooKeeper's data model in one SQLite file, or in memory.

Theory of operation
-------------------
`_Tree` is the blocking half: the nodes in one table, and every rule of `store.py` as SQL. It runs in a worker thread,
never in two at once, and knows neither tasks nor watches. `SqliteDatabase` is the half on the loop: it owns the tree,
the sessions and their watches. `SqliteStore` is one session.

Calls queue in the order in which they were made. The call whose turn it is takes the whole queue and carries it out in
one visit to the thread and one transaction, so that many tasks share one sync (group commit) and many reads one thread
hop. Within it each item of a batch is a savepoint. After the commit the watches of the reads are armed and those that
the writes met are fired, in the order of the calls.

Durability: a file is in WAL mode with synchronous=FULL: an answered write survives a power cut, at the price of one
sync a transaction. A full disk fails the transaction and nothing else; after any other error of the file the store
stays unavailable, since a failed sync leaves unknown what the disk holds.

A file belongs to one process: SQLite's exclusive locking mode keeps others out (and saves WAL its shared memory). So
sessions end with their process, and opening deletes what ephemeral nodes an earlier one left. A session's id is the
file's opening, counted, and a number within it: no owner is ever confused with an earlier one.
"""

from collections.abc import Callable, Sequence
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

APPLICATION_ID = 0x4261726E  # "Barn", in the file's header, tells our files from other people's
SCHEMA_VERSION = 1
SESSIONS_OF_ONE_OPENING = 1 << 20
STORE_MAX_BYTES = 1 << 30  # some million partitions; a runaway writer meets this before the logs' disk is full

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
    """One session of the store in this file (made when missing), or IN_MEMORY; closing it closes the file.

    StoreUnavailable when another process has it open, or it cannot be read or is no such file.
    """
    database = await open_sqlite_database(path, in_thread, now_ms)
    return SqliteStore(database, owns_database=True)


async def open_sqlite_database(
    path: str, in_thread: InThread, now_ms: Callable[[], int], *, max_bytes: int = STORE_MAX_BYTES
) -> "SqliteDatabase":
    """The store itself, for several sessions in one process; StoreUnavailable as above."""
    with trio.CancelScope(shield=True):  # an open file must not be lost on the way home
        tree = await in_thread(_Tree, path, max_bytes)
    return SqliteDatabase(tree, in_thread, now_ms)


@dataclass(eq=False, slots=True)
class _Call:
    """One request on its way through the thread, which fills in what became of it."""

    session_id: int
    work: "Callable[[_Tree], None]"
    watch: tuple[WatchKey, Watch] | None = None  # armed when the work succeeds
    ends_session: bool = False
    taken: bool = False
    error: NodeError | SessionExpired | None = None
    changed: list[WatchKey] = field(default_factory=list)
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
        """A further session of the same store, as another broker would have."""
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
        session_id = self._session_id
        return await self._call(lambda tree: [tree.write(item, session_id) for item in items])

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def expire(self) -> None:
        """End the session as if its broker had not been heard of for too long (tests and simulations)."""
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
        with trio.CancelScope(shield=True):  # a session that cannot be ended any more would keep its nodes
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
        self._turn = trio.Lock()
        self._queue: list[_Call] = []
        self._next_session_id = tree.openings * SESSIONS_OF_ONE_OPENING + 1
        self._watches: dict[int, dict[WatchKey, dict[Watch, None]]] = {}  # of each living session

    def session(self) -> SqliteStore:
        """A new session."""
        return SqliteStore(self)

    def begin_session(self) -> int:
        """The id of a session that begins now."""
        session_id = self._next_session_id
        self._next_session_id += 1
        self._watches[session_id] = {}
        return session_id

    def is_over(self, session_id: int) -> bool:
        """Whether this session has ended."""
        return session_id not in self._watches

    async def end_session(self, session_id: int) -> None:
        """Delete the session's ephemeral nodes and forget its watches."""
        call = _Call(session_id, lambda tree: tree.end_session(session_id), ends_session=True)
        try:
            await self._perform(call)
        except SessionExpired:
            return  # another call was faster

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
        """What `work` returns or raises, once it is committed. `watch` is armed for `key` when it returns."""
        answers: list[Answer] = []
        armed = (key, watch) if key is not None and watch is not None else None
        await self._perform(_Call(session_id, lambda tree: answers.append(work(tree)), armed))
        return answers[0]

    async def _perform(self, call: _Call) -> None:
        self._queue.append(call)
        try:
            async with self._turn:
                if not call.taken:
                    await self._run_queue()
        finally:
            if not call.taken:  # cancelled while it waited
                self._queue.remove(call)
        if call.failure is not None:
            raise StoreUnavailable(self._tree.path, call.failure)
        if call.error is not None:
            raise call.error

    async def _run_queue(self) -> None:
        calls, self._queue = self._queue, []
        for call in calls:
            call.taken = True
        with trio.CancelScope(shield=True):  # the others' calls are in there, too
            failure = await self._in_thread(self._tree.run, calls, self._now_ms())
        due: list[Watch] = []
        for call in calls:
            call.failure = failure
            if failure is None:
                self._settle(call, due)
        for watch in due:
            watch()

    def _settle(self, call: _Call, due: list[Watch]) -> None:
        """Arm the watch of a committed call, and add to `due` those that its changes met."""
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


class _Tree(Nodes):
    """The nodes in SQLite. Every method blocks, and one thread at a time is inside.

    `run` is the only door to what is below it, where a refusal is a NodeError.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        import sqlite3

        self.path = path
        self._final_failure: str | None = None
        self._ended: dict[int, None] = {}
        self._ending: dict[int, None] = {}  # in the transaction that is running, as are the next two
        self._changed: list[WatchKey] = []
        self._now_ms = 0
        try:
            # Waiting for a lock (timeout) is useless: its holder keeps it as long as it lives.
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                self._zxid, self.openings = self._open(max_bytes)
            except (sqlite3.Error, StoreUnavailable):
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise StoreUnavailable(path, _explain(error)) from error

    def _open(self, max_bytes: int) -> tuple[int, int]:
        """Lock the file, make or check its tables, end the sessions of earlier processes: (zxid, openings)."""
        execute = self._connection.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("BEGIN IMMEDIATE")
        if execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in _SCHEMA:
                execute(statement)
        self._check_kind()
        execute("UPDATE counters SET zxid = zxid + 1, openings = openings + 1")
        execute("DELETE FROM nodes WHERE owner != 0")
        zxid, openings = execute("SELECT zxid, openings FROM counters").fetchone()
        execute("COMMIT")
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

    def close(self) -> None:
        """Close the file; SQLite folds its write-ahead log into it."""
        self._final_failure = "it is closed"
        self._connection.close()

    def run(self, calls: Sequence[_Call], now_ms: int) -> str | None:
        """Carry out the calls in one transaction and commit it: None, or why nothing of it was written."""
        import sqlite3

        if self._final_failure is not None:
            return self._final_failure
        zxid, self._now_ms, self._ending = self._zxid, now_ms, {}
        try:
            self._run_transaction(calls)
        except sqlite3.DatabaseError as error:
            self._zxid = zxid
            if not _is_of_the_file(error):
                raise
            if _primary_code(error) != sqlite3.SQLITE_FULL:
                self._final_failure = _explain(error)
            return _explain(error)
        self._ended.update(self._ending)
        return None

    def _run_transaction(self, calls: Sequence[_Call]) -> None:
        zxid = self._zxid
        try:
            for call in calls:
                self._carry_out(call)
            if self._zxid != zxid:
                self._connection.execute("UPDATE counters SET zxid = ?", (self._zxid,))
            self._connection.commit()
        finally:
            if self._connection.in_transaction:
                self._connection.rollback()

    def _carry_out(self, call: _Call) -> None:
        if call.session_id in self._ended or call.session_id in self._ending:
            call.error = SessionExpired(call.session_id)
            return
        self._changed = call.changed
        try:
            call.work(self)
        except NodeError as error:
            call.error = error

    def _begin(self) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")

    # What calls do.

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
        """Carry out one operation, or a sequence of them as a multi: one zxid, all or nothing."""
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
            self._connection.execute("ROLLBACK TO item")
            self._connection.execute("RELEASE item")
            del self._changed[changed_before:]
            self._zxid -= 1
            return refusal
        self._connection.execute("RELEASE item")
        return results if ops is item else results[0]

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session and let it do nothing more."""
        self._begin()
        self._ending[session_id] = None
        owned = "owner = ? AND owner != 0"  # the second half lets the index serve
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
        self._changed += ("data", path), ("children", path), ("children", parent)

    def _select(self, columns: str, path: str) -> "sqlite3.Cursor":
        return self._connection.execute(f"SELECT {columns} FROM nodes WHERE {_THIS}", _split(path))


def _split(path: str) -> tuple[str, str]:
    """A path as (parent, name); the root's are empty."""
    parent, _, name = path.rpartition("/")
    return (parent or "/", name) if name or parent else ("", "")


def _join(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def _is_of_the_file(error: "sqlite3.DatabaseError") -> bool:
    """Whether the outside world is to blame (I/O, space, damage), not our SQL or our use of the library."""
    import sqlite3

    is_outside = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
    return is_outside and _primary_code(error) != sqlite3.SQLITE_ERROR


def _primary_code(error: "sqlite3.Error") -> int | None:
    """SQLite's result code without its extension; None when Python's module raised the error on its own."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _explain(error: "sqlite3.Error") -> str:
    import sqlite3

    if _primary_code(error) == sqlite3.SQLITE_BUSY:
        return "another process has it open"
    return f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
