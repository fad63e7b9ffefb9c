import msgspec
from hypothesis import given
from hypothesis import strategies as st

from flightlog.agents.dialects.anthropic_messages import UsageFields, decode_usage
from flightlog.model.usage import Usage

COUNTS = st.none() | st.integers(0, 2**53 - 1)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "input_tokens": COUNTS,
        "output_tokens": COUNTS,
        "cache_read_input_tokens": COUNTS,
        "cache_creation_input_tokens": COUNTS,
        "cache_creation": st.none() | st.fixed_dictionaries({"ephemeral_1h_input_tokens": COUNTS}),
        "server_tool_use": st.none() | st.fixed_dictionaries({"web_search_requests": COUNTS}),
    },
)


@given(OBJECTS)
def test_bytes_and_mapping_decode_to_the_same_counts(fields):
    typed = msgspec.json.decode(msgspec.json.encode(fields), type=UsageFields)

    assert Usage(*typed.counts()) == decode_usage(fields)


def test_a_value_that_is_no_object_counts_nothing():
    assert [decode_usage(value) for value in (None, [], "usage", 3)] == [Usage()] * 4


def test_cache_writes_are_separated_by_lifetime():
    counts = {
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_1h_input_tokens": 30},
    }

    assert decode_usage(counts) == Usage(cache_write_tokens=100, cache_write_1h_tokens=30)
    assert decode_usage({"cache_creation_input_tokens": 100}) == Usage(cache_write_tokens=100)


def test_more_hour_writes_than_writes_do_not_go_below_zero():
    assert decode_usage({"cache_creation": {"ephemeral_1h_input_tokens": 30}}) == Usage(
        cache_write_tokens=30, cache_write_1h_tokens=30
    )


def test_searches_are_counted_and_nonsense_is_nothing():
    assert decode_usage({"server_tool_use": {"web_search_requests": 3}}) == Usage(web_searches=3)
    assert (
        decode_usage(
            {
                "input_tokens": "many",
                "output_tokens": None,
                "cache_creation": [],
                "server_tool_use": 1,
            }
        )
        == Usage()
    )
