"""Places in a topic as a person writes them (edge): `earliest`, `17`, `-20`, `-2h`, `2026-11-22T10:00`."""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
ALLOWED = (
    "earliest, latest, an offset (17), so many before the end (-20), a time ago (-2h) or a time (2026-11-22T10:00)"
)


class Offset(NamedTuple):
    """An offset, in each partition."""

    offset: int


class BeforeEnd(NamedTuple):
    """So many records before the end of each partition; 0: the end."""

    records: int


class Time(NamedTuple):
    """The first record that is at least so young."""

    timestamp_ms: int


EARLIEST = Offset(0)
LATEST = BeforeEnd(0)
Place = Offset | BeforeEnd | Time


def parse_place(text: str, now_ms: int) -> Place:
    """The place that this text names; a time without a zone is in UTC. ValueError with what is allowed."""
    # Words come first: no other form begins with a letter.
    word = text.strip().lower()
    if word in ("earliest", "start", "beginning"):
        return EARLIEST
    if word in ("latest", "end"):
        return LATEST
    if word == "now":
        return Time(now_ms)
    if re.fullmatch(r"[0-9]{1,18}", word):
        return Offset(int(word))
    if re.fullmatch(r"-[0-9]{1,18}", word):
        return BeforeEnd(-int(word))
    ago = re.fullmatch(r"-([0-9]{1,9})(ms|s|m|h|d)", word)
    if ago is not None:
        return _time(now_ms - round(timedelta(**{UNITS[ago[2]]: int(ago[1])}).total_seconds() * 1000))
    return _time(_parse_time(text.strip()))


def _time(timestamp_ms: int) -> Time:
    # In a request -1 and -2 are the ends of a log, and no record is older than 1970.
    return Time(max(0, timestamp_ms))


def _parse_time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no place in a topic: {ALLOWED}") from None
    # Brokers, logs and `consume` show UTC. The zone of the machine would make a script depend on where it runs.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def time_text(timestamp_ms: int) -> str:
    """A timestamp in UTC with milliseconds; "-" if there is none."""
    if timestamp_ms < 0:
        return "-"
    # A producer may write any number into a record.
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03}Z"
