"""Prices, with the library the table was made from as the judge."""

from datetime import UTC, datetime

import pytest
from genai_prices import Usage as JudgeUsage
from genai_prices import calc_price
from genai_prices.data import providers
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.model.usage import Cost, CostSource, Usage
from flightlog.usage.price_table import ROWS
from flightlog.usage.prices import is_priced, price

ANTHROPIC = next(provider for provider in providers if provider.id == "anthropic")
MODELS = sorted(model.id for model in ANTHROPIC.models)
MOMENTS = [
    datetime(2024, 6, 1, tzinfo=UTC),
    datetime(2025, 12, 1, tzinfo=UTC),
    datetime(2026, 11, 1, tzinfo=UTC),
]
counts = st.integers(0, 3_000_000)
usages = st.builds(
    lambda given, output, read, short, hour, searches: Usage(
        given, output, read, short + hour, hour, searches
    ),
    *[counts] * 5,
    st.integers(0, 50),
)


def judged(model, usage, at):
    said = JudgeUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        web_searches=usage.web_searches,
    )
    return float(
        calc_price(said, model, provider_id="anthropic", genai_request_timestamp=at).total_price
    )


@settings(max_examples=300)
@given(model=st.sampled_from(MODELS), usage=usages, at=st.sampled_from(MOMENTS))
def test_every_model_costs_what_the_judge_says(model, usage, at):
    ours = price(model, usage, int(at.timestamp() * 1000))

    assert ours.usd == pytest.approx(judged(model, usage, at), rel=1e-9, abs=1e-9)
    assert ours.source is CostSource.TABLE


@pytest.mark.parametrize("model", MODELS)
def test_every_model_of_the_judge_is_in_the_table(model):
    assert is_priced(model)


def test_the_long_context_price_begins_above_the_threshold():
    tiered = [(patterns, lists) for patterns, lists in ROWS if any(each[1] for each in lists)]
    assert tiered, "the table has lost its tiers"
    for patterns, lists in tiered:
        model = next(
            pattern.removesuffix("*") for pattern in patterns.split() if pattern[0] not in "^*"
        )
        threshold = lists[0][1]
        for usage in (
            Usage(threshold, 1),
            Usage(threshold + 1, 1),
            Usage(1, 1, threshold),
            Usage(0, 1, 0, threshold + 1),
        ):
            assert price(model, usage).usd == pytest.approx(judged(model, usage, MOMENTS[-1]))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", "claude-3-5-haiku-latest"),
        ("eu.anthropic.claude-opus-5-5-20260701-v1:0", "claude-opus-5-5"),
        ("global.anthropic.claude-opus-5-20260301-v1", "claude-opus-5"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-4-1-20250805-v1:0",
            "claude-opus-4-1",
        ),
        ("claude-opus-5-5@20260701", "claude-opus-5-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4-0"),
        ("claude-opus-5-5[1m]", "claude-opus-5-5"),
        ("Claude-Opus-5-5", "claude-opus-5-5"),
        ("anthropic.claude-v2:1", "claude-2"),
    ],
)
def test_the_names_of_cloud_vendors_are_the_same_models(said, meant):
    usage = Usage(1000, 100, 10_000, 300, 50, 2)

    assert price(said, usage) == price(meant, usage)
    assert price(said, usage).usd


@pytest.mark.parametrize(
    "model", ["", "gpt-5", "claude", "claude-opus-99", "<synthetic>", "my-local-model", "\x1b[31m"]
)
def test_an_unknown_model_costs_an_unknown_amount_never_zero(model):
    assert not is_priced(model)
    assert price(model, Usage(1)) == Cost(None, CostSource.UNKNOWN)
    assert price(model, Usage(web_searches=1)) == Cost(None, CostSource.UNKNOWN)
    assert price(model, Usage()).usd == 0.0


def test_no_price_of_a_token_is_zero():
    for _, lists in ROWS:
        for _, _, below, above, _ in lists:
            assert all(rate > 0 for rate in (*below, *above))


def test_an_unknown_time_is_priced_as_of_now():
    assert price("claude-opus-5-5", Usage(1000, 10)) == price(
        "claude-opus-5-5", Usage(1000, 10), 1793620800000
    )
