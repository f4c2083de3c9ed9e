"""The ledger check finds errors: each guarantee is broken once, in made-up ledgers and in segment files."""

import pathlib

import pytest

from barnabas.wire.records import build_batch
from compat_tests.cluster.checker import Partition, check, longest_gap
from compat_tests.cluster.ledger import Ledger, make_value, read_ledger, read_stamp
from compat_tests.cluster.replicas import read_replicas

PLACE = ("letters", 0)
STAMPS = [read_stamp(make_value("p0", number, 60)) for number in range(6)]
LOG = dict(enumerate(STAMPS))


def event(kind, offset, stamp=None, **more):
    values = {"event": kind, "time": more.pop("time", float(offset)), "topic": "letters", "partition": 0, **more}
    return {**values, "offset": offset, **(stamp._asdict() if stamp else {})}


ACKED = [event("acked", offset, stamp) for offset, stamp in LOG.items()]


def kinds(events, *replicas, high_watermark=6):
    """What is found when the replicas hold these records."""
    partition = Partition(dict(enumerate(replicas or (LOG, LOG, LOG))), high_watermark)
    return {finding.kind for finding in check(events, {PLACE: partition})}


def without(*offsets):
    return {offset: stamp for offset, stamp in LOG.items() if offset not in offsets}


def test_nothing_is_found_where_every_promise_was_kept():
    reads = [event("resumed", 0, member="c", group="g", asked=0.0)]
    reads += [event("read", offset, stamp, member="c", group="g") for offset, stamp in LOG.items()]
    assert kinds([*ACKED, *reads]) == set()


def test_an_acknowledged_record_that_one_replica_has_not_is_lost():
    assert "lost" in kinds(ACKED, LOG, without(5), LOG)


def test_an_acknowledged_record_whose_place_another_took_is_lost():
    other = {**LOG, 3: read_stamp(make_value("p0", 77, 60))}
    assert "lost" in kinds(ACKED, other, other, other)


def test_a_record_with_another_value_is_lost():
    changed = {**LOG, 3: STAMPS[3]._replace(digest="0")}
    assert "lost" in kinds(ACKED, changed, changed, changed)


@pytest.mark.parametrize(("held", "found"), [(LOG, set()), (without(5), {"lost"})])
def test_a_record_acknowledged_without_its_offset_lies_anywhere(held, found):
    acked = [*ACKED[:5], {**ACKED[5], "offset": None}]
    assert kinds(acked, held, held, held, high_watermark=5) == found


def test_a_partition_that_is_gone_is_lost():
    (finding,) = check(ACKED, {})
    assert finding.kind == "lost"


def test_a_record_at_two_offsets_is_duplicated():
    twice = {**LOG, 6: STAMPS[2]}
    assert kinds(ACKED, twice, twice, twice, high_watermark=7) == {"duplicated"}


def test_a_record_that_failed_may_lie_there_once_and_not_twice():
    failed = event("failed", -1, read_stamp(make_value("p0", 6, 60)), time=9.0)
    once = {**LOG, 6: read_stamp(make_value("p0", 6, 60))}
    assert kinds([*ACKED, failed], once, once, once, high_watermark=7) == set()
    twice = {**once, 7: once[6]}
    assert kinds([*ACKED, failed], twice, twice, twice, high_watermark=8) == {"duplicated"}


def test_records_that_changed_places_are_reordered():
    swapped = {**LOG, 3: STAMPS[4], 4: STAMPS[3]}
    acked = [event("acked", offset, stamp) for offset, stamp in swapped.items()]
    assert kinds(acked, swapped, swapped, swapped) == {"reordered"}


def test_a_record_that_no_producer_sent_is_unknown():
    sent = {"event": "sent", "time": 9.0, "producer": "p0", "count": 6}
    more = {**LOG, 6: read_stamp(make_value("p0", 6, 60))}
    assert kinds([*ACKED, sent], more, more, more, high_watermark=7) == {"unknown"}


def test_replicas_differ_only_below_the_high_watermark():
    assert kinds(ACKED[:5], LOG, LOG, without(5), high_watermark=5) == set()
    assert kinds(ACKED[:5], LOG, LOG, without(5), high_watermark=6) == {"differ"}


def test_a_record_that_was_read_and_is_another_now_was_reread():
    read = event("read", 3, STAMPS[4], member="c", group="g")
    assert kinds([*ACKED, read]) == {"reread"}


def test_an_owner_who_misses_a_record_has_skipped_it():
    reads = [event("read", offset, STAMPS[offset], member="c", group="g") for offset in (0, 1, 3)]
    assert kinds([*ACKED, event("resumed", 0, member="c", group="g", asked=0.0), *reads]) == {"skipped"}


def test_a_new_owner_may_begin_again_where_it_was_asked_to():
    def owned(time, *offsets):
        resumed = event("resumed", offsets[0], member="c", group="g", asked=time, time=time)
        return [resumed, *(event("read", at, STAMPS[at], member="c", group="g", time=time + 0.1) for at in offsets)]

    assert kinds([*ACKED, *owned(1.0, 0, 1, 2), *owned(2.0, 1, 2, 3)]) == set()


@pytest.mark.parametrize(("resumed_at", "found"), [(4, set()), (5, set()), (3, {"went-back"}), (-1, {"went-back"})])
def test_a_committed_offset_does_not_go_back(resumed_at, found):
    committed = event("committed", 4, group="g", member="c", time=1.0)
    resumed = event("resumed", resumed_at, group="g", member="d", asked=2.0, time=3.0)
    assert kinds([*ACKED, committed, resumed]) == found


def test_a_commit_that_was_answered_after_the_question_may_be_missing_in_the_answer():
    committed = event("committed", 4, group="g", member="c", time=2.5)
    assert kinds([*ACKED, committed, event("resumed", 3, group="g", member="d", asked=2.0, time=3.0)]) == set()


def test_the_longest_gap_is_that_between_acknowledgements():
    acked = [event("acked", number, STAMPS[0], time=time) for number, time in enumerate((1.0, 1.5, 4.0, 4.2))]
    assert longest_gap(acked) == 2.5
    assert longest_gap(acked, since=4.0) == pytest.approx(0.2)


# -- on files


def write_segments(root: pathlib.Path, brokers: int = 3, cut: int | None = None) -> dict[int, pathlib.Path]:
    """Replicas of one batch a record; of one of them a record is cut out of the middle of its segment."""
    batches = []
    for offset in range(6):
        batch = bytearray(build_batch([(None, make_value("p0", offset, 60))], timestamp_ms=0).data)
        batch[0:8] = offset.to_bytes(8, "big")
        batches.append(bytes(batch))
    for broker in range(1, brokers + 1):
        directory = root / str(broker) / "letters-0"
        directory.mkdir(parents=True)
        kept = [batch for offset, batch in enumerate(batches) if broker != 2 or offset != cut]
        (directory / f"{0:020}.log").write_bytes(b"".join(kept))
    return {broker: root / str(broker) for broker in range(1, brokers + 1)}


@pytest.mark.parametrize(("cut", "found"), [(None, set()), (3, {"lost", "differ"})])
def test_a_record_cut_out_of_one_replicas_segment_is_found(tmp_path, cut, found):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for event_ in ACKED:
        ledger.write("acked", **{key: value for key, value in event_.items() if key not in ("event", "time")})
    ledger.close()
    held = read_replicas(write_segments(tmp_path, cut=cut), ["letters"])
    events = read_ledger([tmp_path / "ledger.jsonl"])
    assert {finding.kind for finding in check(events, {PLACE: Partition(held[PLACE], 6)})} == found


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write("note", text="whole")
    ledger.close()
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write('{"event": "ack')
    assert [event_["event"] for event_ in read_ledger([tmp_path / "ledger.jsonl"])] == ["note"]
