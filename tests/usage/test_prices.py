"""Prices, with the library the table was made from as the judge."""

from datetime import UTC, date, datetime, timedelta

import pytest
from genai_prices import Usage as JudgeUsage
from genai_prices import calc_price
from genai_prices.data import providers
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.model.usage import Cost, CostSource, Usage, sum_costs
from flightlog.usage.price_table import ROWS
from flightlog.usage.prices import is_priced, other_tables, price

TABLES = other_tables()
JUDGE = {provider.id: provider for provider in providers}
MODELS = sorted(model.id for model in JUDGE["anthropic"].models)
# Every plain name in the tables of the other providers, with its provider.
OTHERS = [
    (provider, name)
    for provider, rows in TABLES.items()
    for patterns, _ in rows
    for name in patterns.split()
    if name[0] not in "^*" and name[-1] != "*"
]
MILLION = 1_000_000
MOMENTS = [
    datetime(2024, 6, 1, tzinfo=UTC),
    datetime(2025, 12, 1, tzinfo=UTC),
    datetime(2026, 9, 1, 3, 15, tzinfo=UTC),
    datetime(2026, 11, 1, 6, tzinfo=UTC),
    datetime(2027, 2, 1, 12, tzinfo=UTC),
]
counts = st.integers(0, 3_000_000)
usages = st.builds(
    lambda given, output, read, short, hour, searches: Usage(
        given, output, read, short + hour, hour, searches
    ),
    *[counts] * 5,
    st.integers(0, 50),
)


def ms(at):
    return int(at.timestamp() * 1000)


def judge_price(model, usage, at, provider="anthropic"):
    model = f"qwen/{model}" if provider == "openrouter" else model
    judge_usage = JudgeUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        web_searches=usage.web_searches,
    )
    return float(
        calc_price(judge_usage, model, provider_id=provider, genai_request_timestamp=at).total_price
    )


@settings(max_examples=300)
@given(model=st.sampled_from(MODELS), usage=usages, at=st.sampled_from(MOMENTS))
def test_every_model_costs_what_the_judge_says(model, usage, at):
    ours = price(model, usage, ms(at))

    assert ours.usd == pytest.approx(judge_price(model, usage, at), rel=1e-9, abs=1e-9)
    assert ours.source is CostSource.TABLE


@settings(max_examples=600)
@given(named=st.sampled_from(OTHERS), usage=usages, at=st.sampled_from(MOMENTS))
def test_every_other_model_costs_what_its_provider_asks(named, usage, at):
    provider, model = named

    ours = price(model, usage, ms(at))

    assert ours.usd == pytest.approx(judge_price(model, usage, at, provider), rel=1e-9, abs=1e-9)
    assert ours.source.value == f"price table: {provider}"


@pytest.mark.parametrize("model", MODELS)
def test_every_model_of_the_judge_is_in_the_table(model):
    assert is_priced(model)


@pytest.mark.parametrize("provider", [*TABLES][:-2])
def test_every_text_model_of_a_maker_is_in_the_table(provider):
    models = [
        model.id
        for model in JUDGE[provider].models
        if not isinstance(model.prices, list)
        and model.is_match(model.id)
        and model.prices.input_mtok
        and model.prices.output_mtok
        and not model.prices.output_image_mtok
        and not model.prices.output_audio_mtok
        and not model.prices.output_video_mtok
        and not model.id.startswith(("claude", "gemma", "ft:"))
    ]

    assert [model for model in models if not is_priced(model)] == []
    assert len(models) >= 3


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "claude-opus-5-5"),
        ("openai", "gpt-6-sol"),
        ("google", "gemini-2.5-pro"),
        ("x-ai", "grok-4.6"),
        ("moonshotai", "kimi-k3"),
        ("zai", "glm-5.3"),
        ("deepseek", "deepseek-v3.2"),
        ("mistral", "codestral-2508"),
        ("minimax", "minimax-m2.7"),
        ("github-copilot", "mai-code-1.1-flash"),
        ("openrouter", "qwen3-coder-plus"),
    ],
)
def test_a_million_tokens_of_a_class_cost_the_figure_in_the_source(provider, model):
    source_name = f"qwen/{model}" if provider == "openrouter" else model
    (figures,) = [
        entry.prices for entry in JUDGE[provider].models if entry.id.lower() == source_name
    ]

    def figure(*names, prompt=MILLION):
        value = next(value for name in names if (value := getattr(figures, name)) is not None)
        above = [tier.price for tier in getattr(value, "tiers", ()) if tier.start < prompt]
        return float(above[-1] if above else getattr(value, "base", value))

    costs = [
        price(model, usage).usd
        for usage in (
            Usage(input_tokens=MILLION),
            Usage(output_tokens=MILLION),
            Usage(cache_read_tokens=MILLION),
            Usage(cache_write_tokens=MILLION),
            Usage(cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION),
        )
    ]

    assert costs == [
        figure("input_mtok"),
        figure("output_mtok", prompt=0),
        figure("cache_read_mtok", "input_mtok"),
        figure("cache_write_mtok", "input_mtok"),
        figure("cache_write_1h_mtok", "cache_write_mtok", "input_mtok"),
    ]


def test_a_band_of_prices_begins_one_token_above_its_threshold():
    tables = {"anthropic": ROWS, **TABLES}
    met = set()
    for provider, rows in tables.items():
        for patterns, lists in rows:
            name = patterns.split()[0].strip("^*").split("(")[0].replace("\\", "")
            for since, thresholds, bands, _ in lists:
                if not thresholds:
                    continue
                at = datetime.fromisoformat(f"{since or '2020-01-01'}T12:00:00+00:00")
                for number, threshold in enumerate(thresholds):
                    met.add((provider, threshold))
                    below, first, above = (
                        price(name, Usage(threshold + more - 2, 1, 1, 1), ms(at)).usd
                        for more in (-1, 0, 1)
                    )
                    assert first - below == pytest.approx(bands[number][0] / 1e6)
                    assert above - first > 1000 * bands[number][0] / 1e6
                    for tokens in (threshold - 1, threshold, threshold + 1):
                        usage = Usage(tokens - 2, 1, 1, 1)
                        expected_usd = judge_price(name, usage, at, provider)
                        assert price(name, usage, ms(at)).usd == pytest.approx(expected_usd)
    assert {("anthropic", 200_000), ("openai", 272_000), ("google", 200_000)} <= met
    assert {("openrouter", 32_000), ("openrouter", 128_000), ("x-ai", 199_999)} <= met


def test_a_price_applies_from_the_first_moment_of_its_day():
    usage = Usage(100_000, 1000)
    midnight = datetime(2026, 8, 21, tzinfo=UTC)

    before = price("gpt-5.6-sol", usage, ms(midnight) - 1)
    after = price("gpt-5.6-sol", usage, ms(midnight))

    assert (before.usd, after.usd) == (0.53, 0.42)
    assert before.source is after.source is CostSource.OPENAI


def test_a_price_of_some_hours_applies_to_these_hours_of_each_day():
    usage = Usage(MILLION)
    day = datetime(2026, 11, 3, tzinfo=UTC)

    def at(hour, minute):
        return price("deepseek-v4-pro", usage, ms(day + timedelta(hours=hour, minutes=minute))).usd

    assert [at(0, 59), at(1, 0), at(3, 59), at(4, 0)] == [0.66, 1.32, 1.32, 0.66]
    assert price("deepseek-v4-pro", usage).usd == 0.66


def test_without_a_time_a_price_of_the_future_does_not_apply():
    dated = price("gemini-4-argon", Usage(MILLION), ms(datetime(2026, 12, 1, tzinfo=UTC)))

    assert dated.usd == 4.0
    assert price("gemini-4-argon", Usage(MILLION)).usd == 2.0
    assert price("gemini-4-argon", Usage(MILLION), 0).usd == 2.0


@pytest.mark.parametrize(
    ("alias", "meant"),
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
def test_the_names_of_cloud_vendors_are_the_same_models(alias, meant):
    usage = Usage(1000, 100, 10_000, 300, 50, 2)

    assert price(alias, usage) == price(meant, usage)
    assert price(alias, usage).usd


@pytest.mark.parametrize(
    ("alias", "meant", "provider"),
    [
        ("openai/gpt-5.6-sol", "gpt-5.6-sol", "openai"),
        ("github-copilot/gpt-5.6-sol", "gpt-5.6-sol", "openai"),
        ("openrouter/openai/gpt-5.6-sol", "gpt-5.6-sol", "openai"),
        ("gpt-5.6-sol-2026-07-02", "gpt-5.6-sol", "openai"),
        ("gpt-5.6-sol-20260702", "gpt-5.6-sol", "openai"),
        ("GPT-5-Codex", "gpt-5", "openai"),
        ("gpt-4o-20240513", "gpt-4o-2024-05-13", "openai"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro", "google"),
        ("publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro", "google"),
        ("google/gemini-2.5-pro-preview-06-05", "gemini-2.5-pro", "google"),
        ("x-ai/grok-4.6", "grok-4.6", "x-ai"),
        ("moonshotai/kimi-k3", "kimi-k3", "moonshotai"),
        ("z-ai/glm-5.3", "GLM-5.3", "zai"),
        ("qwen/qwen3-coder-plus", "qwen3-coder-plus", "openrouter"),
        ("openrouter/qwen/qwen3-coder-plus", "qwen3-coder-plus", "openrouter"),
        ("qwen3-coder-plus-2025-09-23", "qwen3-coder-plus", "openrouter"),
    ],
)
def test_a_name_is_priced_with_its_prefixes_and_its_date(alias, meant, provider):
    usage = Usage(1000, 100, 10_000, 300)

    assert price(alias, usage) == price(meant, usage)
    assert price(alias, usage).source.value == f"price table: {provider}"


@pytest.mark.parametrize("prefix", ["anthropic/", "openrouter/anthropic/", "github-copilot/"])
def test_a_claude_model_of_a_gateway_costs_what_anthropic_asks(prefix):
    usage = Usage(1000, 100, 10_000, 300)

    assert price(f"{prefix}claude-opus-5.5", usage) == price("claude-opus-5-5", usage)


def test_a_dated_snapshot_keeps_the_price_of_its_own():
    assert price("gpt-4o-2024-05-13", Usage(MILLION)).usd == 5.0
    assert price("gpt-4o-2024-08-06", Usage(MILLION)).usd == 2.5


def test_the_faster_service_of_a_model_has_its_own_price_or_none():
    assert price("claude-opus-4.8-fast", Usage(MILLION)) == Cost(10.0, CostSource.COPILOT)
    assert not is_priced("claude-opus-4.7-fast")


def test_a_sum_of_several_price_tables_is_of_the_price_table():
    openai, google, anthropic = (
        price(model, Usage(1000)) for model in ("gpt-5", "gemini-2.5-pro", "claude-opus-5-5")
    )
    client = Cost(1.0, CostSource.CLIENT)

    assert sum_costs([openai, openai]).source is CostSource.OPENAI
    assert sum_costs([openai, google]).source is CostSource.TABLE
    assert sum_costs([anthropic, openai]).source is CostSource.TABLE
    assert sum_costs([openai, client]).source is CostSource.MIXED
    assert sum_costs([openai, client, google]).source is CostSource.MIXED


def test_the_makers_of_models_come_before_the_resellers():
    assert [*TABLES][-2:] == ["github-copilot", "openrouter"]
    for provider in TABLES:
        assert CostSource(f"price table: {provider}").is_table


@pytest.mark.parametrize(
    "model",
    [
        *("", "gpt-99", "claude", "claude-opus-99", "<synthetic>", "my-local-model", "\x1b[31m"),
        *("ollama/qwen3-coder-plus", "local/gpt-5", "qwen3:8b", "google/gemini-2.5-pro:free"),
        *("gemini-2.5-pro:free", "openrouter/auto", "gpt-5-2025", "grok-voice-latest"),
    ],
)
def test_an_unknown_model_costs_an_unknown_amount_never_zero(model):
    assert not is_priced(model)
    assert price(model, Usage(1)) == Cost(None, CostSource.UNKNOWN)
    assert price(model, Usage(web_searches=1)) == Cost(None, CostSource.UNKNOWN)
    assert price(model, Usage()).usd == 0.0


def test_no_price_of_a_token_is_zero():
    for _, lists in (row for rows in (ROWS, *TABLES.values()) for row in rows):
        for since, thresholds, bands, _ in lists:
            assert len(bands) == len(thresholds) + 1
            assert all(rate > 0 for band in bands for rate in band)
            if since and ":" not in since:
                assert date.fromisoformat(since).isoformat() == since


def test_an_unknown_time_is_priced_as_of_now():
    assert price("claude-opus-5-5", Usage(1000, 10)) == price(
        "claude-opus-5-5", Usage(1000, 10), 1793620800000
    )
