"""A Fetch of a shape: planned, and answered or waiting for `min_bytes`."""

from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.fetching.in_session import Planned, begin_in, is_enough, plan_some, select
from barnabas.broker.fetching.plan import FetchPlan, Row
from barnabas.replication.fetch_sessions import FetchSession, Wanted
from barnabas.replication.partition import Partition
from barnabas.world.waiting import Pieces, Waiter

if TYPE_CHECKING:
    from barnabas.broker.tally import ApiTally
    from barnabas.wire import messages as m


class Filling(Protocol):
    """What a response takes from the shape of its request. Implemented by FetchShape."""

    request: "m.FetchRequest"
    tally: "ApiTally | None"

    def nothing(self, correlation_id: bytes) -> bytes:
        """The response without rows."""
        ...

    def parts_for(self, wanted: Wanted, row: Row) -> list[bytes] | None:
        """The bytes around what changes in a response with this row; None if the row has an error, or is not simple."""
        ...

    def filled(self, parts: list[bytes], correlation_id: bytes, row: Row) -> Pieces:
        """The response with this row."""
        ...


class WaitingFetch:
    """A request of a shape: planned, and answered or waiting for `min_bytes`."""

    __slots__ = ("_began_ms", "_correlation_id", "_due", "_plan", "_session", "_shape", "_waiter", "_watched")

    def __init__(self, shape: Filling, plan: FetchPlan, session: FetchSession | None, correlation_id: bytes) -> None:
        self._shape = shape
        self._plan = plan
        self._session = session
        self._correlation_id = correlation_id
        self._due: list[Wanted] = []
        self._watched: Partition | None = None  # without a session
        # A follower needs no response for a higher high watermark alone: its next fetch brings it.
        self._waiter = Waiter(sleeps_through_commits=plan.replica_id >= 0) if session is None else session.waiter
        self._began_ms = 0.0 if session is None else begin_in(session, plan)

    def begin(self, due: list[Wanted]) -> "Pieces | Planned | WaitingFetch":
        """The response, or what the handler makes it of, or this object if it has to wait."""
        try:
            return self._respond() if self._plan_some(due) else self
        except BaseException:
            self._give_back()
            raise

    def _plan_some(self, due: list[Wanted]) -> bool:
        """Plan these partitions; whether the request is answered without a further wait."""
        plan = self._plan
        session = self._session
        self._due = due
        if session is None:
            (wanted,) = due
            found = plan.plan(wanted)
            # The waiter stays with the partition found first: if another object has replaced it, the plan fails.
            self._watched = self._watched or found
            is_watching = found is not None
        else:
            plan_some(plan, session, due)
            # This follows the planning of all due partitions: a partition that is not due did not change before
            # `_began_ms`, so the follower had all of it at that time.
            session.pulse.last_fetch_ms = self._began_ms
            is_watching = session.is_watching
        if is_enough(plan, self._shape.request) or not is_watching:
            return True
        if self._watched is not None:
            self._waiter.register([self._watched])
        return False

    async def finish(self) -> Pieces | Planned:
        """Wait until enough is planned, or for `max_wait_ms`, and respond."""
        plan = self._plan
        session = self._session
        deadline = trio.current_time() + self._shape.request.max_wait_ms / 1000
        try:
            while await self._waiter.wait(deadline):
                # From now on a plan does not count as the follower's progress: the offset is that of the arrival.
                plan.has_waited = True
                if session is None:
                    self._waiter.take_dirty()
                if self._plan_some(self._due if session is None else session.take_due()):
                    break
            return self._respond()
        except BaseException:
            self._give_back()
            raise
        finally:
            if self._watched is not None:
                self._waiter.unregister([self._watched])

    def _give_back(self) -> None:
        """The request fails: what it has taken from the session is for the next one."""
        # `take_due` emptied `session.due`. A partition whose row was never sent must be planned by the next request.
        if self._session is not None:
            self._session.due.update(dict.fromkeys([*self._plan.rows, *self._due]))
        self._plan.release()

    def _respond(self) -> Pieces | Planned:
        """The response, or what the handler makes it of."""
        plan = self._plan
        session = self._session
        shape = self._shape
        if plan.urgent or plan.throttled or len(plan.rows) > 1 or (plan.has_slices and not plan.is_warm()):
            return Planned(plan, session)
        response: Pieces = [shape.nothing(self._correlation_id)]
        is_sent = False
        for wanted, row in plan.rows.items():
            parts = shape.parts_for(wanted, row)
            if parts is None:
                return Planned(plan, session)
            is_sent = is_served = session is None
            if session is not None:
                is_sent, is_served = select(plan, session, wanted, row, incremental=True)
            if session is not None and is_served:
                session.due[wanted] = None
            if is_sent:
                response = shape.filled(parts, self._correlation_id, row)
        plan.count_sent_of_one()
        if shape.tally is not None:
            shape.tally.successes += 1 + is_sent
        return response
