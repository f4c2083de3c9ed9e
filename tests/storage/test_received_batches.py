"""A follower takes over ordinary batches in one pass, and walks everything else entry by entry: both do the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage import log as log_module
from barnabas.storage.producers import ABORT_MARKER
from barnabas.wire.record_batch import CONTROL, TRANSACTIONAL, ordinary_batches
from barnabas.wire.records import build_control_batch
from tests.storage.conftest import DIRECTORY, LogWorld

MARKER_OF = 3  # the producer whose transactions are aborted


@st.composite
def received(draw) -> list[bytes]:
    """What one or several responses of a leader hold, most of it ordinary."""
    world = LogWorld()
    offset, sequences, sent = 0, {}, []
    for _ in range(draw(st.integers(1, 4))):
        data = b""
        for _ in range(draw(st.integers(1, 5))):
            offset += draw(st.sampled_from([0, 0, 0, 0, 2, 1 << 31]))
            producer_id = draw(st.sampled_from([-1, -1, 1, 2, MARKER_OF]))
            epoch = draw(st.sampled_from([4, 4, 4, 5, -1]))
            timestamp = world.now_ms + draw(st.integers(-3, 3))
            if producer_id == MARKER_OF and draw(st.booleans()):
                marker = build_control_batch(
                    ABORT_MARKER, coordinator_epoch=1, producer_id=MARKER_OF, producer_epoch=0, timestamp_ms=timestamp
                ).data
                marker[:8] = offset.to_bytes(8, "big")
                data += marker
                offset += 1
                continue
            count = draw(st.integers(1, 3))
            fields = {"base_offset": offset, "leader_epoch": epoch, "timestamp": timestamp}
            if producer_id >= 0:
                sequence = sequences.get(producer_id, 0)
                sequences[producer_id] = sequence + count
                fields |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
                fields["attributes"] = TRANSACTIONAL if producer_id == MARKER_OF else 0
            data += world.batch(count, **fields).data
            offset += count
        damage = draw(st.sampled_from(["none", "none", "none", "cut", "flip", "repeat"]))
        if damage == "cut":
            data = data[: -draw(st.integers(1, len(data)))]
        elif damage == "flip":
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        elif damage == "repeat":
            data += data
        sent.append(data)
    return sent


def outcome(sent: list[bytes], **sizes) -> list[object]:
    """All that is seen of a log that takes over these responses, one after the other."""
    world = LogWorld(**sizes)
    log = world.open()
    answers = [log.append_as_follower(memoryview(bytearray(data)), world.now_ms) for data in sent]
    segments = [(segment.base_offset, segment.size_bytes) for segment in log.segments]
    state = [log.log_end_offset, log.epochs.entries, list(log.producers.entries())]
    active = log.segments.active
    indexes = [bytes(active.offsets.entries), bytes(active.times.entries), bytes(active.transactions.unsaved)]
    log.close(world.now_ms)
    files = {name: world.content(name) for name in world.disk.list(DIRECTORY)}
    return [answers, segments, state, indexes, files]


@pytest.mark.pure_form(reason="replaces a function that a compiled module calls")
@settings(deadline=None, max_examples=60)
@given(received(), st.sampled_from([{}, {"segment_bytes": 400}, {"index_interval_bytes": 100}]))
def test_one_pass_and_the_walk_by_entries_leave_the_same_log(sent, sizes):
    taken_over = outcome(sent, **sizes)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_module, "ordinary_batches", lambda records, end_offset: None)
        assert outcome(sent, **sizes) == taken_over


def test_ordinary_are_whole_batches_of_records_alone():
    world = LogWorld()
    batch = world.batch(2, base_offset=5).data
    marker = world.batch(1, base_offset=7, producer_id=1, producer_epoch=0, attributes=CONTROL | TRANSACTIONAL).data
    (header,) = ordinary_batches(memoryview(batch), 5)
    assert (header.base_offset, header.last_offset) == (5, 6)
    for data, end_offset in [(batch, 6), (batch[:-1], 5), (batch + batch[:70], 5), (batch + marker, 5), (b"", 5)]:
        assert ordinary_batches(memoryview(data), end_offset) is None
