import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.sources.foreign_json import (
    int_field,
    list_field,
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_a_field_of_the_wrong_type_reads_as_absent(value):
    record = {"x": value}

    assert text_field(record, "x") == (value if isinstance(value, str) else "")
    assert object_field(record, "x") == (value if isinstance(value, dict) else {})
    assert list_field(record, "x") == (value if isinstance(value, list) else [])
    assert 0 <= int_field(record, "x") < 2**53


@pytest.mark.parametrize(
    ("value", "meant"),
    [(7, 7), (7.0, 7), (0, 0), (-1, 0), (2**53, 0), (10**400, 0), (True, 0), ("7", 0), (None, 0), (float("nan"), 0),
     (float("inf"), 0), (1e300, 0)],
)  # fmt: skip
def test_a_count_is_whole_and_not_below_zero(value, meant):
    assert int_field({"x": value}, "x") == meant


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'{"a":"\\ud83d"}', {"a": "?"}),
        (b'{"a":"\xff"}', {"a": "�"}),
        (b'{"a":1' + b"0" * 40 + b"}", {"a": 10**40}),
        (b"[1]", None),
        (b'"a"', None),
        (b"", None),
        (b"\x00\x00", None),
        (b'{"a":', None),
        (b'{"a":' + b"[" * 100_000, None),
        (b'{"a":1' + b"0" * 5_000 + b"}", None),
    ],
)
def test_a_line_is_an_object_or_nothing(line, meant):
    assert parse_object(line) == meant


@given(st.binary())
def test_no_bytes_make_reading_raise(line):
    record = parse_object(line)

    assert isinstance(record, dict | None)


@given(st.dictionaries(st.text(), JSON))
def test_whatever_is_read_can_be_written_as_text(record):
    parsed = parse_object(json.dumps(record).encode())

    assert parsed is not None
    assert repr(parsed).encode("utf-8", "strict")


@pytest.mark.parametrize(
    ("stamp", "meant"),
    [
        ("2026-11-02T12:00:00.123Z", 1793620800123),
        ("2026-11-02T12:00:00.123", 1793620800123),
        ("2026-11-02T14:00:00.123+02:00", 1793620800123),
        ("1970-01-01T00:00:00Z", 0),
        ("", None),
        ("yesterday", None),
        ("1969-12-31T23:59:59Z", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("2026-11-02T25:00:00Z", None),
    ],
)
def test_a_time_stamp_is_milliseconds_or_unknown(stamp, meant):
    assert parse_timestamp_ms(stamp) == meant


@given(st.text(max_size=40) | st.datetimes().map(lambda moment: moment.isoformat()))
def test_any_stamp_gives_a_time_that_can_be_shown(stamp):
    at_ms = parse_timestamp_ms(stamp)

    if at_ms is not None:
        assert 0 <= at_ms < 7_258_118_400_000
