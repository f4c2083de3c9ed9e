"""Each API with each combination of ACLs: the whole answer of Barnabas beside that of Apache Kafka 3.9.1.

`requests.py` has the rows, `cases.py` the columns. A sample is compared among the thorough tests, all of it by
`make security`.
"""

import time
from typing import NamedTuple

import pytest

from barnabas.broker.server.dispatch import HANDLERS
from barnabas.wire.asking import key_of
from compat_tests.differential.compare import Tally, count_fields, differences, stale, unexplained
from compat_tests.security.cases import ROUNDS_IF_OPEN, SAMPLED_ROUNDS, Case, cases_of, rounds_of, sample
from compat_tests.security.known import KNOWN_DIFFERENCES_OF_ACLS
from compat_tests.security.matrix_brokers import MatrixBrokers
from compat_tests.security.requests import ALL_TOPICS, IN_OLDEST_VERSIONS, ROWS, Row

pytestmark = pytest.mark.thorough

SHOWN_DIFFERENCES = 20
EVERY_ROW = sorted([*ROWS, *IN_OLDEST_VERSIONS], key=lambda row: row.is_last)
# Another's token, whatever ACLs there are; and a version that cannot name another owner.
ANY_RIGHT_IS_TOO_LITTLE = ("RenewDelegationToken", "ExpireDelegationToken", "CreateDelegationToken v0")
# Each of two rights is enough, and has a row. Where all is open, an ACL about one leaves the other.
EITHER_RIGHT_IS_ENOUGH = ("DescribeDelegationToken", "OffsetForLeaderEpoch")


class Extent(NamedTuple):
    """A part of the matrix."""

    rows: list[Row]
    cases: list[Case]
    rounds: list[list[Case]]
    properties: dict[str, str]
    comparisons_min: int


def _of_rows(rows):
    return [case for row in rows for case in cases_of(row)]


def _sample():
    return Extent(ROWS, sample(_of_rows(ROWS)), list(rounds_of(ROWS, SAMPLED_ROUNDS)), {}, 500)


def _whole():
    return Extent(EVERY_ROW, _of_rows(EVERY_ROW), list(rounds_of(EVERY_ROW)), {}, 1500)


def _open():
    # Every client sees all topics, and some are created or deleted late.
    rows = [row for row in EVERY_ROW if row.request is not ALL_TOPICS and not row.is_unanswered]
    properties = {"allow.everyone.if.no.acl.found": "true"}
    return Extent(rows, [], list(rounds_of(rows, ROUNDS_IF_OPEN)), properties, 1000)


EXTENTS = {"sample": _sample, "whole": _whole, "open": _open}
WHOLE = [pytest.param(name, marks=pytest.mark.security) for name in ("whole", "open")]


class Compared:
    """What both brokers answered, and what nothing explains of how they differ."""

    def __init__(self, extent, answers):
        self.extent, self.answers, self.tally, self.left = extent, answers, Tally(), []
        for row, cases in answers["kafka"].items():
            found = list(differences(row, cases, answers["barnabas"][row]))
            self.tally.scenarios.add(row)
            self.tally.comparisons += len(cases)
            self.tally.fields += count_fields(cases)
            self.left += unexplained(found, KNOWN_DIFFERENCES_OF_ACLS, self.tally)


@pytest.fixture(scope="module", params=["sample", *WHOLE])
def compared(request, tmp_path_factory):
    began, extent = time.monotonic(), EXTENTS[request.param]()
    directory = tmp_path_factory.mktemp(f"acls-{request.param}")
    both = MatrixBrokers(directory, extent.cases, extent.rounds, extent.properties)
    try:
        both.start()
        answers = both.answers()
        assert "Traceback" not in both.barnabas.log_text()
    finally:
        both.close()
    found = Compared(extent, answers)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nACLs ({request.param}), {found.tally.report()}, {time.monotonic() - began:.0f} s")
    return found


def test_every_api_is_asked():
    assert {key_of(row.request) for row in ROWS} == HANDLERS.keys()


def test_both_brokers_allow_and_refuse_alike(compared):
    shown = "\n".join(map(str, compared.left[:SHOWN_DIFFERENCES]))
    assert not compared.left, f"{len(compared.left)} unexplained differences:\n{shown}"
    assert compared.tally.comparisons >= compared.extent.comparisons_min


def test_in_every_row_an_acl_makes_a_difference(compared):
    is_open = not compared.extent.cases
    alike = ANY_RIGHT_IS_TOO_LITTLE + (EITHER_RIGHT_IS_ENOUGH if is_open else ())
    needy = [row for row in compared.extent.rows if row.needs and not row.name.startswith(alike)]
    assert [row.name for row in needy if not _differs(row, compared.answers["kafka"])] == []


def _differs(row, answers):
    found, need = answers[row.name], row.needs[0]
    without = found["no ACL"] if "no ACL" in found else found["open, no ACL"]
    return without != found.get(f"1 {need}: {need.operation} alone", found.get("open, deny everyone"))


def test_every_difference_known_of_acls_is_still_one(compared):
    assert stale(KNOWN_DIFFERENCES_OF_ACLS, compared.tally) == []
