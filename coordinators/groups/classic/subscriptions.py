"""Which topics a generation of a consumer group subscribes to (pure): read once, from what its members sent.

A subscription is bytes of a client. Its names may take twenty times as much memory as objects, and the time to decode
them, 0.1 s for a subscription of 2 MiB. So they are read in steps, once in a generation and only if it matters (offsets
expire or are deleted), and only eight bytes are kept of each name.
"""

from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable
from hashlib import blake2b

from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.records import Steps

# A subscription begins with an int16 version. Later versions only add fields at the end, so all are read as version 0.
VERSION_BYTES = 2
# These limits hold for the different subscriptions of a group together. By default, more do not fit
# into the group's record. A group may have more for a moment, until its assignments are refused
# because the record is too large.
BYTES_MAX = 1 << 20
TOPICS_MAX = 20_000
STEP_BYTES = 1 << 14  # of subscriptions that are compared, in a step
MEMBER_COST_BYTES = 100
NAMES_AT_A_TIME = 500


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


class _Topics(Container[str]):
    # The names are sorted digests. Two names with the same digest are as rare as a damaged bit in
    # memory, and would only keep an offset from expiring.
    def __init__(self, digests: Iterable[int]) -> None:
        self._digests = array("Q", sorted(digests))

    def __contains__(self, name: object) -> bool:
        digest = _digest(str(name))
        place = bisect_left(self._digests, digest)
        return place < len(self._digests) and self._digests[place] == digest


def _digest(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())


EVERYTHING: Container[str] = _Everything()  # any topic may be in use
NOTHING: Container[str] = frozenset()


def reading(subscriptions: Iterable[bytes]) -> Steps[Container[str]]:
    """The topics that these subscriptions name, in steps.

    EVERYTHING if one cannot be decoded, or if they exceed BYTES_MAX or TOPICS_MAX: they are unknown then.
    """
    digests: set[int] = set()

    # Most members of a group send the same subscription: each different one is decoded once.
    known: set[bytes] = set()
    known_bytes = step_bytes = 0
    for subscription in subscriptions:
        step_bytes += MEMBER_COST_BYTES + len(subscription)
        if step_bytes > STEP_BYTES:
            step_bytes = 0
            yield None
        if subscription in known:
            continue
        known.add(subscription)
        known_bytes += len(subscription)
        if known_bytes > BYTES_MAX:
            return EVERYTHING
        decoded = m.ConsumerProtocolSubscription()

        # The metadata are the clients' bytes; any client may write something else there.
        try:
            yield from m.decode_steps(decoded, 0, subscription, VERSION_BYTES)
        except ProtocolViolation:
            return EVERYTHING
        names, decoded.topics = list(decoded.topics), ()

        # The names are released from the end, in portions: the interpreter would free very many in
        # one step.
        while names:
            digests.update(map(_digest, names[-NAMES_AT_A_TIME:]))
            del names[-NAMES_AT_A_TIME:]
            if len(digests) > TOPICS_MAX:
                return EVERYTHING
            if names:
                yield None

    return _Topics(digests)
