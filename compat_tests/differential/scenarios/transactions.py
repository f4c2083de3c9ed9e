"""Describing, listing and finding transactions: what administrators see of them."""

from barnabas.wire import messages as m
from compat_tests.differential.asking_transactions import Stuck, Writer, await_transactions, described
from compat_tests.differential.scenario import scenario

DURATION_VERSION = 1
LONG_AGO_MS = 10**15


def _listed(side, version, ids, **filters):
    """The list, reduced to these ids."""
    answer = side.ask(m.ListTransactionsRequest(**filters), version)
    answer.transaction_states = [each for each in answer.transaction_states if each.transactional_id in ids]
    return answer


@scenario
def transactions_that_never_were_are_listed(side):
    await_transactions(side)
    for version in range(2):
        cases = {
            "unknown state": {"state_filters": ["Nope", "ongoing", "", "Nope"]},
            "all unknown beside": {"state_filters": ["Dead", "PrepareEpochFence", "x"]},
            "producers": {"producer_id_filters": [2**50, -1]},
        }
        for name, filters in cases.items():
            yield f"v{version} {name}", _listed(side, version, (), **filters)


@scenario
def transactions_that_never_were_are_described(side):
    await_transactions(side)
    asked = {"one": ["t"], "two": ["t", "t2"], "empty": [""], "twice": ["t", "t"], "nothing": []}
    for name, ids in asked.items():
        yield name, described(side, *ids)


@scenario
def transactions_in_every_state_are_described(side):
    topic = side.create_topic("one", 2)
    side.await_coordinator()
    with Writer(side) as writer:
        yield "Empty", writer.described()
        writer.add(topic, partitions=(0, 1))
        writer.add_offsets("g")
        yield "Ongoing", writer.described()
        writer.end()
        yield "CompleteCommit", writer.described()
        writer.transaction(topic, b"a", commit=False)
        yield "CompleteAbort", writer.described()
        writer.init()
        yield "Empty again", writer.described()
        yield "several", described(side, writer.name, writer.name)
    for commit in (True, False):
        with Writer(side, str(commit)) as writer:
            writer.add(topic)
            with Stuck(writer, commit=commit):
                side.wait(lambda writer=writer: len(writer.described().transaction_states[0].topics) == 1)
                yield f"Prepare {commit}", writer.described()


@scenario
def transactions_are_listed(side):
    topic = side.create_topic("one")
    await_transactions(side)
    states = {
        "empty": lambda _: None,
        "ongoing": lambda writer: writer.add(topic),
        "committed": lambda writer: writer.transaction(topic, b"a"),
        "aborted": lambda writer: writer.transaction(topic, b"a", commit=False),
    }
    writers = []
    for name, step in states.items():
        with Writer(side, name) as writer:
            step(writer)
        writers.append(writer)
    with Writer(side, "prepared") as prepared, Stuck(prepared):
        writers.append(prepared)
        ids = [writer.name for writer in writers]
        producers = [writer.producer for writer in writers]
        filters = {
            "all": {},
            "Ongoing": {"state_filters": ["Ongoing"]},
            "two states": {"state_filters": ["Empty", "CompleteAbort"]},
            "decided": {"state_filters": ["PrepareCommit", "PrepareAbort"]},
            "a state twice": {"state_filters": ["CompleteCommit", "CompleteCommit"]},
            "unknown beside a state": {"state_filters": ["Nope", "Ongoing", "ongoing"]},
            "unknown": {"state_filters": ["Nope"]},
            "one producer": {"producer_id_filters": producers[:1]},
            "two producers": {"producer_id_filters": [producers[1], producers[2], 2**50]},
            "producer and state": {"producer_id_filters": producers[:2], "state_filters": ["Ongoing"]},
            "no such producer": {"producer_id_filters": [-1]},
        }
        for version in range(2):
            for name, of in filters.items():
                yield f"v{version} {name}", _listed(side, version, ids, **of)
        for duration in (0, -1, -5, 100_000, LONG_AGO_MS):
            yield f"longer than {duration}", _listed(side, DURATION_VERSION, ids, duration_filter=duration)


@scenario
def transaction_coordinators_are_found(side):
    await_transactions(side)
    for version in range(1, 7):
        keys = {"id": "a", "another": "t", "empty": "", "long": "x" * 1000, "not ascii": "ä€"}
        cases = {
            name: m.FindCoordinatorRequest(key=key, coordinator_keys=[key], key_type=1) for name, key in keys.items()
        }
        if version >= 4:  # several keys
            cases |= {
                "none": m.FindCoordinatorRequest(coordinator_keys=[], key_type=1),
                "several": m.FindCoordinatorRequest(coordinator_keys=["a", "b", "a", ""], key_type=1),
            }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def transactions_of_two_ids_at_once(side):
    topic = side.create_topic("one")
    with Writer(side, "one") as one, Writer(side, "two") as two:
        one.add(topic)
        two.add(topic)
        yield "one ends", one.end(commit=False)
        yield "two is open", two.described()
        yield "two is taken over", two.init()
        yield "one", one.described()
        yield "two", two.described()
