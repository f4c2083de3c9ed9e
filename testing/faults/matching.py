"""Which requests a fault is about: the names that a test gives, checked, and compared with a request (pure)."""

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, TypedDict

from barnabas.broker.interception import Caller
from barnabas.testing.errors import FaultError
from barnabas.testing.faults.row_cuts import Split, TopicName, layout_for, name_in, split, subjects_of
from barnabas.testing.faults.rows import Layout
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, Api
from barnabas.wire.errors import ErrorCode

# LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition, AllocateProducerIds
SENT_BY_BROKERS = frozenset({4, 5, 6, 7, 27, 56, 67})
# And those that followers send as clients do: Fetch, ListOffsets, OffsetForLeaderEpoch, AddPartitionsToTxn
SENT_BY_FOLLOWERS = frozenset({1, 2, 23, 24})
MAY_BE_OF_BROKERS = SENT_BY_BROKERS | SENT_BY_FOLLOWERS
SUBJECTS = ("topic", "partition", "group", "transactional_id")
SERVED = {api.name: api.key for api in APIS.values() if api.served}


class Matchers(TypedDict, total=False):
    """What narrows a fault; every one may be left out.

    topic, partition, group, transactional_id    only what is about these
    client_id     only clients whose id matches this pattern, as of a file: "billing-*"
    nth           from the nth request that matches (1 is the first); that one alone, unless `times` says more
    times         how often it fires
    chance, seed  it fires with this probability; the same requests are hit in every run with the same seed
    may_miss      it may never fire; else `check` complains
    brokers       requests of brokers are hit as well
    """

    topic: str
    partition: int
    group: str
    client_id: str
    transactional_id: str
    nth: int
    times: int
    chance: float
    seed: int
    may_miss: bool
    brokers: bool


class Match(NamedTuple):
    """How a request matches: the rows of it, or as a whole if there is no layout."""

    wanted: Mapping[str, object]
    layout: Layout | None = None
    parts: Split | None = None


class Filter(NamedTuple):
    """The requests that a fault is about.

    `wanted` has a name for each subject; None for any name. `newest` has the newest version of each API, by key: the
    fault is about ApiVersions, and about requests that have another API or a newer version.
    """

    api_key: int | None
    wanted: Mapping[str, object]
    client_id: str | None = None
    brokers: bool = False
    newest: Mapping[int, int] | None = None

    def match(self, call: Caller, request: m.Message, topic_name: TopicName) -> Match | None:
        """How this request matches; None if it does not."""
        if self.api_key is not None and call.api_key != self.api_key:
            return None
        if self.newest is not None and not self._is_unknown(call):
            return None
        if self.client_id is not None and not fnmatchcase(call.client_id or "", self.client_id):
            return None
        if not self.brokers and is_of_broker(call.api_key, request):
            return None

        # What the request names at its top is the same for all of its rows.
        rows: dict[str, object] = {}
        for subject, name in self.wanted.items():
            named = name_in(request, call.api_key, call.version, subject)
            if named is None:
                rows[subject] = name
            elif named != name:
                return None
        return self._match_rows(call, request, rows, topic_name) if rows else Match(rows)

    def _is_unknown(self, call: Caller) -> bool:
        return call.api_key == API_VERSIONS_KEY or call.version > (self.newest or {}).get(call.api_key, -1)

    @staticmethod
    def _match_rows(
        call: Caller, request: m.Message, rows: Mapping[str, object], topic_name: TopicName
    ) -> Match | None:
        layout = layout_for(request, call.api_key, call.version, set(rows))
        if layout is None:
            return None
        parts = split(request, layout, rows, topic_name)
        return Match(rows, layout, parts) if parts.wanted is not None or parts.asks_for_all else None


def is_of_broker(api_key: int, request: m.Message) -> bool:
    """Whether a broker sent it: it is a follower's, or of an API that only brokers send."""
    if api_key not in SENT_BY_FOLLOWERS:
        return api_key in SENT_BY_BROKERS
    if isinstance(request, m.FetchRequest):
        return request.replica_id >= 0 or request.replica_state.replica_id >= 0
    if isinstance(request, m.ListOffsetsRequest | m.OffsetForLeaderEpochRequest):
        return request.replica_id >= 0
    # The verification of a transaction by the leader of a partition.
    return isinstance(request, m.AddPartitionsToTxnRequest) and any(each.verify_only for each in request.transactions)


def api_key_of(api: str | int | Api) -> int:
    """The key of a served API, given by name, key or row of the table. FaultError if there is none."""
    if isinstance(api, Api):
        return api_key_of(api.key)
    if isinstance(api, str):
        if api in SERVED:
            return SERVED[api]
        raise FaultError(f"no API is called {api!r}{nearest(api, SERVED)}")
    if isinstance(api, int) and not isinstance(api, bool) and api in SERVED.values():
        return int(api)
    raise FaultError(f"no API that is served has the key {api!r}")


def error_of(error: str | int) -> ErrorCode:
    """The error code, given by name or number. FaultError if there is none, and for NONE."""
    if isinstance(error, str):
        if error not in ErrorCode.__members__:
            raise FaultError(f"no error is called {error!r}{nearest(error, ErrorCode.__members__)}")
        code = ErrorCode[error]
    else:
        try:
            code = ErrorCode(error)
        except ValueError:
            raise FaultError(f"no error has the code {error!r}: Kafka 3.9 has -1 to {max(ErrorCode)}") from None
    if code is ErrorCode.NONE:
        raise FaultError("NONE is no error; `answer` gives any response")
    return code


def nearest(name: str, names: Iterable[str]) -> str:
    """A question whether the nearest of these names is meant; nothing if none is near."""
    by_lower_case = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f"; is {by_lower_case[close[0]]!r} meant?" if close else ""


def filter_of(api_key: int | None, matchers: Matchers) -> Filter:
    """The filter that these matchers describe. FaultError if they make no sense, or contradict each other."""
    unknown = [name for name in matchers if name not in Matchers.__annotations__]
    if unknown:
        raise FaultError(f"no matcher is called {unknown[0]!r}{nearest(unknown[0], Matchers.__annotations__)}")
    wanted = {subject: value for subject in SUBJECTS if (value := matchers.get(subject)) is not None}
    _check_subjects(api_key, wanted)
    _check_counts(matchers)
    client_id = matchers.get("client_id")
    if client_id is not None and not isinstance(client_id, str):
        raise FaultError(f"client_id: a pattern such as 'billing-*', not {client_id!r}")
    return Filter(api_key, wanted, client_id, bool(matchers.get("brokers", api_key in SENT_BY_BROKERS)))


def _check_subjects(api_key: int | None, wanted: Mapping[str, object]) -> None:
    for subject, value in wanted.items():
        if not isinstance(value, int if subject == "partition" else str) or isinstance(value, bool):
            raise FaultError(f"{subject}: not {value!r}")
        if api_key is None:
            raise FaultError(f"{subject}: this fault is about all requests of a client")
        if subject not in subjects_of(api_key):
            known = sorted(subjects_of(api_key))
            names = f"it can be narrowed by {', '.join(known)}" if known else "it names nothing that a fault can be for"
            raise FaultError(f"{APIS[api_key].name} has no {subject.replace('_', ' ')}: {names}")
    if "partition" in wanted and "topic" not in wanted:
        raise FaultError("partition: of which topic? Give `topic` as well")


def _check_counts(matchers: Matchers) -> None:
    for name, value in (("nth", matchers.get("nth")), ("times", matchers.get("times"))):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise FaultError(f"{name}: a number from 1 on, not {value!r}")
    chance = matchers.get("chance")
    is_number = isinstance(chance, int | float) and not isinstance(chance, bool)
    if chance is not None and not (is_number and 0 <= chance <= 1):
        raise FaultError(f"chance: a number from 0 to 1, not {chance!r}")
    if "seed" in matchers and chance is None:
        raise FaultError("seed: it is for `chance`, which is missing")
