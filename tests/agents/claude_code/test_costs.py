from flightlog.agents.claude_code.usage import client_totals
from flightlog.model.usage import ModelTotal


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

    assert totals.cost_usd == 1.5
    assert totals.models == (
        ModelTotal("a", 1.0, output_tokens=2),
        ModelTotal("b", 0.5, input_tokens=1),
    )


def test_impossible_amount_counts_as_zero():
    for amount in (-1, float("nan"), float("inf"), "1.5", True, None, 10**400):
        assert client_totals({"totalCostUSD": amount}).cost_usd == 0.0
