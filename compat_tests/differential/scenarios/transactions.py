"""Describing and listing transactions while there are none, and no transaction topic."""

from barnabas.wire import messages as m
from compat_tests.differential.scenario import scenario


@scenario
def transactions_are_listed(side):
    for version in range(2):
        cases = {
            "all": m.ListTransactionsRequest(),
            "states": m.ListTransactionsRequest(state_filters=["Ongoing", "Empty"]),
            "unknown state": m.ListTransactionsRequest(state_filters=["Nope", "Ongoing", "ongoing", ""]),
            "producers": m.ListTransactionsRequest(producer_id_filters=[1, -1]),
            "long ones": m.ListTransactionsRequest(duration_filter=1000),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def transactions_are_described(side):
    asked = {"one": ["t"], "two": ["t", "u"], "empty": [""], "twice": ["t", "t"], "nothing": []}
    for name, ids in asked.items():
        yield name, side.ask(m.DescribeTransactionsRequest(transactional_ids=ids), 0)
