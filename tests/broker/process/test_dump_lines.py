"""The lines of `barnabas log dump`: times as a person reads them."""

import pytest

from barnabas.broker.process.dump_lines import as_text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("timestamp", 0, "1970-01-01T00:00:00.000Z"),
        ("max_timestamp", 1_732_812_345_678, "2024-11-28T16:45:45.678Z"),
        ("transaction_start_timestamp_ms", 1, "1970-01-01T00:00:00.001Z"),
        ("delete_horizon", 253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ("delete_horizon", None, "-"),
        ("last_timestamp", -1, "-"),
        ("timestamp", -2, "1969-12-31T23:59:59.998Z"),
        ("timestamp", 253_402_300_800_000, "253402300800000"),
        ("timestamp", -(1 << 63), "-9223372036854775808"),
        ("timestamp_type", "CreateTime", "CreateTime"),
        ("base_offset", 1_732_812_345_678, "1732812345678"),
    ],
)
def test_only_a_time_that_a_calendar_has_is_written_as_one(name, value, text):
    assert as_text({name: value}) == f"{name}: {text}"
