"""What an audit says of itself."""

import json

from barnabas.pipeline.findings import KINDS, Audit, Count, Finding, Held, Share
from barnabas.pipeline.report import COLOURS

HELD = [Held("1", "letters", 0, 100, 2, 0, 101)]


def test_an_audit_without_findings_is_clean():
    audit = Audit([], [], HELD, {"acked": 98}, 0)
    assert audit.is_clean
    assert audit.totals() == {}
    assert audit.verdict() == "100 records, 98 events: nothing is wrong"


def test_totals_go_over_partitions_in_the_order_of_kinds():
    counts = [Count("phantom", "letters", 0, 2), Count("lost", "letters", 1, 3), Count("lost", "letters", 0, 1)]
    audit = Audit(counts, [], HELD, {}, 0)
    assert list(audit.totals().items()) == [("lost", 4), ("phantom", 2)]
    assert audit.verdict().endswith("4 lost, 2 phantom")


def test_the_whole_is_json_with_names():
    finding = Finding("gap", "letters", 0, 17, "1", "replica 1 has no offsets 17 to 18")
    audit = Audit([Count("gap", "letters", 0, 1)], [finding], HELD, {"acked": 1}, 3, [Share("gap", 0.0, 1)])
    said = json.loads(json.dumps(audit.to_json()))
    assert said["examples"] == [finding._asdict()]
    assert said["held"][0]["control_records"] == 2
    assert (said["clean"], said["unreadable_lines"], said["spread"][0]["kind"]) == (False, 3, "gap")


def test_every_kind_has_a_colour():
    assert KINDS.keys() <= COLOURS.keys()
