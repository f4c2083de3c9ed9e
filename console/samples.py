"""The samples of one scrape, as lines of Prometheus' text format (pure)."""

import hashlib
from collections.abc import Sequence

from barnabas.console.metric_table import METRICS, QUANTILES
from barnabas.world.tally import bounds, quantile

_SHARES = tuple((text, float(text)) for text in QUANTILES)
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
LABEL_CHARACTERS_MAX = 250  # no name of a topic is longer; of longer values the beginning is shown, and a digest
DIGEST_CHARACTERS = 12
# The bounds of a histogram of seconds: each power of two from 64 µs to 67 s.
_OCTAVES = range(6, 27)


def escaped(value: str) -> str:
    """The text of a label's value, between its quotes."""
    # Names of topics need none of this, but a client chooses the id of its group, and its software.
    if len(value) > LABEL_CHARACTERS_MAX:
        value = _shortened(value)
    return value.translate(_ESCAPED)


def _shortened(value: str) -> str:
    # A group may have an id of 32 KB, and thousands of series.
    digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:DIGEST_CHARACTERS]
    return f"{value[: LABEL_CHARACTERS_MAX - DIGEST_CHARACTERS - 1]}…{digest}"


def labels_of(**labels: object) -> str:
    """`{topic="t",partition="0"}` of topic="t", partition=0."""
    inner = ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items())
    return f"{{{inner}}}"


class Samples:
    """The lines of each metric, in the order in which they were added."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {metric.name: [] for metric in METRICS}

    def add(self, name: str, value: float, labels: str = "") -> None:
        """Add a sample of the metric `name`; `labels` as `labels_of` makes them. KeyError if the table lacks it."""
        self.lines[name].append(f"{name}{labels} {value}")

    def add_summary(
        self, name: str, counts: Sequence[int], recent: Sequence[int], scale: float = 1.0, **labels: object
    ) -> None:
        """Add the quantiles of `recent`, times `scale`, and the number of all `counts`."""
        # Kafka's own quantiles never forget, and fall slowly; these are of the last minutes, so an alert
        # ends when its cause does.
        lines = self.lines[name]
        for text, share in _SHARES:
            value = quantile(recent, share) * scale
            lines.append(f"{name}{labels_of(**labels, quantile=text)} {value:.6g}")
        lines.append(f"{name}_count{labels_of(**labels) if labels else ''} {sum(counts)}")

    def add_histogram(self, name: str, counts: Sequence[int], total_seconds: float, **labels: object) -> None:
        """Add cumulative buckets, the sum and the count of durations that were counted in microseconds."""
        lines = self.lines[name]

        # The bounds are powers of two, which are bounds of the histogram's own buckets, too: so the
        # cumulative counts are exact.
        seen = 0
        bucket = 0
        for octave in _OCTAVES:
            end = 1 << octave
            while bucket < len(counts) and bounds(bucket)[1] <= end:
                seen += counts[bucket]
                bucket += 1
            lines.append(f"{name}_bucket{labels_of(**labels, le=f'{end / 1_000_000:.6g}')} {seen}")

        count = sum(counts)
        lines.append(f"{name}_bucket{labels_of(**labels, le='+Inf')} {count}")
        lines.append(f"{name}_sum{labels_of(**labels)} {total_seconds:.6f}")
        lines.append(f"{name}_count{labels_of(**labels)} {count}")
