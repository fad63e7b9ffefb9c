"""Usage as the APIs of OpenAI and Google count it: what is a part of what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.agents.dialects import gemini
from flightlog.model.usage import Usage
from support.scripted_apis import openai_chat, openai_responses

DIALECTS = (openai_responses, openai_chat, gemini)
NAMES = (
    *("input_tokens", "output_tokens", "prompt_tokens", "completion_tokens", "total_tokens"),
    *("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount"),
    *("cachedContentTokenCount", "toolUsePromptTokenCount", "cached_tokens"),
    *("input_tokens_details", "prompt_tokens_details", "output_tokens_details"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.dictionaries(st.sampled_from(["cached_tokens", "cache_write_tokens"]), inner),
    max_leaves=4,
)


def test_responses_count_cached_tokens_inside_the_input():
    usage = openai_responses.decode_usage(
        {
            "input_tokens": 1450,
            "input_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 50},
            "output_tokens": 90,
            "output_tokens_details": {"reasoning_tokens": 30},
            "total_tokens": 1540,
        }
    )

    assert usage == Usage(1000, 90, 400, 50)
    assert usage.total_tokens == 1540


def test_chat_counts_cached_tokens_inside_the_prompt():
    usage = openai_chat.decode_usage(
        {
            "prompt_tokens": 1400,
            "prompt_tokens_details": {"cached_tokens": 400},
            "completion_tokens": 90,
            "completion_tokens_details": {"reasoning_tokens": 30},
            "total_tokens": 1490,
        }
    )

    assert usage == Usage(1000, 90, 400)
    assert usage.total_tokens == 1490


@pytest.mark.parametrize("name", ["cached_tokens", "prompt_cache_hit_tokens"])
def test_chat_servers_without_details_count_the_same(name):
    fields = {"prompt_tokens": 1400, "completion_tokens": 90, name: 400}

    assert openai_chat.decode_usage(fields) == Usage(1000, 90, 400)


def test_chat_routers_report_cache_writes_inside_the_prompt():
    details = {"cached_tokens": 400, "cache_write_tokens": 50}
    fields = {"prompt_tokens": 1450, "prompt_tokens_details": details}

    assert openai_chat.decode_usage(fields) == Usage(1000, 0, 400, 50)


def test_gemini_counts_thoughts_and_tool_results_beside_the_rest():
    usage = gemini.decode_usage(
        {
            "promptTokenCount": 1400,
            "cachedContentTokenCount": 400,
            "toolUsePromptTokenCount": 20,
            "candidatesTokenCount": 60,
            "thoughtsTokenCount": 30,
            "totalTokenCount": 1510,
        }
    )

    assert usage == Usage(1020, 90, 400)
    assert usage.total_tokens == 1510


def test_gemini_names_of_another_api_include_the_thoughts():
    fields = {"promptTokenCount": 1400, "candidatesTokenCount": 90, "thoughtsTokenCount": 30}

    assert gemini.decode_usage(fields | {"totalTokenCount": 1490}) == Usage(1400, 90)
    assert gemini.decode_usage(fields) == Usage(1400, 120)


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (
            openai_responses,
            {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9}, "output_tokens": 1},
        ),
        (
            openai_chat,
            {
                "prompt_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 9},
                "completion_tokens": 1,
            },
        ),
        (
            gemini,
            {"promptTokenCount": 5, "cachedContentTokenCount": 9, "candidatesTokenCount": 1},
        ),
    ],
)
def test_more_cached_than_prompt_tokens_leave_no_fresh_input(dialect, fields):
    assert dialect.decode_usage(fields) == Usage(0, 1, 9)


@pytest.mark.parametrize("value", [None, [], "usage", 3, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_usage_that_is_no_object_counts_nothing(dialect, value):
    assert dialect.decode_usage(value) == Usage()


@pytest.mark.parametrize("value", [-1, True, 2**53, "7", float("nan"), None])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_hostile_count_counts_nothing(dialect, value):
    assert dialect.decode_usage(dict.fromkeys(NAMES, value)) == Usage()


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_no_usage_object_gives_negative_counts(fields):
    for dialect in DIALECTS:
        usage = dialect.decode_usage(fields)

        assert min(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) >= 0
