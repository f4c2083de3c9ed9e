"""The rules about leaders: what the metadata store says of them, and what a new leader must have (I1, I6, I14).

Kafka guarantees that acknowledged records are kept as long as one in-sync replica that has them can
be elected. So a new leader may lack committed records only if

  - the election was unclean and the topic allows that, or
  - its machine lost them in a crash, the topic does not sync before it acknowledges (`flush.messages=1`), and no other
    in-sync replica that still had them was reliable when the leader was elected. A reliable broker is registered for
    `SETTLED_SECONDS`, because a controller may not have read a newer registration; and it had returned from the last
    crash of its machine when the partition's last state was written, because otherwise it may have lost records as
    well. (A state may contain a broker whose machine has crashed, as long as its session lasts.)

Any other loss is a violation. A permitted one cuts the `Truth` of the partition; it is counted, and noted in the story.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionState
from barnabas.testing.simulation.in_sync_rules import Election
from barnabas.testing.simulation.rules import Findings
from barnabas.testing.simulation.truth import Shadow, Truth, Truths, first_difference
from barnabas.wire.records import BatchHeader
from barnabas.wire.sentinels import NO_LEADER

SETTLED_SECONDS = 3.0


class LeaderRules:
    """I1, I6, I14; I3 and I4 where a new leader lacks what was committed."""

    def __init__(self, findings: Findings, truths: Truths, on_loss: Callable[[Truth], None]) -> None:
        """`on_loss`: records of this partition are gone, by a permitted loss or a violation."""
        self.unclean_topics: set[str] = set()  # that allow it
        self.synced_topics: set[str] = set()  # that acknowledge only what is synced
        self.leaders_write_states = False  # under the controller epoch of their role
        self._violate = findings.violate
        self._count = findings.count
        self._tell = findings.tell
        self._now = findings.now
        self._truths = truths
        self._on_loss = on_loss
        self._elections: dict[tuple[str, int], list[Election]] = {}
        self._registered: dict[int, float] = {}
        self._returned: dict[int, float] = {}  # of machines that crashed: when their broker first registered again
        self._controller_epoch = 0

    def crashed(self, broker_id: int) -> None:
        """The machine of this broker crashed, or lost a directory."""
        # Until its broker registers again, the machine counts as one that has not returned.
        self._returned[broker_id] = math.inf

    def states_of(self, topic: str, partition: int) -> Sequence[Election]:
        """The states of this partition that were written to the store."""
        return self._elections.get((topic, partition), ())

    def check(self, truth: Truth, shadow: Shadow, epoch: int) -> None:
        """A leader starts: everything that was committed under older epochs must be there."""
        other = truth.leaders.setdefault(epoch, shadow.broker_id)
        if other != shadow.broker_id:
            self._violate("I6", f"{truth}: {other} and {shadow.broker_id} both lead in epoch {epoch}")
        self._count("leaders")
        self._tell(f"{truth}: {shadow.broker_id} leads in epoch {epoch}, from {shadow.end_offset}")
        # Batches below the log start were deleted on request, and the new leader need not have
        # them.
        begin = bisect_left(truth.committed, shadow.start_offset, key=lambda batch: batch.last_offset)
        end = truth.committed_before(epoch)
        expected = truth.committed[begin:end]
        first = shadow.index_of(expected[0].base_offset) if expected else 0
        missing = first_difference(expected, shadow.batches[first : first + len(expected)])
        if missing is None:
            voids = truth.topic in self.unclean_topics
            if voids and any(_is_unclean(before, after) for before, after in self._elections_to(truth, epoch)):
                truth.void_older(epoch, "unclean election")
                shadow.high_watermark = min(shadow.high_watermark, truth.committed_end)  # it commits the rest again
            return

        index = begin + missing
        reason = self._why_permitted(truth, shadow, epoch, truth.committed[index])
        if reason is None:
            gone = truth.committed[index:end]
            acked = any(batch.base_offset in truth.acked for batch in gone)
            served = any(batch.base_offset in truth.served for batch in gone)
            rule = "I1" if acked else "I3" if served else "I4"
            self._violate(rule, f"{truth}: the leader {shadow.broker_id} of epoch {epoch} lacks {gone[0]}")
            reason = "violation"

        self._count(f"losses: {reason}")
        cut = truth.cut(index, epoch, reason)
        shadow.high_watermark = min(shadow.high_watermark, cut.offset)  # what it commits instead is looked at
        self._tell(f"{truth} loses everything from {cut.offset}: {reason}")
        self._on_loss(truth)

    def _why_permitted(self, truth: Truth, shadow: Shadow, epoch: int, batch: BatchHeader) -> str | None:
        """Which rule permits that this leader lacks this batch."""
        for before, after in self._elections_to(truth, epoch):
            if _is_unclean(before, after):
                return "unclean election" if truth.topic in self.unclean_topics else None
            if after.state.leader_epoch == before.state.leader_epoch:
                continue
            if after.state.leader != shadow.broker_id or truth.topic in self.synced_topics:
                continue
            holders = [each for each in before.state.isr if each in after.reliable and each != shadow.broker_id]
            if shadow.forgot(batch.last_offset) and not any(truth.shadows[each].holds(batch) for each in holders):
                return "machine crash"
        return None

    def _elections_to(self, truth: Truth, epoch: int) -> Iterator[tuple[Election, Election]]:
        """Each that led from the leader before to the one of this epoch, behind the state that it replaced."""
        started = max((each for each in truth.leaders if each < epoch), default=-1)
        for before, after in pairwise(self.states_of(truth.topic, truth.partition)):
            if started < after.state.leader_epoch <= epoch and after.state.leader != NO_LEADER:
                yield before, after

    def stored(self, path: str, data: bytes | None) -> None:
        """A node was written (None: is gone)."""
        if path.startswith(paths.TOPICS) and path.endswith("/state"):
            self._stored_state(path, data)
        elif path.startswith(paths.BROKER_IDS + "/"):
            broker_id = int(path.rpartition("/")[2])
            self._registered.pop(broker_id, None)
            if data is not None:
                self._registered[broker_id] = self._now()
                if self._returned.get(broker_id) == math.inf:
                    self._returned[broker_id] = self._now()
        elif path == paths.CONTROLLER_EPOCH and data is not None:
            self._controller_epoch = int(data)

    def _stored_state(self, path: str, data: bytes | None) -> None:
        _, _, _, topic, _, index, _ = path.split("/")
        key = topic, int(index)
        if data is None:
            self._elections.pop(key, None)
            for truth in self._truths.named(*key):
                truth.is_deleted = True
            return

        state = PartitionState.decode(data, path)
        history = self._elections.setdefault(key, [])
        settled = self._now() - SETTLED_SECONDS
        written = history[-1].written if history else -math.inf
        reliable = frozenset(
            each
            for each, since in self._registered.items()
            if since < settled and self._returned.get(each, -math.inf) <= written
        )
        if history:
            last = history[-1].state
            if state.leader_epoch < last.leader_epoch or state.controller_epoch < last.controller_epoch:
                self._violate("I14", f"{topic}-{index}: {state} follows {last}")
            if state.leader_epoch == last.leader_epoch and NO_LEADER != state.leader != last.leader:
                self._violate("I14", f"{topic}-{index}: another leader in the same epoch: {state} follows {last}")

        if state.controller_epoch < self._controller_epoch and not self.leaders_write_states:
            self._violate("I14", f"{topic}-{index}: {state} of an older controller than {self._controller_epoch}")
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self._violate("I14", f"{topic}-{index}: the leader is not in sync in {state}")
        history.append(Election(state, self._now(), reliable))
        self._tell(f"{topic}-{index}: leader {state.leader}, epoch {state.leader_epoch}, in sync {list(state.isr)}")


def _is_unclean(before: Election, after: Election) -> bool:
    return after.state.leader not in before.state.isr
