from flightlog.model.usage import ModelTotal, Usage
from flightlog.sources.claude_code.costs import client_totals, usage


def test_cache_writes_are_told_apart_by_life_time():
    said = {"cache_creation_input_tokens": 100, "cache_creation": {"ephemeral_1h_input_tokens": 30}}

    assert usage(said) == Usage(cache_write_5m=70, cache_write_1h=30)
    assert usage({"cache_creation_input_tokens": 100}) == Usage(cache_write_5m=100)


def test_more_hour_writes_than_writes_do_not_go_below_zero():
    assert usage({"cache_creation": {"ephemeral_1h_input_tokens": 30}}) == Usage(cache_write_1h=30)


def test_searches_are_counted_and_nonsense_is_nothing():
    assert usage({"server_tool_use": {"web_search_requests": 3}}) == Usage(web_searches=3)
    assert usage({"input_tokens": "many", "output_tokens": None, "cache_creation": [], "server_tool_use": 1}) == Usage()


def test_a_clients_total_is_read_model_by_model():
    record = {
        "sessionId": "s",
        "totalCostUSD": 1.5,
        "startTime": 7,
        "modelUsage": {
            "b": {"inputTokens": 1, "costUSD": 0.5},
            "a": {"outputTokens": 2, "costUSD": 1},
            "c": "nonsense",
        },
    }

    totals = client_totals(record)

    assert totals.total_usd == 1.5
    assert totals.models == (ModelTotal("a", Usage(output=2), 1.0), ModelTotal("b", Usage(1), 0.5))


def test_an_amount_that_cannot_be_is_zero():
    for amount in (-1, float("nan"), float("inf"), "1.5", True, None, 10**400):
        assert client_totals({"totalCostUSD": amount}).total_usd == 0.0
