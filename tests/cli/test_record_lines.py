"""Records as lines of JSON, which come back byte by byte, and as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.record_lines import from_json, text_form, to_json
from barnabas.wire.record_reader import UNCHANGED

CONTENT = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "ignore"))
NAME = st.text(max_size=8).map(lambda text: text.encode("utf-8", "ignore")) | st.binary(max_size=8)
HEADERS = st.lists(st.tuples(NAME.map(lambda name: name.decode("utf-8", UNCHANGED)), CONTENT), max_size=4)


@given(CONTENT, CONTENT, HEADERS, st.integers(-1, 1 << 62))
def test_a_record_comes_back_unchanged(key, value, headers, timestamp_ms):
    text = to_json("orders", 3, 17, timestamp_ms, key, value, headers)
    assert "\n" not in text
    line = from_json(text)
    assert (line.key, line.value, list(line.headers)) == (key, value, headers)
    assert (line.timestamp_ms, line.partition) == (timestamp_ms, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON: column 1"),
        ("[1]", "has to be a JSON object"),
        ("{}", 'has no "value"'),
        ('{"value": {"base64": "?"}}', "value is no base64"),
        ('{"value": "\\ud800"}', "value is no text"),
        ('{"value": null, "headers": 1}', "headers have to be"),
        ('{"value": null, "headers": [["a"]]}', "a pair of a name and a value"),
        ('{"value": null, "headers": [[{"a": 1}, ""]]}', "a pair of a name and a value"),
        ('{"value": null, "headers": {"\\udcff": ""}}', "the name of a header is no text"),
        ('{"value": null, "partition": "1"}', "partition has to be a whole number"),
        ('{"value": null, "timestamp": true}', "timestamp has to be a whole number"),
    ],
)
def test_what_is_no_record_hears_why(text, said):
    with pytest.raises(ValueError, match=said):
        from_json(text)


def test_the_name_of_a_header_that_is_no_text_is_written_in_bytes():
    header = ("\udcff", b"a")
    assert '"headers":[[{"base64":"/w=="},"a"]]' in to_json("orders", 3, 17, 1_000, None, None, [header])
    assert text_form("%h")("orders", 3, 17, 1_000, None, None, [header]) == b"\xff=a"


def test_other_json_becomes_its_own_text():
    line = from_json('{"value": {"a": [1, "ü"]}, "headers": {"n": 1}}')
    assert (line.value, list(line.headers)) == ('{"a":[1,"ü"]}'.encode(), [("n", b"1")])


@pytest.mark.parametrize(
    ("style", "written"),
    [
        (r"%t/%p/%o %k=%v\n", b"orders/3/17 k=v\n"),
        ("%T %h%%", b"1970-01-01T00:00:01.000Z a=1,b=%"),
        (r"\t\\%x", b"\t\\%x"),
    ],
)
def test_a_record_is_written_in_a_style(style, written):
    assert text_form(style)("orders", 3, 17, 1_000, b"k", b"v", [("a", b"1"), ("b", None)]) == written
