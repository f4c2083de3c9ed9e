"""A run as the data of a page, and the page as one file (pure).

    history(report, recording, replay)  ->  what the page shows, as plain lists and numbers
    page(history, parts)                ->  HTML, with the history inside

In a history times are microseconds since the run began. What is many (messages, changes of replicas) stands in columns,
rising numbers as differences, and a text that occurs often in a table: so the history of a minute, ten thousand
messages, is compressed to less than the page may have.
"""

import base64
import gzip
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from barnabas.testing.simulation.affected import parties_of
from barnabas.testing.simulation.diagram.frames import WHOLE_TOPIC, Row
from barnabas.testing.simulation.diagram.recording import NO_REQUEST, Held, Partition, Recording, Sent, Trouble
from barnabas.testing.simulation.rules import Violation
from barnabas.testing.simulation.store import STORE
from barnabas.testing.simulation.story import purpose_of

FORMAT = 1
BROKER_PREFIX = "broker-"
PARTS = ("page.html", "page.css", "page.js")
NO_PARTITION = -1
NO_REPLICA = -2  # stands for an epoch; -1 is one that a broker does not know yet
# These are the columns of messages. The script reads them by these names.
COLUMNS = ("began", "took", "from", "to", "bytes", "answers", "api", "version", "words", "rows", "errors", "lost")


class Reported(Protocol):
    """What a history takes from a `Report`."""

    seed: int
    kind: str
    parties: list[str]
    timed_story: list[tuple[float, str]]
    broken: list[Violation]
    trace: str


class _Table:
    """Values, each once, in the order in which they came; the page finds them by their places."""

    def __init__(self, *values: Hashable) -> None:
        self._places: dict[Hashable, int] = {value: place for place, value in enumerate(values)}

    @property
    def values(self) -> list[Hashable]:
        """All of them, in the order of their places."""
        return list(self._places)

    def place(self, value: Hashable) -> int:
        """Where this value is."""
        return self._places.setdefault(value, len(self._places))


def history(report: Reported, recording: Recording, replay: str) -> dict[str, object]:
    """All that the page shows. `replay` is the command that runs the seed again."""
    # Hosted partitions come first, in the order of their names. Messages may name others: of a topic that is gone, or
    # one that never was. So the messages are packed before the table of partitions is read.
    parties = _Table(*report.parties)
    partitions = _Table(*sorted(recording.replicas))

    messages = _messages(recording, parties, partitions)
    timed_story = _timed(report)
    named = {f"{topic}-{index}": place for place, (topic, index) in _named(partitions)}
    return {
        "format": FORMAT,
        "seed": report.seed,
        "kind": report.kind,
        "trace": report.trace,
        "replay": replay,
        "end": _us(recording.end),
        "parties": [[name, _role_of(str(name)), purpose_of(str(name))] for name in parties.values],
        "partitions": partitions.values,
        "messages": messages,
        "replicas": {
            partitions.place(partition): {parties.place(broker): _replica(held) for broker, held in brokers.items()}
            for partition, brokers in recording.replicas.items()
        },
        "inSync": {
            partitions.place(partition): [[_us(each.at), each.leader, each.in_sync] for each in states]
            for partition, states in recording.in_sync.items()
        },
        "controllers": [[_us(at), broker_id] for at, broker_id in recording.controllers],
        "states": {
            parties.place(broker): [[_us(at), state] for at, state in states]
            for broker, states in recording.states.items()
        },
        "faults": [_fault(trouble, recording, parties) for trouble in recording.troubles],
        "cuts": [
            [parties.place(cut.source), parties.place(cut.target), _us(cut.began), _us(cut.ended)]
            for cut in recording.cuts
        ],
        "story": [[_us(at), line, _partition_in(line, named)] for at, line in timed_story],
        "violations": [
            [_us(each.seconds), each.rule, each.text, _partition_in(each.text, named), _line_of(each, timed_story)]
            for each in report.broken
        ],
    }


def page(history: Mapping[str, object], parts: Mapping[str, str]) -> str:
    """The page with this history in it. `parts` are the contents of PARTS, by name."""
    text = json.dumps(history, separators=(",", ":"), ensure_ascii=False)

    # The file has no time in it, so a seed makes the same file each time. Base64 has no letter that
    # means something in HTML, so a text of the history cannot become markup.
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")
    whole = parts["page.html"]
    for mark, content in (
        ("/* page.css */", parts["page.css"]),
        ("/* page.js */", parts["page.js"]),
        ("<!-- history -->", packed),
    ):
        # Each part is put in once. A mark in a part that was put in before would be found first, so the history comes
        # last: its letters make no mark.
        before, found, after = whole.partition(mark)
        if not found:
            raise ValueError(f"page.html has no place for {mark}")
        whole = before + content + after
    return whole


# -- messages


def _messages(recording: Recording, parties: _Table, partitions: _Table) -> dict[str, object]:
    """The columns, and the tables that they refer to."""
    # The first value of a table is what most messages have: no words, no rows, not lost. A zero takes least room.
    apis, texts = _Table(), _Table("")
    rows, losses = _Table(()), _Table("")
    columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
    began = 0
    for sent in recording.messages:
        at = _us(sent.began)
        ended = recording.end if sent.ended < 0 else sent.ended
        summary = sent.summary
        row_values = tuple(_row(row, recording, partitions, texts) for row in summary.rows)
        values = (
            at - began,
            _us(ended) - at,
            parties.place(sent.source),
            parties.place(sent.target),
            sent.size_bytes,
            _distance(sent),
            apis.place(summary.api),
            summary.version,
            texts.place(summary.words),
            rows.place(row_values),
            texts.place(", ".join(summary.errors)),
            losses.place(sent.lost),
        )
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
        began = at

    tables = {"apis": apis.values, "texts": texts.values, "rowLists": rows.values, "losses": losses.values}
    return {**columns, **tables}


def _distance(sent: Sent) -> int:
    """How many messages before this one its request was sent; 0 if it answers none."""
    return 0 if sent.answers == NO_REQUEST else sent.number - sent.answers


def _row(row: Row, recording: Recording, partitions: _Table, texts: _Table) -> tuple[int, int, int]:
    topic = row.topic
    # A later message may have taught the name of this id, so names are looked up now, and not when a frame is read. The
    # id itself is shown where no message had both: its topic was deleted before anyone asked for it.
    if isinstance(topic, bytes):
        topic = recording.topic_names.get(topic, f"topic id {topic.hex()}")
    return partitions.place((topic, row.partition)), texts.place(row.words), texts.place(row.error)


# -- everything else


def _us(seconds: float) -> int:
    # JavaScript has exact whole numbers up to 2 ** 53, and a latency has a hundred microseconds or more.
    return round(seconds * 1_000_000)


def _differences(numbers: Sequence[int]) -> list[int]:
    return [*numbers[:1], *(after - before for before, after in pairwise(numbers))]


def _role_of(party: str) -> str:
    if party == STORE:
        return "store"
    return "broker" if party.startswith(BROKER_PREFIX) else "client"


def _replica(held: Iterable[Held]) -> dict[str, list[int]]:
    """Columns of what a broker held."""
    rows = list(held)
    return {
        "at": _differences([_us(each.at) for each in rows]),
        "epoch": [NO_REPLICA if each.epoch is None else each.epoch for each in rows],
        "leads": [int(each.is_leader) for each in rows],
        "end": _differences([each.log_end_offset for each in rows]),
        "highWatermark": _differences([each.high_watermark for each in rows]),
    }


def _fault(trouble: Trouble, recording: Recording, parties: _Table) -> list[object]:
    """When, until when, its kind, the lanes that it marks."""
    fault = trouble.fault
    # All faults are taken back at the end of trouble. A run that ended before has no such moment.
    over = recording.end if recording.troubles_end < 0 else recording.troubles_end
    ended = min(trouble.at + fault.lasts_seconds, max(over, trouble.at))
    names = parties_of(fault, trouble.took_down, tuple(recording.states))
    return [_us(trouble.at), _us(ended), fault.kind, [parties.place(name) for name in names]]


def _timed(report: Reported) -> list[tuple[float, str]]:
    """The story, and at its end the violations that ended the run before a line of it could say so."""
    # A broker's own mistake, or a simulation that stands still, ends the run at once.
    missing = [each for each in report.broken if not any(_tells(event, each) for event in report.timed_story)]
    return [*report.timed_story, *((each.seconds, each.line) for each in missing)]


def _tells(event: tuple[float, str], violation: Violation) -> bool:
    return event == (violation.seconds, violation.line)


def _line_of(violation: Violation, timed_story: Sequence[tuple[float, str]]) -> int:
    """Which line of the story tells of it; the last one if that is cut off."""
    # The story keeps its latest lines only.
    found = (number for number, event in enumerate(timed_story) if _tells(event, violation))
    return next(found, len(timed_story) - 1)


def _named(partitions: _Table) -> list[tuple[int, Partition]]:
    """The partitions with their places, without the entries that stand for whole topics."""
    found = []
    for place, value in enumerate(partitions.values):
        assert isinstance(value, tuple), "a partition is a topic and a number"
        if value[1] != WHOLE_TOPIC:
            found.append((place, value))
    return found


def _partition_in(line: str, named: Mapping[str, int]) -> int:
    """The first partition that a line names."""
    # The name of a topic may be the beginning of another one's, so whole words are compared.
    words = line.replace(":", " ").replace(",", " ").split()
    return next((named[word] for word in words if word in named), NO_PARTITION)
