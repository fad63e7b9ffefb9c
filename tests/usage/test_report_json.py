from flightlog.model.usage import ClientTotals, Cost, CostSource, ModelTotal, Usage, UsageRow
from flightlog.usage.reconciliation import GapReason, Reconciliation, UsageGap
from flightlog.usage.report_json import reconciliation_json, row_json, unrecorded_json

ROW = UsageRow(
    "k", Usage(1, 2, 3, 9, 5, 6), Cost(None, CostSource.UNKNOWN), 7, 8, ("m",), ("m",), 0, 0
)
GAPS = (
    UsageGap("s", GapReason.CUT, Usage(1, 1), 0.5),
    UsageGap("s", GapReason.COMPACTION, Usage(2, 2), 0.25),
)


def test_a_row_names_its_tokens_and_an_unknown_cost_is_null():
    document = row_json(ROW)

    assert (
        document["input_tokens"],
        document["output_tokens"],
        document["cache_read_tokens"],
        document["cache_write_tokens"],
    ) == (
        1,
        2,
        3,
        9,
    )
    assert document["cost_usd"] is None
    assert document["unpriced_models"] == ["m"]


def test_gaps_are_summed_and_a_single_reason_is_named():
    assert unrecorded_json(GAPS)["cost_usd"] == 0.75
    assert unrecorded_json(GAPS)["input_tokens"] == 3
    assert unrecorded_json(GAPS)["reason"] is None
    assert unrecorded_json(GAPS[:1])["reason"] == "cut stream"
    assert unrecorded_json(())["cost_usd"] == 0.0


def test_a_truth_says_what_was_inherited_and_from_whom():
    client = ClientTotals("s", 2.0, 0, (ModelTotal("m", 2.0, input_tokens=9),))

    document = reconciliation_json(
        Reconciliation("s", client, Usage(), 0.0, Usage(3), 1.25, "p", GAPS)
    )

    assert document["client_total"]["cost_usd"] == 2.0
    assert (
        document["inherited_usage"]["from_session"],
        document["inherited_usage"]["cost_usd"],
    ) == (
        "p",
        1.25,
    )
    assert (
        reconciliation_json(Reconciliation("s", client, Usage(), 0.0, Usage(), 0.0, "", ()))[
            "inherited_usage"
        ]["from_session"]
        is None
    )
