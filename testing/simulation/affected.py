"""Whom a fault of a plan affects, for the story and the diagram (pure)."""

from collections.abc import Mapping, Sequence

from barnabas.testing.simulation.harm import Fault
from barnabas.testing.simulation.store import STORE

# Kind of fault -> whom it affects: its two parties, the store, all brokers, or those that it took down at once.
# Some faults wait for a moment and choose a broker then: the story says so when they do.
TARGET, OTHER, ALL, DOWNED = "target", "other", "all", "downed"
AFFECTED: Mapping[str, tuple[str, ...]] = {
    "delay": (TARGET, OTHER),
    "lose-connections": (TARGET, OTHER),
    "cut-one-way": (TARGET, OTHER),
    "partition": (TARGET, OTHER),
    "isolate": (TARGET,),
    "leave-store": (TARGET, STORE),
    "crash-process": (TARGET,),
    "crash-machine": (TARGET,),
    "kill-controller": (DOWNED,),
    "restart": (TARGET,),
    "pause": (TARGET,),
    "slow-disk": (TARGET,),
    "disk-error": (TARGET,),
    "disk-full": (TARGET,),
    "skew-clock": (TARGET,),
    "expire-session": (TARGET,),
    "lose-store-answer": (TARGET, STORE),
    "late-watches": (STORE,),
    "stop-store": (STORE,),
    "directory-error": (TARGET,),
    "error-in-a-move": (TARGET,),
    "slow-syncs": (TARGET,),
    "expire-all": (ALL,),
    "crash-all": (ALL,),
    "restart-two": (TARGET, OTHER),
    "pause-long": (TARGET,),
    "error-in-a-cut": (TARGET,),
    "crash-unseen": (DOWNED,),
    "left-behind": (TARGET,),
    "hold-connections": (TARGET,),
    "pause-decider": (),
    "isolate-decider": (),
    "late-markers": (),
    "late-proofs": (),
    "strand-coordinator": (),
}


def parties_of(fault: Fault, took_down: Sequence[str], brokers: Sequence[str]) -> list[str]:
    """The names of the parties: `took_down` are the brokers that it took down at once, `brokers` are all of them."""
    chosen: dict[str, Sequence[str]] = {
        TARGET: [fault.target],
        OTHER: [fault.other],
        STORE: [STORE],
        ALL: brokers,
        DOWNED: took_down,
    }
    # The plan draws two parties for every kind of fault, whether the kind has to do with them or not.
    return [name for each in AFFECTED[fault.kind] for name in chosen[each]]
