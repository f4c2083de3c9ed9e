"""Whole runs with a recorder: the history of the seed stays what it is, and every message has its arrow.

Messages are counted a second time, by another way: the bytes that each end of a connection sends are cut at the lengths
of the frames, and what is sent on the wires of the metadata store is counted.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from barnabas.testing.simulation.bugs import BUGS, KIND_OF
from barnabas.testing.simulation.diagram.packing import PARTS, history, page
from barnabas.testing.simulation.diagram.recorder import Recorder
from barnabas.testing.simulation.diagram.recording import NO_REQUEST, UNDER_WAY
from barnabas.testing.simulation.kinds import PLAIN
from barnabas.testing.simulation.links import Wire
from barnabas.testing.simulation.net import SimStream
from barnabas.testing.simulation.run import run_seed
from barnabas.testing.simulation.trace import Trace
from tests.testing.simulation.diagram_pages import SOURCES, unpacked

BITES = Path(__file__).parents[1] / "bites.json"
PAGE_BYTES_MAX = 3_000_000
PAGE_BYTES_GOAL = 400_000
QUICK_SECONDS = 5.0
LONG = (pytest.mark.thorough, pytest.mark.long)
SEEDS = [pytest.param(seed, marks=LONG) for seed in range(1, 21)]
SEEDS_TRIED = 20


class SecondCount:
    """What was sent and what arrived, between each two parties, as the network has it."""

    def __init__(self, monkeypatch):
        self.sent = {}  # end of a connection -> its bytes
        self.store = Counter()
        self.arrived_bytes = Counter()
        send, wire_send, note = SimStream._send, Wire.send, Trace.note

        def count_bytes(stream, data):
            self.sent.setdefault(stream, bytearray()).extend(data)
            send(stream, data)

        def count_items(wire, item):
            if item is not None and not isinstance(item, bytes):
                self.store[wire.link.source, wire.link.target] += 1
            wire_send(wire, item)

        def count_arrivals(trace, line):
            if line.startswith("net "):
                _, source, target, size_bytes = line.split(" ")
                self.arrived_bytes[source, target] += int(size_bytes)
            note(trace, line)

        monkeypatch.setattr(SimStream, "_send", count_bytes)
        monkeypatch.setattr(Wire, "send", count_items)
        monkeypatch.setattr(Trace, "note", count_arrivals)

    def messages(self):
        """(source, target) -> how many messages were begun."""
        counted = Counter(self.store)
        for stream, data in self.sent.items():
            position = 0
            while position < len(data):
                counted[stream.name, stream.peer_address] += 1
                position += 4 + max(0, int.from_bytes(data[position : position + 4], "big", signed=True))
        return counted


def check(recording, count):
    """Each message has one arrow, and the arrows fit together."""
    messages = recording.messages
    assert Counter((each.source, each.target) for each in messages) == count.messages()
    assert [each.number for each in messages] == list(range(len(messages)))
    for each in messages:
        assert each.ended >= each.began or each.lost == UNDER_WAY, each
        if each.answers != NO_REQUEST:
            request = messages[each.answers]
            assert (each.source, each.target) == (request.target, request.source)
            assert each.summary.api == request.summary.api
            assert request.lost == ""
            assert request.ended <= each.began
    answered = Counter(each.answers for each in messages if each.answers != NO_REQUEST)
    assert set(answered.values()) <= {1}, "no request has two responses"

    # What arrived is whole frames, but for the beginning of one that was lost on its way.
    arrived = Counter()
    for each in messages:
        if each.size_bytes and not each.lost:
            arrived[each.source, each.target] += each.size_bytes
    lost = {(each.source, each.target) for each in messages if each.lost}
    assert all(arrived[pair] == size or pair in lost for pair, size in count.arrived_bytes.items())
    assert all(arrived[pair] <= size for pair, size in count.arrived_bytes.items())


def recorded(monkeypatch, seed, seconds=60.0, **more):
    count = SecondCount(monkeypatch)
    recorder = Recorder()
    report = run_seed(seed, seconds, recorder=recorder, **more)
    check(recorder.recording, count)
    monkeypatch.undo()
    return report, recorder.recording


def made(report, recording):
    """The page, and the history that a browser finds in it."""
    html = page(history(report, recording, "again"), SOURCES)
    assert len(html) < PAGE_BYTES_MAX
    return html, unpacked(html)


@pytest.mark.parametrize(
    ("seed", "kind"), [(2, PLAIN), (7, "transactions+secured"), (5, "hostile+crowds"), (3, "moments")]
)
def test_a_seed_keeps_its_history_and_every_message_has_one_arrow(seed, kind, monkeypatch):
    without = run_seed(seed, QUICK_SECONDS, kind=kind)
    report, recording = recorded(monkeypatch, seed, QUICK_SECONDS, kind=kind)
    assert report.trace == without.trace, "a recorder changes nothing"
    html, shown = made(report, recording)
    assert len(html) < PAGE_BYTES_GOAL
    assert len(shown["messages"]["began"]) == len(recording.messages) > 500
    assert [line for _, line, _ in shown["story"]] == [line for _, line in report.timed_story]
    assert {name for name, _, _ in shown["parties"]} == set(report.parties)
    assert all(states[-1][1] == "down" for states in shown["states"].values()), "at the end all brokers stop"


def test_a_seed_is_drawn_the_same_each_time_and_its_replicas_end_equal():
    pages = []
    for _ in range(2):
        recorder = Recorder()
        report = run_seed(3, 2.0, kind=PLAIN, recorder=recorder)
        pages.append(page(history(report, recorder.recording, "again"), SOURCES))
    assert pages[0] == pages[1]

    replicas = recorder.recording.replicas
    assert ("steady", 0) in replicas
    for brokers in replicas.values():
        last = [[each for each in held if each.epoch is not None][-1] for held in brokers.values()]
        assert len({each.log_end_offset for each in last}) == 1
        assert all(0 <= each.high_watermark <= each.log_end_offset for each in last)
        assert any(each.is_leader for held in brokers.values() for each in held)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_of_a_whole_seed_has_one_arrow(seed, monkeypatch):
    report, recording = recorded(monkeypatch, seed)
    html, shown = made(report, recording)
    assert len(shown["messages"]["began"]) == len(recording.messages) > 2000
    assert shown["violations"] == []
    assert len(html) < PAGE_BYTES_MAX


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_the_diagram_of_a_planted_bug_shows_the_broken_rule(bug, monkeypatch, mistakes):
    first, kind = json.loads(BITES.read_text())[bug]["seed"], KIND_OF.get(bug, PLAIN)
    for seed in range(first, first + SEEDS_TRIED):
        report, recording = recorded(monkeypatch, seed, bugs=[bug], kind=kind, until_caught=True)
        if report.violations:
            break
    mistakes.take()  # some bugs are caught by their tracebacks, which the run has judged
    _, shown = made(report, recording)
    assert [rule for _, rule, *_ in shown["violations"]] == report.rules != []
    for _, rule, _, _, line in shown["violations"]:
        assert shown["story"][line][1].startswith(f"VIOLATION {rule}")


def test_the_parts_of_the_page_are_there():
    assert SOURCES.keys() == set(PARTS)
    assert all(SOURCES.values())
