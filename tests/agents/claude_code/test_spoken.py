"""What a line says about one response."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.agents.claude_code.usage import decode, is_fuller, thread_name, to_row
from flightlog.sources.foreign_json import parse_timestamp_ms


def decode_reply(output: int = 5, stamp: str = "2026-01-02T03:04:05.678Z", more: str = ""):
    usage = f'{{"input_tokens":1,"output_tokens":{output},"cache_creation_input_tokens":9}}'
    message = f'{{"id":"m","model":"x","content":[{{"text":"…"}}],"usage":{usage}}}'
    return decode(
        f'{{"type":"assistant","timestamp":"{stamp}","message":{message}{more}}}'.encode()
    )


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31)),  # noqa: DTZ001 - the zone is given below
    st.sampled_from([0, 60, -210, 345, 840]),
    st.sampled_from(["auto", "milliseconds", "microseconds"]),
)
def test_a_time_is_cut_to_the_millisecond_as_everywhere_else(moment, minutes, precision):
    stamp = moment.replace(tzinfo=timezone(timedelta(minutes=minutes))).isoformat(
        timespec=precision
    )
    assert to_row(decode_reply(stamp=stamp), "s", "").at_ms == (parse_timestamp_ms(stamp) or 0)


@pytest.mark.parametrize("year", ["1969", "2200"])
def test_a_time_no_recording_can_have_is_none(year):
    assert to_row(decode_reply(stamp=f"{year}-06-01T00:00:00Z"), "s", "").at_ms == 0


def test_long_lived_cache_writes_are_separate():
    line = decode(
        b'{"type":"assistant","message":{"id":"m","usage":{"cache_creation_input_tokens":9,'
        b'"cache_creation":{"ephemeral_1h_input_tokens":4}}}}'
    )
    assert to_row(line, "s", "")[6:8] == (9, 4)


def test_subagent_is_named_by_the_file_or_the_line():
    by_agent, side = decode_reply(more=',"agentId":"a1"'), decode_reply(more=',"isSidechain":true')
    assert [thread_name(decode_reply()), thread_name(by_agent), thread_name(side)] == [
        "",
        "a1",
        "?",
    ]
    assert to_row(by_agent, "s", "own").subagent == "own"


def test_fullest_line_has_most_output_or_is_the_earliest():
    early, late = decode_reply(), decode_reply(stamp="2026-01-02T03:04:06Z")
    assert is_fuller(decode_reply(6), early)
    assert not is_fuller(early, decode_reply(6))
    assert is_fuller(early, late)
    assert not is_fuller(late, early)


def test_a_time_without_zone_is_refused_here():
    with pytest.raises(ValueError, match="timezone"):
        decode_reply(stamp=datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None).isoformat())
