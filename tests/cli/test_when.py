"""Places in a topic, as a person writes them."""

import pytest

from barnabas.cli.when import EARLIEST, LATEST, BeforeEnd, Offset, Time, parse_place, time_text

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ("17", Offset(17)),
        ("-20", BeforeEnd(20)),
        ("-2h", Time(NOW_MS - 7_200_000)),
        ("-30m", Time(NOW_MS - 1_800_000)),
        ("-250ms", Time(NOW_MS - 250)),
        ("now", Time(NOW_MS)),
        ("1970-01-01T00:00:01", Time(1_000)),
        ("1970-01-01T01:00:01+01:00", Time(1_000)),
        ("1970-01-02", Time(86_400_000)),
    ],
)
def test_a_place_is_read(text, place):
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize("text", ["", "yesterday", "2h", "--20", "-2y", "1e5", "2026-13-01"])
def test_what_is_no_place_hears_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"is no place in a topic: earliest, latest, an offset \(17\)"):
        parse_place(text, NOW_MS)


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1_234, "1970-01-01T00:00:01.234Z"), (-1, "-"), (1 << 62, str(1 << 62))],
)
def test_a_timestamp_is_shown_in_utc(timestamp_ms, text):
    assert time_text(timestamp_ms) == text


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "1969-12-31T23:59:59.998", "1950-01-01", "-99999d"])
def test_a_time_before_1970_is_the_beginning_and_no_end_of_the_log(text):
    assert parse_place(text, 1_000) == Time(0)
