"""What a partition and a group look like, and their drawings of a few lines (pure).

    letters-0  leader 1 · epoch 0 · in sync 1 2 3
      1 ★  █ 0 one │ ▒ 1 two |   HW 1  LEO 2
      2    █ 0 one │|            HW 1  LEO 1
      3    down, with 0 one

`LEGEND` explains the signs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEGEND = "█ below the high watermark   ▒ above it   │ high watermark   | log end   ★ leads   ✕ out of sync"


class Cell(NamedTuple):
    """One record of a log."""

    offset: int
    text: str


class ReplicaPicture(NamedTuple):
    """One replica as its broker has it, or had it when it was killed."""

    is_running: bool
    cells: Sequence[Cell]
    high_watermark: int
    log_end_offset: int


class PartitionPicture(NamedTuple):
    """All replicas of a partition at one moment."""

    name: str
    leader_id: int | None
    leader_epoch: int
    in_sync_replicas: Sequence[int]
    replicas: Mapping[int, ReplicaPicture]

    @property
    def running(self) -> dict[int, ReplicaPicture]:
        """The replicas whose brokers run."""
        return {key: each for key, each in self.replicas.items() if each.is_running}

    def lines(self) -> list[str]:
        """The drawing."""
        leader = "no leader" if self.leader_id is None else f"leader {self.leader_id}"
        members = " ".join(map(str, self.in_sync_replicas))
        is_known = bool(self.running)
        state = f"{leader} · epoch {self.leader_epoch} · in sync {members}" if is_known else "no broker runs"
        # All logs are as wide as the longest one, so that the numbers behind them are below each other.
        logs = {key: _log(each) for key, each in self.running.items()}
        width = max(map(len, logs.values()), default=0)

        found = [f"{self.name}  {state}"]
        for key, each in self.replicas.items():
            if not each.is_running:
                had = ", ".join(f"{cell.offset} {cell.text}" for cell in each.cells)
                found.append(f"  {key}    down, with {had or 'nothing'}")
                continue
            mark = "★" if key == self.leader_id else " " if key in self.in_sync_replicas else "✕"
            found.append(f"  {key} {mark}  {logs[key]:{width}}   HW {each.high_watermark}  LEO {each.log_end_offset}")
        return found


class GroupPicture(NamedTuple):
    """Who reads which partition; None: no one does."""

    name: str
    owners: Mapping[int, str | None]

    def lines(self) -> list[str]:
        """The drawing."""
        # A dash stands for a partition that waits for a reader.
        owners = "   ".join(f"{partition} {owner or '—'}" for partition, owner in self.owners.items())
        return [f"{self.name}  {owners}"]


def _log(replica: ReplicaPicture) -> str:
    """The records, with the high watermark between those below it and those above it."""
    # The bar of the high watermark has a place of its own, also at the end of the log.
    below = [f"█ {each.offset} {each.text} " for each in replica.cells if each.offset < replica.high_watermark]
    above = [f" ▒ {each.offset} {each.text}" for each in replica.cells if each.offset >= replica.high_watermark]
    return "".join(below) + "│" + "".join(above) + (" |" if above else "|")
