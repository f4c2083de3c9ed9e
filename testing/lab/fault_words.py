"""The faults as the laboratory's requests name them (pure): one table, for the check, the schema and the page.

`{"fail": "Produce", "error": "REQUEST_TIMED_OUT", "times": 2}` is the call `faults.fail("Produce", ...)`: a method of
`Faults` with its first argument, and the other arguments by their names. A test holds the table to the signatures of
`Faults`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.testing.errors import FaultError
from barnabas.testing.faults.faults import Fault, Faults
from barnabas.testing.faults.kafka_releases import RELEASES
from barnabas.testing.faults.matching import SERVED, api_key_of, nearest
from barnabas.testing.lab.values import message_from
from barnabas.testing.lab.words import Given, Word, check_type
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode

ERRORS = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
AFTER = Word("after", "boolean", "the request is done before")

MATCHERS = (
    Word("topic", "string", "only what is about this topic"),
    Word("partition", "integer", "only this partition of the topic"),
    Word("group", "string", "only what is about this group"),
    Word("client_id", "string", 'only clients whose id matches this pattern: "billing-*"'),
    Word("transactional_id", "string", "only what is about this transactional id"),
    Word("nth", "integer", "from the nth request that matches"),
    Word("times", "integer", "how often it fires"),
    Word("chance", "number", "it fires with this probability"),
    Word("seed", "integer", "of `chance`: the same requests are hit in every run"),
    Word("may_miss", "boolean", "it may never fire"),
    Word("brokers", "boolean", "requests of brokers are hit as well"),
)


class Kind(NamedTuple):
    """A kind of fault: its first argument, its further ones, and an example."""

    first: Word
    more: Sequence[Word]
    example: Given

    @property
    def words(self) -> Sequence[Word]:
        """All words of a request for such a fault."""
        return [self.first, *self.more, *MATCHERS]


# An API may be given by its number as well.
def _api(about: str, choices: Sequence[str] = tuple(SERVED)) -> Word:
    return Word("", "string", about, is_required=True, other_type="integer", choices=choices)


# The name of the first word is the kind itself.
_KINDS: Mapping[str, tuple[Word, Sequence[Word], Given]] = {
    "fail": (
        _api("the error is the response to this API"),
        [Word("error", "string", "the error", is_required=True, other_type="integer", choices=ERRORS), AFTER],
        {"fail": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "topic": "orders", "times": 2},
    ),
    "drop": (
        _api("the connection is closed in place of the response"),
        [Word("when", "string", "before the request is done, or after, or", choices=("before", "after", "midway"))],
        {"drop": "Produce", "when": "after", "topic": "orders", "times": 1},
    ),
    "delay": (
        _api("the request waits before it is done"),
        [Word("seconds", "number", "how long", is_required=True), AFTER],
        {"delay": "Fetch", "seconds": 0.2, "client_id": "billing-*"},
    ),
    "hang": (
        _api("the request waits until the fault is removed"),
        [AFTER],
        {"hang": "JoinGroup", "group": "billing"},
    ),
    "throttle": (
        _api("the client is throttled, as by a quota"),
        [Word("ms", "integer", "how long, in milliseconds", is_required=True)],
        {"throttle": "Produce", "ms": 500},
    ),
    "stale": (
        _api("the metadata are those of before their last change", ("Metadata",)),
        [],
        {"stale": "Metadata", "times": 3},
    ),
    "corrupt": (
        _api("one bit of a batch is turned", ("Fetch", "Produce")),
        [],
        {"corrupt": "Fetch", "topic": "orders", "nth": 2},
    ),
    "duplicate": (
        _api("the records are written twice", ("Produce",)),
        [],
        {"duplicate": "Produce", "chance": 0.5, "seed": 7},
    ),
    "answer": (
        _api("any response, and nothing is done"),
        [Word("response", "object", "the fields of the response, by their names", is_required=True)],
        {"answer": "Heartbeat", "response": {"error_code": 27}, "group": "billing"},
    ),
    "as_kafka": (
        Word("", "string", "the APIs and versions of an older release", is_required=True, choices=RELEASES),
        [],
        {"as_kafka": "2.8"},
    ),
}
KINDS: Mapping[str, Kind] = {
    name: Kind(first._replace(name=name), more, example) for name, (first, more, example) in _KINDS.items()
}


def set_fault(faults: Faults, given: Given) -> Fault:
    """Set the fault that a body describes. FaultError as the method of `Faults`, and for words that are missing."""
    name = _kind_of(given)
    kind = KINDS[name]
    for word in kind.more:
        if word.is_required and word.name not in given:
            raise FaultError(f"{name}: {word.name} is missing ({word.about})")
    # All other words are checked by `Faults`, with the same text as in Python. In Python None
    # leaves a matcher out, but a test that sends null has lost a name, and its fault would hit all
    # requests.
    for word in kind.words:
        if word.name in given and (word.type == "boolean" or word.name == "seed" or given[word.name] is None):
            check_type(word, given[word.name])
    arguments = {word: value for word, value in given.items() if word != name}
    # In Python the response is a message, or a function, which no other language can send.
    if name == "answer":
        key = api_key_of(given[name])  # type: ignore[arg-type]  # checked there
        arguments["response"] = message_from(m.response_class(APIS[key]), arguments["response"])
    make: Callable[..., Fault] = getattr(faults, name)
    return make(given[name], **arguments)


def _kind_of(given: Given) -> str:
    found = [name for name in given if name in KINDS]
    if len(found) == 1:
        return found[0]
    if found:
        raise FaultError(f"one fault at a time, not {' and '.join(found)}")
    # The kind may be misspelled, and any of the words may be it.
    near = next((text for name in given if (text := nearest(name, KINDS))), f": one of {', '.join(KINDS)}")
    raise FaultError(f"the request names no kind of fault{near}")
